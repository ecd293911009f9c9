package gateway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"wgsteer/internal/config"
	"wgsteer/internal/peer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAKeyBecomesPeerRouteAndFDBEntryAtOnce(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		g.Add(testDomain, testKey(1), FromExchange)
		synctest.Wait()
		check(t, k.complete(testKey(1)))
		g.Add(testDomain, testKey(1), FromExchange)
		synctest.Wait()
		check(t, k.complete(testKey(1)))
	})
}

func TestKeysThatArriveDuringABatchAreTheNextBatch(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		k.block = make(chan struct{})
		keys := []peer.Key{testKey(0)}
		g.Add(testDomain, keys[0], FromExchange)
		synctest.Wait()
		for i := 1; i < 2000; i++ { // none of these waits for the batch, which is blocked
			keys = append(keys, testKey(i))
			g.Add(testDomain, keys[i], FromExchange)
		}
		close(k.block)
		synctest.Wait()
		want := []string{ // all but the gateway's own
			"add entries 1", "add entries 1998", "add routes 1", "add routes 1998", "set peers 1", "set peers 1998",
		}
		if diff := cmp.Diff(want, slices.Sorted(slices.Values(k.made()))); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
	})
}

func TestKeysThatMustNotBeAppliedAreRefused(t *testing.T) {
	foreign, claimed, atGateway, good := testKey(1), testKey(2), testKey(3), testKey(4)
	tests := map[string]struct {
		key    peer.Key
		reason string
	}{
		"the gateway's own key":                    {ownPublicKey, string(ownKey)},
		"the key of a foreign peer":                {foreign, string(foreignPeer)},
		"an address that a foreign peer has":       {claimed, string(takenAddress)},
		"an address that the gateway has":          {atGateway, string(takenAddress)},
		"the zero key, which has no effect at all": {peer.Key{}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			k := newFakeKernel()
			k.links.Addresses = append(k.links.Addresses, Address{IP: peer.WGKex.LinkAddress(atGateway)})
			k.addPeer(foreign, time.Time{}, netip.MustParseAddr("fd00::1"), peer.WGKex.LinkAddress(claimed))
			before := k.peers[foreign]
			run(t, k, func(t *testing.T, g running) {
				g.Add(testDomain, test.key, FromExchange)
				g.Add(testDomain, test.key, FromExchange)
				g.Add(testDomain, good, FromExchange)
				pass(reconcileInterval)
				g.Add(testDomain, test.key, FromExchange)
				synctest.Wait()
				if diff := cmp.Diff(before, k.peers[foreign], cmp.Comparer(samePrefix)); diff != "" {
					t.Errorf("the foreign peer changed (-want +got):\n%s", diff)
				}
				delete(k.peers, foreign)
				check(t, k.complete(good))
				if test.reason != "" {
					g.log.once(t, "key refused", test.key.String(), test.reason)
				}
			})
		})
	}
}

func samePrefix(a, b netip.Prefix) bool { return a == b }

func TestAFailureHoldsUpNoOtherKeyAndIsRetried(t *testing.T) {
	for _, kind := range []string{"peer", "route", "entry"} {
		t.Run(kind, func(t *testing.T) {
			k := newFakeKernel()
			bad, good := testKey(1), testKey(2)
			k.broken[kind] = peer.WGKex.LinkAddress(bad)
			run(t, k, func(t *testing.T, g running) {
				g.Add(testDomain, bad, FromExchange)
				g.Add(testDomain, good, FromExchange)
				synctest.Wait()
				k.made()
				pass(2 * time.Minute)
				if err := k.complete(good); err == nil {
					t.Error("nothing failed")
				}
				if _, there := k.routes[peer.WGKex.LinkAddress(good)]; !there {
					t.Error("the good key was held up")
				}
				if n := k.tries(kind); n < 4 || n > 20 {
					t.Errorf("%d retries in two minutes, want a few", n)
				}
				g.log.once(t, "changing the kernel failed", "broken")
				k.change(func(k *fakeKernel) { clear(k.broken) })
				pass(2 * maxRetry)
				check(t, k.complete(bad, good))
				g.log.once(t, "everything is applied again")
			})
		})
	}
}

// tries returns how many calls of a kind were made.
func (k *fakeKernel) tries(kind string) int {
	call := map[string]string{"peer": "set peers 1", "route": "add routes 1", "entry": "add entries 1"}[kind]
	n := 0
	for _, made := range k.made() {
		if made == call {
			n++
		}
	}
	return n
}

func TestAKeyThatFailedIsRetriedSoon(t *testing.T) {
	k := newFakeKernel()
	key := testKey(1)
	k.broken["entry"] = peer.WGKex.LinkAddress(key)
	run(t, k, func(t *testing.T, g running) {
		pass(5 * time.Second) // the next round of everything is far away
		g.Add(testDomain, key, FromExchange)
		synctest.Wait()
		k.change(func(k *fakeKernel) { clear(k.broken) })
		pass(time.Second)
		check(t, k.complete(key))
	})
}

func TestPeersThatAreThereAreAdoptedAndCompleted(t *testing.T) {
	k := newFakeKernel()
	ours, other := testKey(1), testKey(2)
	k.addPeer(ours, time.Time{}, peer.WGKex.LinkAddress(ours))
	k.addPeer(other, time.Time{}, peer.Gluon.LinkAddress(other))
	old := peer.Gluon.LinkAddress(other)
	k.routes[old] = Route{To: old} // as wgkex left it
	k.entries[Entry{To: old, Via: wgIndex}] = true
	run(t, k, func(t *testing.T, g running) {
		check(t, k.complete(ours, other))
	})
}

func TestAPeerOfTheOtherSchemeIsMovedWhenItsKeyArrives(t *testing.T) {
	k := newFakeKernel()
	key := testKey(1)
	run(t, k, func(t *testing.T, g running) {
		pass(time.Second)
		k.addPeer(key, time.Time{}, peer.Gluon.LinkAddress(key))
		g.Add(testDomain, key, FromExchange)
		pass(time.Second)
		check(t, k.complete(key))
	})
}

func TestWhatSomebodyDeletesComesBack(t *testing.T) {
	key := testKey(1)
	address := peer.WGKex.LinkAddress(key)
	for name, remove := range map[string]func(k *fakeKernel){
		"peer":      func(k *fakeKernel) { clear(k.peers) },
		"route":     func(k *fakeKernel) { clear(k.routes) },
		"FDB entry": func(k *fakeKernel) { clear(k.entries) },
		"FDB entry's interface": func(k *fakeKernel) {
			clear(k.entries)
			k.entries[Entry{To: address, Via: 3, Lost: true}] = true
		},
		"all but what is lost": func(k *fakeKernel) { k.entries[Entry{To: address, Via: 3, Lost: true}] = true },
	} {
		t.Run(name, func(t *testing.T) {
			k := newFakeKernel()
			run(t, k, func(t *testing.T, g running) {
				g.Add(testDomain, key, FromExchange)
				synctest.Wait()
				k.change(remove)
				pass(29 * time.Second) // 30 are promised, and putting it back takes time
				check(t, k.complete(key))
			})
		})
	}
}

func TestAnInterfaceThatComesBackIsFilledWithin2s(t *testing.T) {
	for name, event := range map[string]Change{
		"by name":    {Name: "wg-welt", Index: 21},
		"the VXLAN":  {Name: "vx-welt", Index: 22},
		"by overrun": {},
	} {
		t.Run(name, func(t *testing.T) {
			k := newFakeKernel()
			keys := []peer.Key{testKey(1), testKey(2)}
			run(t, k, func(t *testing.T, g running) {
				g.Add(testDomain, keys[0], FromExchange)
				synctest.Wait()
				k.change(func(k *fakeKernel) {
					k.links = Links{}
					clear(k.peers)
					clear(k.routes)
					clear(k.entries)
				})
				k.event(event)
				pass(2 * time.Hour) // long enough for retries to be rare
				if g.Report(testDomain).Offered {
					t.Error("the domain is offered without interfaces")
				}
				g.Add(testDomain, keys[1], FromExchange)
				k.change(func(k *fakeKernel) {
					k.links = Links{WireGuard: 21, VXLAN: 22, Up: true, IsVXLAN: true, Addresses: []Address{{IP: ownAddress}}}
				})
				for range 5 {
					k.event(event)
					pass(100 * time.Millisecond)
				}
				pass(time.Second)
				check(t, k.complete(keys...))
				if !g.Report(testDomain).Offered {
					t.Error("the domain is not offered")
				}
			})
		})
	}
}

func TestEventsOfOtherInterfacesAreNotOurs(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		pass(time.Second)
		k.change(func(k *fakeKernel) { k.links.Up = false })
		k.event(Change{Name: "docker0", Index: 99})
		k.event(Change{Index: 99})
		pass(time.Second)
		if !g.Report(testDomain).Offered {
			t.Error("an event of another interface made the gateway look")
		}
		k.event(Change{Index: vxIndex})
		pass(time.Second)
		if g.Report(testDomain).Offered {
			t.Error("an address event of our interface did not make the gateway look")
		}
	})
}

func TestAnEventThatWasMissedMakesItLook(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		pass(time.Second)
		k.change(func(k *fakeKernel) { k.links.Up = false })
		k.event(Change{})
		pass(time.Second)
		if g.Report(testDomain).Offered {
			t.Error("it did not look")
		}
	})
}

func TestAFailedDumpChangesNothingAndIsRetried(t *testing.T) {
	k := newFakeKernel()
	k.dumpErr = errors.New("dump broken")
	k.addPeer(testKey(1), time.Time{}, peer.WGKex.LinkAddress(testKey(1)))
	run(t, k, func(t *testing.T, g running) {
		pass(time.Minute)
		if made := k.made(); made != nil {
			t.Errorf("changes on half a picture: %v", made)
		}
		g.log.once(t, "dump broken")
		k.change(func(k *fakeKernel) { k.dumpErr = nil })
		pass(2 * maxRetry)
		check(t, k.complete(testKey(1)))
	})
}

// The goroutine that sweeps may be busy for seconds: what came in meanwhile is news.
func TestTheSweepLeavesAPeerWhoseNodeHasJustAsked(t *testing.T) {
	now, stale, asked := time.Now(), testKey(1), testKey(2)
	k := newFakeKernel()
	for _, key := range []peer.Key{stale, asked} {
		k.addPeer(key, now.Add(-testAgent.StaleAfter), peer.WGKex.LinkAddress(key))
	}
	d := newDomain(config.Domain{Name: testDomain, WireGuard: "wg-welt", VXLAN: "vx-welt"}, testAgent, k,
		func() {}, func() {}, slog.New(slog.DiscardHandler))
	d.reconcile(now)
	d.add(asked, FromExchange)
	d.sweep(now)
	k.change(func(k *fakeKernel) {
		if _, there := k.peers[stale]; there {
			t.Error("the stale peer is still there")
		}
		if _, there := k.peers[asked]; !there {
			t.Error("the peer whose node has asked is gone")
		}
	})
}

func TestTheSweepRemovesStalePeersInOrder(t *testing.T) {
	k := newFakeKernel()
	stale, fresh, foreign := testKey(1), testKey(2), testKey(3)
	run(t, k, func(t *testing.T, g running) {
		now := time.Now()
		k.addPeer(stale, now.Add(-testAgent.StaleAfter), peer.WGKex.LinkAddress(stale))
		k.addPeer(fresh, now.Add(testAgent.SweepInterval-time.Minute), peer.WGKex.LinkAddress(fresh))
		pass(reconcileInterval)
		check(t, k.complete(stale, fresh))
		k.change(func(k *fakeKernel) { // as wgkex made it
			k.routes[peer.WGKex.LinkAddress(stale)] = Route{To: peer.WGKex.LinkAddress(stale)}
		})
		k.addPeer(foreign, now.Add(-100*time.Hour), netip.MustParseAddr("fd00::1"))
		k.made()
		pass(testAgent.SweepInterval)
		delete(k.peers, foreign)
		check(t, k.complete(fresh))
		want := []string{"remove entries 1", "remove routes 1", "remove peers 1"}
		if diff := cmp.Diff(want, k.made()); diff != "" {
			t.Errorf("calls (-want +got):\n%s", diff)
		}
		pass(reconcileInterval)
		check(t, k.complete(fresh))
	})
}

func TestAKeyThatIsReceivedAgainIsNotSwept(t *testing.T) {
	k := newFakeKernel()
	again, once := testKey(1), testKey(2)
	run(t, k, func(t *testing.T, g running) {
		g.Add(testDomain, again, FromExchange)
		g.Add(testDomain, once, FromExchange)
		pass(testAgent.SweepInterval - testAgent.UnusedAfter)
		g.Add(testDomain, again, FromExchange)
		pass(testAgent.UnusedAfter)
		check(t, k.complete(again))
	})
}

func TestAPeerThatHadToBePutBackHasItsTimeToConnect(t *testing.T) {
	k := newFakeKernel()
	key := testKey(1)
	run(t, k, func(t *testing.T, g running) {
		g.Add(testDomain, key, FromExchange)
		pass(testAgent.SweepInterval - time.Minute)
		k.change(func(k *fakeKernel) { clear(k.peers) }) // as by a restart of the interface
		pass(2 * time.Minute)
		check(t, k.complete(key))
		pass(testAgent.SweepInterval)
		check(t, k.complete())
	})
}

func TestKeysOfADomainThatIsNeverSetUpDoNotPileUp(t *testing.T) {
	k := newFakeKernel()
	k.links = Links{}
	run(t, k, func(t *testing.T, g running) {
		for i := range 24 {
			for j := range 100 {
				g.Add(testDomain, testKey(100*i+j), FromExchange)
			}
			pass(time.Hour)
		}
		d := g.domains[testDomain]
		if n := len(d.desired) + len(d.pending); n > 400 {
			t.Errorf("%d keys are kept of those of the last day, want those of the last %v", n, testAgent.StaleAfter)
		}
		if n := len(d.handshakes.asked); n > 200 {
			t.Errorf("the handshakes of %d nodes are awaited, want those of the last %v", n, handshakeInterval)
		}
	})
}

func TestReportsAreCountedPerInterval(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		<-g.Changed()
		first := g.Report(testDomain)
		if !first.Offered || first.Connected != 0 {
			t.Errorf("first report %+v", first)
		}
		k.addPeer(testKey(1), time.Now(), peer.WGKex.LinkAddress(testKey(1)))
		pass(testAgent.ReportInterval - time.Second)
		if diff := cmp.Diff(first, g.Report(testDomain), cmp.Comparer(sameAddr)); diff != "" {
			t.Errorf("changed before the interval (-want +got):\n%s", diff)
		}
		pass(time.Second)
		<-g.Changed()
		if got := g.Report(testDomain); got.Connected != 1 || !got.Counted.Equal(first.Counted.Add(testAgent.ReportInterval)) {
			t.Errorf("second report %+v", got)
		}
		k.change(func(k *fakeKernel) { k.links.VXLAN = 0 })
		k.event(Change{Name: "vx-welt"})
		pass(time.Second)
		<-g.Changed()
		if got := g.Report(testDomain); got != (Report{}) {
			t.Errorf("report without VXLAN: %+v", got)
		}
	})
}

func sameAddr(a, b netip.Addr) bool { return a == b }

func TestEachReasonNotToOfferIsSaidOnceInWords(t *testing.T) {
	tests := []struct {
		change func(k *fakeKernel)
		want   string
	}{
		{func(k *fakeKernel) { k.links.WireGuard = 0 }, "wg-welt does not exist"},
		{func(k *fakeKernel) { k.links.VXLAN = 0 }, "vx-welt does not exist"},
		{func(k *fakeKernel) { k.links.IsVXLAN = false }, "vx-welt is not a VXLAN interface"},
		{func(k *fakeKernel) { k.links.Up = false }, "wg-welt is down"},
		{func(k *fakeKernel) { k.noWG = true }, "wg-welt is not a WireGuard interface"},
		{func(k *fakeKernel) { k.device.PublicKey = peer.Key{} }, "wg-welt has no private key"},
		{func(k *fakeKernel) { k.device.Port = 0 }, "wg-welt has no listen port"},
		{
			func(k *fakeKernel) {
				k.links.Addresses[0] = Address{IP: netip.MustParseAddr("fe80::1"), ByKernel: true}
			},
			fmt.Sprintf("wg-welt has no link-local address; set one: ip address add %v/128 dev wg-welt", ownAddress),
		},
	}
	for _, test := range tests {
		t.Run(test.want, func(t *testing.T) {
			k := newFakeKernel()
			run(t, k, func(t *testing.T, g running) {
				g.log.once(t, "domain is offered")
				good, goodDevice, address := k.links, k.device, k.links.Addresses[0]
				k.change(test.change)
				pass(5 * time.Minute)
				g.log.once(t, "domain is not offered", test.want)
				if got := g.Report(testDomain); got.Offered {
					t.Errorf("offered: %+v", got)
				}
				k.change(func(k *fakeKernel) {
					k.links, k.device, k.noWG = good, goodDevice, false
					k.links.Addresses = []Address{address}
				})
				pass(maxRetry * 2)
				if n := g.log.count("domain is offered"); n != 2 {
					t.Errorf("its return is said %d times", n-1)
				}
				if got := g.Report(testDomain); !got.Offered {
					t.Errorf("not offered again: %+v", got)
				}
			})
		})
	}
}

func TestADomainIsOfferedSoonAfterItsPortIsChosen(t *testing.T) {
	k := newFakeKernel()
	k.device.Port = 0 // as userspace WireGuard has it for a moment
	run(t, k, func(t *testing.T, g running) {
		pass(100 * time.Millisecond)
		k.change(func(k *fakeKernel) { k.device.Port = 40011 })
		pass(time.Second)
		if got := g.Report(testDomain); !got.Offered {
			t.Error("not offered a second later")
		}
	})
}

func TestAChangeOfDataIsReported(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		<-g.Changed()
		k.change(func(k *fakeKernel) { k.device.Port = 40999 })
		pass(reconcileInterval)
		<-g.Changed()
		if got := g.Report(testDomain).Data.Port; got != 40999 {
			t.Errorf("port %d", got)
		}
	})
}

func TestItHasLookedWhenTheFirstReportIsThere(t *testing.T) {
	run(t, newFakeKernel(), func(t *testing.T, g running) {
		select {
		case <-g.Looked():
		default:
			t.Error("it has not looked after its first look")
		}
		if !g.Report(testDomain).Offered {
			t.Error("it has looked, and the report offers nothing")
		}
	})
}
