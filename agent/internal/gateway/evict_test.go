package gateway

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"wgsteer/internal/peer"
)

func TestAnEvictedPeerIsTakenApartInOrderAndNothingElseIs(t *testing.T) {
	k := newFakeKernel()
	evicted, stays, foreign := testKey(1), testKey(2), testKey(3)
	run(t, k, func(t *testing.T, g running) {
		g.Add(testDomain, evicted, FromExchange)
		g.Add(testDomain, stays, FromExchange)
		synctest.Wait()
		address := peer.WGKex.LinkAddress(evicted)
		k.change(func(k *fakeKernel) { k.routes[address] = Route{To: address} }) // as wgkex made it
		k.addPeer(foreign, time.Time{}, netip.MustParseAddr("fd00::1"))
		k.made()
		g.Evict(testDomain, []peer.Key{evicted, foreign, testKey(4)})
		synctest.Wait()
		want := []string{"remove entries 1", "remove routes 1", "remove peers 1"}
		if diff := cmp.Diff(want, k.made()); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		if _, there := k.peers[foreign]; !there {
			t.Error("somebody else's peer was removed")
		}
		delete(k.peers, foreign)
		check(t, k.complete(stays))
	})
}

func TestAPeerOfTheOtherSchemeIsEvictedWhereItIs(t *testing.T) {
	k := newFakeKernel()
	key := testKey(1)
	address := peer.Gluon.LinkAddress(key)
	run(t, k, func(t *testing.T, g running) {
		k.addPeer(key, time.Now(), address)
		k.change(func(k *fakeKernel) {
			k.routes[address] = Route{To: address}
			k.entries[Entry{To: address, Via: wgIndex}] = true
		})
		g.Evict(testDomain, []peer.Key{key})
		synctest.Wait()
		check(t, k.complete())
	})
}

func TestAnEvictedKeyStaysOut(t *testing.T) {
	key, stays := testKey(1), testKey(2)
	for name, test := range map[string]func(k *fakeKernel, g running){
		"by itself": func(*fakeKernel, running) {},
		"when it is replayed": func(_ *fakeKernel, g running) {
			g.Add(testDomain, key, FromReplay)
		},
		"when its peer is put back by hand": func(k *fakeKernel, _ running) {
			k.shake(key)
		},
		"when what belongs to others is repaired": func(k *fakeKernel, _ running) {
			k.change(func(k *fakeKernel) { clear(k.routes); clear(k.entries); clear(k.peers) })
		},
		"when its interface comes back with the peer": func(k *fakeKernel, g running) {
			links := k.links
			k.change(func(k *fakeKernel) { k.links = Links{} })
			k.event(Change{})
			pass(time.Minute)
			k.shake(key)
			k.change(func(k *fakeKernel) { k.links = links })
			k.event(Change{})
		},
		"when its domain is swept": func(*fakeKernel, running) { pass(evictedFor - 2*reconcileInterval) },
	} {
		t.Run(name, func(t *testing.T) {
			k := newFakeKernel()
			run(t, k, func(t *testing.T, g running) {
				k.shake(key, stays)
				g.Add(testDomain, key, FromExchange)
				g.Add(testDomain, stays, FromExchange)
				pass(reconcileInterval)
				check(t, k.complete(key, stays))
				k.addPeer(stays, time.Now().Add(time.Hour), peer.WGKex.LinkAddress(stays)) // not swept
				g.Evict(testDomain, []peer.Key{key})
				synctest.Wait()
				check(t, k.complete(stays))
				test(k, g)
				pass(reconcileInterval)
				check(t, k.complete(stays))
			})
		})
	}
}

func TestAKeyThatIsEvictedWhileItsInterfaceIsAwayStaysOut(t *testing.T) {
	k := newFakeKernel()
	key, stays := testKey(1), testKey(2)
	run(t, k, func(t *testing.T, g running) {
		g.Add(testDomain, key, FromExchange)
		g.Add(testDomain, stays, FromExchange)
		synctest.Wait()
		links := k.links
		k.change(func(k *fakeKernel) {
			k.links = Links{}
			clear(k.peers)
			clear(k.routes)
			clear(k.entries)
		})
		k.event(Change{})
		pass(time.Second)
		g.Evict(testDomain, []peer.Key{key})
		pass(time.Second)
		k.change(func(k *fakeKernel) { k.links = links })
		k.event(Change{})
		pass(time.Second)
		check(t, k.complete(stays))
	})
}

func TestAKeyIsOutThoughItCameWithTheEvictionInOneBatch(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		g.Add(testDomain, testKey(1), FromExchange)
		g.Evict(testDomain, []peer.Key{testKey(1)})
		g.Add(testDomain, testKey(1), FromReplay)
		synctest.Wait()
		check(t, k.complete())
		pass(reconcileInterval)
		check(t, k.complete())
	})
}

func TestAnEvictedKeyIsBackWhenItsNodeAsks(t *testing.T) {
	for name, between := range map[string]func(){"later": synctest.Wait, "at once": func() {}} {
		t.Run(name, func(t *testing.T) {
			k := newFakeKernel()
			key := testKey(1)
			run(t, k, func(t *testing.T, g running) {
				g.Add(testDomain, key, FromExchange)
				synctest.Wait()
				g.Evict(testDomain, []peer.Key{key})
				between()
				g.Add(testDomain, key, FromExchange)
				synctest.Wait()
				check(t, k.complete(key))
				pass(reconcileInterval)
				check(t, k.complete(key))
				k.change(func(k *fakeKernel) { clear(k.peers) })
				g.Add(testDomain, key, FromReplay)
				synctest.Wait()
				check(t, k.complete(key)) // nothing is left of the eviction
			})
		})
	}
}

func TestANewSessionForgetsWhatWasEvicted(t *testing.T) {
	k := newFakeKernel()
	replayed, found := testKey(1), testKey(2)
	run(t, k, func(t *testing.T, g running) {
		g.Evict(testDomain, []peer.Key{replayed, found})
		synctest.Wait()
		g.BeginSession()
		g.Add(testDomain, replayed, FromReplay)
		synctest.Wait()
		check(t, k.complete(replayed))
		k.shake(found)
		pass(reconcileInterval)
		check(t, k.complete(replayed, found))
	})
}

func TestAnEvictionIsForgottenAfterAnHour(t *testing.T) {
	k := newFakeKernel()
	key := testKey(1)
	run(t, k, func(t *testing.T, g running) {
		pass(10 * time.Second) // so that no comparison is due just then
		g.Evict(testDomain, []peer.Key{key})
		pass(evictedFor - time.Second)
		g.Add(testDomain, key, FromReplay)
		synctest.Wait()
		check(t, k.complete())
		pass(time.Second)
		g.Add(testDomain, key, FromReplay)
		synctest.Wait()
		check(t, k.complete(key))
		pass(reconcileInterval)
		if n := len(g.domains[testDomain].evicted); n != 0 {
			t.Errorf("%d evictions are kept", n)
		}
	})
}

func TestAnEvictionOfAPeerThatCannotBeRemovedIsRetried(t *testing.T) {
	k := newFakeKernel()
	stuck, key := testKey(1), testKey(2)
	run(t, k, func(t *testing.T, g running) {
		g.Add(testDomain, stuck, FromExchange)
		g.Add(testDomain, key, FromExchange)
		pass(time.Second)
		k.change(func(k *fakeKernel) { k.broken["removal"] = peer.WGKex.LinkAddress(stuck) })
		g.Evict(testDomain, []peer.Key{stuck, key})
		pass(time.Minute)
		if len(k.peers) != 1 || len(k.routes) != 0 {
			t.Errorf("%d peers and %d routes are left, want one peer", len(k.peers), len(k.routes))
		}
		g.log.once(t, "changing the kernel failed", "broken")
		k.change(func(k *fakeKernel) { clear(k.broken) })
		pass(2 * maxRetry)
		check(t, k.complete())
		g.log.once(t, "everything is applied again")
	})
}

func TestAPeerThatCannotBeRemovedIsRetriedSoon(t *testing.T) {
	k := newFakeKernel()
	key := testKey(1)
	run(t, k, func(t *testing.T, g running) {
		k.shake(key)
		pass(reconcileInterval + 5*time.Second) // the next round of everything is far away
		k.change(func(k *fakeKernel) { k.broken["removal"] = peer.WGKex.LinkAddress(key) })
		g.Evict(testDomain, []peer.Key{key})
		synctest.Wait()
		k.change(func(k *fakeKernel) { clear(k.broken) })
		pass(time.Second)
		check(t, k.complete())
	})
}

func TestTheServerSeesSoonWhatItsEvictionsHaveDone(t *testing.T) {
	k := newFakeKernel()
	var keys []peer.Key
	for i := range 50 {
		keys = append(keys, testKey(i))
	}
	run(t, k, func(t *testing.T, g running) {
		k.shake(keys...)
		pass(testAgent.ReportInterval + time.Second)
		g.Handshakes(testDomain)
		if got := g.Report(testDomain).Connected; got != len(keys) {
			t.Fatalf("%d peers are connected at first", got)
		}
		counted := []int{}
		last := g.Report(testDomain).Counted
		for _, key := range keys[:40] { // for four seconds
			g.Evict(testDomain, []peer.Key{key})
			pass(100 * time.Millisecond)
			if r := g.Report(testDomain); !r.Counted.Equal(last) {
				last, counted = r.Counted, append(counted, r.Connected)
			}
		}
		if diff := cmp.Diff([]int{40, 30, 20, 10}, counted); diff != "" {
			t.Errorf("connected peers as they were counted (-want +got):\n%s", diff)
		}
		pass(countSoon)
		if got := g.Report(testDomain).Connected; got != 10 {
			t.Errorf("%d peers are connected a second after the last eviction, want 10", got)
		}
		if got := g.Handshakes(testDomain); len(got) != 40 || !got[0].Gone {
			t.Errorf("the server hears of %d handshakes, want 40 that are gone: %v", len(got), got)
		}
		if n := g.log.count("evicted peers"); n != 4 {
			t.Errorf("it is logged %d times, want once per second", n)
		}
		last = g.Report(testDomain).Counted
		pass(testAgent.ReportInterval - 2*countSoon)
		if !g.Report(testDomain).Counted.Equal(last) {
			t.Error("the reports that follow come more often than they have to")
		}
	})
}

func TestTheLogSaysHowManyPeersWereEvicted(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		k.shake(testKey(1), testKey(2), testKey(3))
		pass(reconcileInterval)
		g.Evict(testDomain, []peer.Key{testKey(1)})
		synctest.Wait()
		g.Evict(testDomain, []peer.Key{testKey(2), testKey(9)})
		pass(2 * countSoon)
		g.log.once(t, "evicted peers", "peers=2 left=1")
		g.Evict(testDomain, []peer.Key{testKey(9)})
		pass(2 * countSoon)
		g.log.once(t, "evicted peers")
	})
}

func TestAnEvictionInAnotherDomainIsIgnored(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		g.Add(testDomain, testKey(1), FromExchange)
		g.Evict("ffmuc_nowhere", []peer.Key{testKey(1)})
		synctest.Wait()
		check(t, k.complete(testKey(1)))
	})
}
