package endtoend_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sync/errgroup"

	"wgsteer/internal/lab"
	"wgsteer/internal/peer"
)

// atOnce is how many nodes connect at the same time: each has a userspace WireGuard.
const atOnce = 4

func TestNodesOfBothVersionsGetTunnelsInTwoDomains(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	gw1, gw2 := m.gateway("gw1", welt, city), m.gateway("gw2", welt, city)
	m.startServer()
	gw1.startAgent()
	gw2.startAgent()
	ear := m.listen()
	m.eventually(all(ear.offers(gw1), ear.offers(gw2)))

	type tunnel struct {
		*lab.Node
		domain domain
		to     *gateway
	}
	var tunnels []tunnel
	// The second version of the API: the server chooses. Its choices follow from the
	// weights, 20 and 10, as no report comes in between.
	sent := make(map[string]int)
	for i := range 6 {
		n, d := m.node(fmt.Sprintf("node%d", i+1)), []domain{welt, city}[i%2]
		to := m.ask(n, d)
		sent[to.Name()]++
		tunnels = append(tunnels, tunnel{n, d, to})
	}
	if diff := cmp.Diff(map[string]int{"gw1": 4, "gw2": 2}, sent); diff != "" {
		t.Errorf("nodes sent to the gateways (-want +got):\n%s", diff)
	}
	// The first: the node takes a gateway from its own configuration.
	for _, old := range []struct {
		domain domain
		to     *gateway
	}{{welt, gw2}, {city, gw1}} {
		n := m.node("old-" + old.to.Name())
		status, body, err := n.Post(m.ctx, m.url(), "v1", old.domain.name)
		check(t, err)
		if want := `{"Message":"OK"}`; status != http.StatusOK || string(body) != want {
			t.Errorf("%s: the answer is %d %s, want 200 %s", n.Name(), status, body, want)
		}
		tunnels = append(tunnels, tunnel{n, old.domain, old.to})
	}

	var connecting errgroup.Group
	connecting.SetLimit(atOnce)
	for _, n := range tunnels {
		connecting.Go(func() error { return m.tryConnect(n.Node, n.to, n.domain) })
	}
	check(t, connecting.Wait())

	// A key is for all gateways of its domain, and for no other domain.
	for _, n := range tunnels {
		other := welt
		if n.domain == welt {
			other = city
		}
		for _, g := range m.gateways {
			check(t, all(g.applied(n.domain, n.Key()), g.gone(other, n.Key()))())
		}
	}
}

func TestAKeyBecomesOnePeerOneRouteAndOneFDBEntry(t *testing.T) {
	t.Parallel()
	for _, scheme := range peer.Schemes() {
		t.Run(scheme.String(), func(t *testing.T) {
			m := newMesh(t)
			m.scheme = scheme
			gw1 := m.gateway("gw1", welt, city)
			m.startServer()
			gw1.startAgent()
			m.eventually(m.lacks())
			n := m.node("node1")
			m.ask(n, welt)
			m.ask(n, welt) // as often as it likes
			m.connect(n, gw1, welt)

			address := n.LinkAddress()
			for command, want := range map[string][]string{
				"wg show wg-welt allowed-ips": {fmt.Sprintf("%v\t%v/128", n.Key(), address)},
				"ip -6 route show proto 119":  {fmt.Sprintf("%v dev wg-welt metric 1024 pref medium", address)},
				"bridge fdb show dev vx-welt": {fmt.Sprintf("00:00:00:00:00:00 dst %v via wg-welt self permanent", address)},
				"wg show wg-city allowed-ips": nil,
				"bridge fdb show dev vx-city": nil,
			} {
				got := must(gw1.lines(command))(t)
				// What the VXLAN interface has learned from the ping is not the agent's.
				got = slices.DeleteFunc(got, func(line string) bool { return strings.HasSuffix(line, " self") })
				if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", command, diff)
				}
			}
		})
	}
}

func TestAnInterfaceThatVanishesAndComesBackIsFilledAgain(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	gw1 := m.gateway("gw1", welt, city)
	segment := gw1.segments[welt.name]
	m.startServer()
	gw1.startAgent()
	m.eventually(m.lacks())
	n := m.node("node1")
	m.ask(n, welt)
	m.connect(n, gw1, welt)
	keys := append(newKeys(20), n.Key())
	m.eventually(m.choices(welt, keys, map[string]int{"gw1": len(keys)}))
	filled := gw1.applied(welt, keys...)
	m.eventually(filled)

	for _, tt := range []struct {
		name string
		stop func() error
		back func() error
	}{
		{"both", func() error { return segment.Stop(m.ctx) }, func() error { return segment.Start(m.ctx) }},
		{"both, after a crash", func() error { return segment.WireGuard().Kill(m.ctx) }, func() error { return segment.Start(m.ctx) }},
		{"the VXLAN interface", func() error { return segment.StopVXLAN(m.ctx) }, func() error { return segment.StartVXLAN(m.ctx) }},
	} {
		t.Log(tt.name)
		check(t, tt.stop())
		m.eventually(m.lacks(welt))
		check(t, tt.back())
		m.within(2*time.Second, filled)
		m.eventually(m.lacks())
		m.connect(n, gw1, welt)
	}
}
