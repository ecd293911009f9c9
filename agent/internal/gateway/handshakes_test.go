package gateway

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"wgsteer/internal/peer"
	"wgsteer/internal/report"
)

// shake gives peers of ours a handshake now.
func (k *fakeKernel) shake(keys ...peer.Key) {
	for _, key := range keys {
		k.addPeer(key, time.Now(), peer.WGKex.LinkAddress(key))
	}
}

// keepShaking gives peers of ours a handshake every minute until the time has passed.
func (k *fakeKernel) keepShaking(d time.Duration, keys ...peer.Key) {
	for began := time.Now(); time.Since(began) < d; {
		k.shake(keys...)
		pass(time.Minute)
	}
}

// removePeer removes a peer behind the gateway's back.
func (k *fakeKernel) removePeer(key peer.Key) {
	k.change(func(k *fakeKernel) { delete(k.peers, key) })
}

func seen(key peer.Key) report.Handshake { return report.Handshake{Key: key} }
func gone(key peer.Key) report.Handshake { return report.Handshake{Key: key, Gone: true} }

// expectHandshakes fails the test unless exactly this is to be reported now.
func expectHandshakes(t *testing.T, g running, when string, want ...report.Handshake) {
	t.Helper()
	if diff := cmp.Diff(want, g.Handshakes(testDomain)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

// told tells whether the gateway has signalled a change since the last call.
func (g running) told() bool {
	select {
	case <-g.Changed():
		return true
	default:
		return false
	}
}

func TestAKeyIsReportedWhenItConnectsAndEveryHourThen(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		a, b := testKey(1), testKey(2)
		k.shake(a)
		pass(reconcileInterval)
		expectHandshakes(t, g, "after the first handshake", seen(a))
		k.shake(a, b)
		pass(reconcileInterval)
		expectHandshakes(t, g, "after another one of it, and the first of b", seen(b))
		k.keepShaking(handshakeInterval-2*time.Minute, a, b)
		expectHandshakes(t, g, "less than an hour later")
		k.keepShaking(3*time.Minute, a, b)
		expectHandshakes(t, g, "an hour after they were reported", seen(a), seen(b))
	})
}

func TestOnlyPeersOfOursThatAreConnectedAreReported(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		k.addPeer(testKey(1), time.Now(), peer.WGKex.LinkAddress(testKey(2))) // somebody else's
		k.addPeer(testKey(3), time.Now().Add(-connectedWithin), peer.WGKex.LinkAddress(testKey(3)))
		k.addPeer(testKey(4), time.Time{}, peer.WGKex.LinkAddress(testKey(4)))
		pass(reconcileInterval)
		expectHandshakes(t, g, "none is connected")
		pass(2 * connectedWithin)
		expectHandshakes(t, g, "nor was")
	})
}

func TestANewServerHearsOfAllThatAreConnected(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		k.shake(testKey(1), testKey(2), testKey(3))
		pass(reconcileInterval)
		expectHandshakes(t, g, "at first", seen(testKey(1)), seen(testKey(2)), seen(testKey(3)))
		k.removePeer(testKey(3))
		pass(reconcileInterval) // it is gone, which nobody was told
		g.BeginSession()
		expectHandshakes(t, g, "at the beginning of a session")
		k.shake(testKey(2))
		pass(reconcileInterval)
		expectHandshakes(t, g, "again", seen(testKey(1)), seen(testKey(2)))
	})
}

func TestAKeyThatIsNoLongerConnectedIsReported(t *testing.T) {
	for name, leave := range map[string]func(k *fakeKernel, key peer.Key){
		"as it is silent": func(*fakeKernel, peer.Key) {},
		"as its peer was removed and put back": func(k *fakeKernel, key peer.Key) {
			k.removePeer(key)
		},
		"as its peer is somebody else's": func(k *fakeKernel, key peer.Key) {
			k.addPeer(key, time.Now(), peer.WGKex.LinkAddress(testKey(9)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFakeKernel()
			run(t, k, func(t *testing.T, g running) {
				key, stays := testKey(1), testKey(2)
				k.shake(key, stays)
				pass(reconcileInterval)
				expectHandshakes(t, g, "at first", seen(key), seen(stays))
				leave(k, key)
				k.keepShaking(connectedWithin, stays)
				expectHandshakes(t, g, "after it left", gone(key))
				k.keepShaking(connectedWithin, stays)
				expectHandshakes(t, g, "later")
				k.shake(key)
				pass(reconcileInterval)
				expectHandshakes(t, g, "when it is back", seen(key))
			})
		})
	}
}

func TestOnlyWhatTheServerWasToldOfIsGone(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		short, back := testKey(1), testKey(2)
		k.shake(back)
		pass(reconcileInterval)
		expectHandshakes(t, g, "at first", seen(back))
		k.shake(short, back)
		pass(reconcileInterval) // short's handshake is seen, and not yet told
		k.removePeer(short)
		k.removePeer(back)
		pass(reconcileInterval) // that back left, too
		k.shake(back)
		pass(reconcileInterval)
		expectHandshakes(t, g, "after one came and went, and one left and is back")
	})
}

func TestAnInterfaceThatIsAwayIsNoDepartureUntilItIsBack(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		key := testKey(1)
		k.shake(key)
		pass(reconcileInterval)
		expectHandshakes(t, g, "at first", seen(key))
		links := k.links
		k.change(func(k *fakeKernel) { k.links = Links{}; clear(k.peers) })
		pass(time.Minute)
		expectHandshakes(t, g, "while the domain is not offered")
		k.change(func(k *fakeKernel) { k.links = links })
		pass(time.Minute)
		expectHandshakes(t, g, "when the interface is back", gone(key))
	})
}

func TestTheFirstHandshakeAfterAnExchangeIsReportedAgain(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		key := testKey(1)
		k.shake(key)
		pass(reconcileInterval)
		expectHandshakes(t, g, "at first", seen(key))
		for range 2 {
			g.Add(testDomain, key, FromExchange)
			pass(2 * glanceInterval)
			expectHandshakes(t, g, "after an exchange without a handshake")
			k.shake(key)
			pass(glanceInterval)
			expectHandshakes(t, g, "after the handshake", seen(key))
			k.shake(key)
			pass(reconcileInterval)
			expectHandshakes(t, g, "after the one after it")
		}
	})
}

func TestAHandshakeAfterAReplayIsNoNews(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		key := testKey(1)
		k.shake(key)
		pass(reconcileInterval)
		expectHandshakes(t, g, "at first", seen(key))
		g.Add(testDomain, key, FromReplay)
		synctest.Wait()
		k.shake(key)
		pass(reconcileInterval)
		expectHandshakes(t, g, "after a replay and a handshake")
	})
}

func TestTheNewsOfAnExchangeMayBeALittleLate(t *testing.T) {
	for late, want := range map[time.Duration][]report.Handshake{
		2 * time.Second:         {seen(testKey(1))},
		2001 * time.Millisecond: nil,
	} {
		t.Run(late.String(), func(t *testing.T) {
			k := newFakeKernel()
			run(t, k, func(t *testing.T, g running) {
				k.shake(testKey(1))
				pass(reconcileInterval)
				g.Handshakes(testDomain)
				k.shake(testKey(1))
				pass(late)
				g.Add(testDomain, testKey(1), FromExchange)
				synctest.Wait()
				expectHandshakes(t, g, "when the key arrives", want...)
			})
		})
	}
}

// Whatever is reported between an exchange and a handshake would look like its success.
func TestAnOldHandshakeIsNotReportedToAServerThatWaitsForANewOne(t *testing.T) {
	for name, ask := range map[string]func(g running, key peer.Key){
		"not seen before":   func(g running, key peer.Key) { g.Add(testDomain, key, FromExchange) },
		"seen and not told": func(g running, key peer.Key) { pass(reconcileInterval); g.Add(testDomain, key, FromExchange) },
		"told to a server before": func(g running, key peer.Key) {
			pass(reconcileInterval)
			g.Handshakes(testDomain)
			g.Add(testDomain, key, FromExchange)
			g.BeginSession()
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFakeKernel()
			run(t, k, func(t *testing.T, g running) {
				key := testKey(1)
				k.shake(key)
				pass(askedSlack + time.Second)
				ask(g, key)
				expectHandshakes(t, g, "at once")
				pass(reconcileInterval)
				expectHandshakes(t, g, "before its next handshake")
				k.shake(key)
				pass(glanceInterval)
				expectHandshakes(t, g, "after it", seen(key))
			})
		})
	}
}

func TestAnAwaitedHandshakeIsSeenWithin5sAndCostsNoComparison(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		key := testKey(1)
		g.Add(testDomain, key, FromExchange)
		pass(2 * glanceInterval)
		g.told()
		k.shake(key)
		pass(glanceInterval)
		if !g.told() {
			t.Error("the uplink does not hear of it")
		}
		expectHandshakes(t, g, "5 s after the handshake", seen(key))
		if _, n := k.reads(); n != 1 {
			t.Errorf("everything was compared %d times, want only at the start", n)
		}
	})
}

func TestItLooksNoMoreOftenThanItHasTo(t *testing.T) {
	for name, arrives := range map[string]func(k *fakeKernel, g running){
		"a replay": func(_ *fakeKernel, g running) { g.Add(testDomain, testKey(1), FromReplay) },
		"an exchange without a handshake": func(_ *fakeKernel, g running) {
			g.Add(testDomain, testKey(1), FromExchange)
			pass(awaitedFor)
		},
		"an exchange with a handshake": func(k *fakeKernel, g running) {
			g.Add(testDomain, testKey(1), FromExchange)
			synctest.Wait()
			k.shake(testKey(1))
			pass(glanceInterval)
		},
		"an exchange and an eviction": func(_ *fakeKernel, g running) {
			g.Add(testDomain, testKey(1), FromExchange)
			g.Evict(testDomain, []peer.Key{testKey(1)})
			pass(countSoon)
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFakeKernel()
			run(t, k, func(t *testing.T, g running) {
				arrives(k, g)
				before, _ := k.reads()
				pass(awaitedFor)
				after, _ := k.reads()
				if n := after - before; n > 4 { // three comparisons, one count
					t.Errorf("it looked %d times in the minute after it", n)
				}
			})
		})
	}
}

func TestTheUplinkHearsOfADepartureAtTheNextLook(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		k.shake(testKey(1))
		pass(reconcileInterval)
		expectHandshakes(t, g, "at first", seen(testKey(1)))
		g.told()
		k.removePeer(testKey(1))
		pass(reconcileInterval) // the next count is further away
		if !g.told() {
			t.Error("it does not")
		}
	})
}
