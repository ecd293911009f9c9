package main_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"wgsteer/internal/lab"
	"wgsteer/internal/peer"
)

func dataOf(g *lab.Gateway) string {
	return fmt.Sprintf(`{"ExternalAddress":"gw04.ext.ffmuc.net","Port":%s,"PublicKey":"%v","LinkAddress":"%v"}`,
		g.Endpoint().Port, g.Endpoint().PublicKey, g.LinkAddress())
}

func TestAKeyBecomesPeerRouteAndFDBEntry(t *testing.T) {
	s := newSite(t)
	must(s.gateway.Gateway(s.ctx, welt))(t)
	must(s.gateway.Gateway(s.ctx, city))(t)
	s.startBroker()
	o := s.observe()
	s.startAgent()
	s.eventually(func() error { return o.says("wireguard-worker/gw1/status", "1") })

	forAll, forUs, forBoth, forOther := newKey(), newKey(), newKey(), newKey()
	o.publish("wireguard/ffmuc_welt/other", forOther.String())
	o.publish("wireguard/ffmuc_welt/all", forAll.String())
	o.publish("wireguard/ffmuc_welt/gw1", forUs.String())
	o.publish("wireguard/ffmuc_welt/all", forBoth.String())
	o.publish("wireguard/ffmuc_city/all", forBoth.String())
	o.publish("wireguard/ffmuc_welt/all", "not a key")
	for _, key := range []peer.Key{forAll, forUs, forBoth} {
		s.eventually(func() error { return s.hasAll(welt, key) })
	}
	s.eventually(func() error { return s.hasAll(city, forBoth) })
	check(t, s.mentions(welt, welt.Scheme.LinkAddress(forOther)))
}

func TestTheAgentStartsBeforeEverythingElse(t *testing.T) {
	s := newSite(t)
	agent := s.startAgent()
	logged := func(texts ...string) func() error {
		return func() error {
			for _, text := range texts {
				if n := strings.Count(agent.Log(), text); n != 1 {
					return fmt.Errorf("the log says %q %d times", text, n)
				}
			}
			return nil
		}
	}
	s.eventually(logged("wg-welt does not exist", "wg-city does not exist", "cannot connect to the MQTT server"))
	g := must(s.gateway.Gateway(s.ctx, welt))(t)
	s.eventually(logged(`msg="domain is offered"`))
	broker := s.startBroker()
	o := s.observe()
	s.eventually(func() error { return o.says("wireguard-worker/gw1/ffmuc_welt/data", dataOf(g)) })
	s.eventually(func() error { return o.says("wireguard-metrics/ffmuc_welt/gw1/connected_peers", "0") })
	s.eventually(func() error { return o.says("wireguard-metrics/ffmuc_city/gw1/connected_peers", "-1") })
	s.eventually(func() error { return o.says("wireguard-worker/gw1/status", "1") })

	check(t, broker.Stop(s.ctx))
	s.startBroker()
	again := s.observe()
	s.eventually(func() error { return again.says("wireguard-worker/gw1/status", "1") })
	check(t, again.says("wireguard-worker/gw1/ffmuc_welt/data", dataOf(g)))

	c := must(s.gateway.Gateway(s.ctx, city))(t)
	s.eventually(func() error { return again.says("wireguard-worker/gw1/ffmuc_city/data", dataOf(c)) })
	s.eventually(func() error { return again.says("wireguard-metrics/ffmuc_city/gw1/connected_peers", "0") })
	check(t, logged("wg-welt does not exist", "wg-city does not exist", "lost the connection")())
}

func TestPeersThatAreThereAreAdopted(t *testing.T) {
	s := newSite(t)
	g := must(s.gateway.Gateway(s.ctx, welt))(t)
	ours, otherScheme, foreign := newKey(), newKey(), newKey()
	check(t, g.WireGuard().Set(s.ctx, "peer", ours.String(), "allowed-ips", peer.WGKex.LinkAddress(ours).String()+"/128",
		"peer", otherScheme.String(), "allowed-ips", peer.Gluon.LinkAddress(otherScheme).String()+"/128",
		"peer", foreign.String(), "allowed-ips", peer.WGKex.LinkAddress(foreign).String()+"/128,fd00::1/128"))
	s.show("ip route add " + peer.Gluon.LinkAddress(otherScheme).String() + " dev wg-welt proto static")
	before := s.show("wg show wg-welt allowed-ips")

	s.startAgent()
	s.eventually(func() error { return s.hasAll(welt, ours) })
	s.eventually(func() error { return s.hasAll(welt, otherScheme) })
	s.eventually(func() error { return s.mentions(welt, peer.Gluon.LinkAddress(otherScheme)) })
	line := fmt.Sprintf("%v\t", foreign)
	_, was, _ := strings.Cut(before, line)
	_, is, _ := strings.Cut(s.show("wg show wg-welt allowed-ips"), line)
	if diff := cmp.Diff(firstLine(was), firstLine(is)); diff != "" {
		t.Errorf("the foreign peer changed:\n%s", diff)
	}
	if routes := s.show("ip -6 route show proto 119"); strings.Contains(routes, peer.WGKex.LinkAddress(foreign).String()) {
		t.Errorf("the foreign peer has a route of ours:\n%s", routes)
	}
}

func firstLine(text string) string { line, _, _ := strings.Cut(text, "\n"); return line }

func TestAnInterfaceThatComesBackIsFilledAgain(t *testing.T) {
	s := newSite(t)
	g := must(s.gateway.Gateway(s.ctx, welt))(t)
	s.startBroker()
	o := s.observe()
	s.startAgent()
	s.eventually(func() error { return o.says("wireguard-worker/gw1/status", "1") })
	key := newKey()
	o.publish("wireguard/ffmuc_welt/all", key.String())
	s.eventually(func() error { return s.hasAll(welt, key) })

	for name, restart := range map[string]func(){
		"both": func() {
			check(t, g.Stop(s.ctx))
			s.eventually(func() error { return o.says("wireguard-metrics/ffmuc_welt/gw1/connected_peers", "-1") })
			check(t, g.Start(s.ctx))
		},
		"crash": func() { check(t, g.WireGuard().Kill(s.ctx)); check(t, g.Start(s.ctx)) },
		"vxlan": func() { check(t, g.StopVXLAN(s.ctx)); check(t, g.StartVXLAN(s.ctx)) },
	} {
		restart()
		back := time.Now()
		s.within(2*time.Second, func() error { return s.hasAll(welt, key) })
		t.Logf("%s: filled %v after it was back", name, time.Since(back))
		s.eventually(func() error { return o.says("wireguard-metrics/ffmuc_welt/gw1/connected_peers", "0") })
	}
}

func TestDataIsPublishedAgainWhenItChanges(t *testing.T) {
	s := newSite(t)
	g := must(s.gateway.Gateway(s.ctx, welt))(t)
	s.startBroker()
	o := s.observe()
	s.startAgent()
	s.eventually(func() error { return o.says("wireguard-worker/gw1/ffmuc_welt/data", dataOf(g)) })
	check(t, g.WireGuard().Set(s.ctx, "listen-port", "40999"))
	want := strings.Replace(dataOf(g), g.Endpoint().Port, "40999", 1)
	s.eventually(func() error { return o.says("wireguard-worker/gw1/ffmuc_welt/data", want) })
}

func TestOnSIGTERMTheAgentTakesItselfOffline(t *testing.T) {
	s := newSite(t)
	must(s.gateway.Gateway(s.ctx, welt))(t)
	s.startBroker()
	o := s.observe()
	agent := s.startAgent()
	s.eventually(func() error { return o.says("wireguard-worker/gw1/status", "1") })
	key := newKey()
	o.publish("wireguard/ffmuc_welt/all", key.String())
	s.eventually(func() error { return s.hasAll(welt, key) })

	start := time.Now()
	check(t, agent.Stop(s.ctx))
	if took := time.Since(start); took > time.Second {
		t.Errorf("stopped after %v", took)
	}
	seen := o.history()
	want := []string{"wireguard-metrics/ffmuc_welt/gw1/connected_peers -1", "wireguard-worker/gw1/status 0"}
	if diff := cmp.Diff(want, seen[max(0, len(seen)-2):]); diff != "" {
		t.Errorf("last words (-want +got):\n%s", diff)
	}
	check(t, s.hasAll(welt, key))
}

func TestOnSIGTERMTheAgentDoesNotWaitForADeadNetwork(t *testing.T) {
	s := newSite(t)
	must(s.gateway.Gateway(s.ctx, welt))(t)
	s.startBroker()
	o := s.observe()
	agent := s.startAgent()
	s.eventually(func() error { return o.says("wireguard-worker/gw1/status", "1") })
	check(t, s.gateway.Unplug(s.ctx))
	start := time.Now()
	check(t, agent.Stop(s.ctx))
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("stopped after %v", took)
	}
}

func TestAStalePeerIsSweptAndAFreshOneIsNot(t *testing.T) {
	s := newSite(t)
	must(s.gateway.Gateway(s.ctx, welt))(t)
	s.startBroker()
	o := s.observe()
	s.startAgent("sweep_interval: 1s", "unused_after: 3s")
	s.eventually(func() error { return o.says("wireguard-worker/gw1/status", "1") })
	stale, fresh := newKey(), newKey()
	o.publish("wireguard/ffmuc_welt/all", stale.String())
	s.eventually(func() error { return s.hasAll(welt, stale) })
	s.eventually(func() error {
		o.publish("wireguard/ffmuc_welt/all", fresh.String()) // its node asks again and again
		return s.mentions(welt, welt.Scheme.LinkAddress(stale))
	})
	check(t, s.hasAll(welt, fresh))
}
