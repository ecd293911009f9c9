package endtoend_test

import (
	"fmt"
	"testing"

	"wgsteer/internal/lab"
)

func TestAnEvictedNodeIsLetInAgainOnlyWhenItAsks(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "mosquitto_pub")
	m.agent = "  report_interval: 10s\n" // nothing below is prompt because of it
	gw1 := m.gateway("gw1", welt, city)
	m.startServer()
	gw1.startAgent()
	ear := m.listen()
	m.eventually(all(m.lacks(), ear.offers(gw1)))
	n, other := m.node("node1"), newKeys(2)
	const handshakes, peers = "wgsteer/ffmuc_welt/gw1/handshakes", "wireguard-metrics/ffmuc_welt/gw1/connected_peers"

	m.askAndConnect(n, gw1, welt)
	check(t, m.choices(welt, other[:1], map[string]int{"gw1": 1})())
	m.within(3*promptly, ear.says(handshakes, n.Key().String()))
	m.eventually(ear.says(peers, "1"))

	m.publish(m.central, "wgsteer/ffmuc_welt/gw1/evict", n.Key().String())
	m.within(2*promptly, all(gw1.gone(welt, n.Key()), ear.says(peers, "0"), ear.says(handshakes, "-"+n.Key().String())))

	// Neither a replay brings it back, nor a comparison of everything.
	m.publish(m.central, "wireguard/ffmuc_welt/gw1", n.Key().String())
	check(t, m.choices(welt, other[1:], map[string]int{"gw1": 1})())
	m.eventually(gw1.applied(welt, other...)) // what came before it has arrived, too
	m.run(gw1.Host, "ip", "-6", "route", "del", m.scheme.LinkAddress(other[0]).String(), "dev", welt.WireGuard)
	m.run(gw1.Host, "ip", "link", "set", welt.WireGuard, "alias", "makes the agent look")
	m.eventually(gw1.applied(welt, other...))
	check(t, gw1.gone(welt, n.Key())())

	m.askAndConnect(n, gw1, welt)
	m.within(3*promptly, ear.heardTimes(handshakes, n.Key().String(), 2))
	// A node that has changed its mind is reported again, though it never was gone.
	m.askAndConnect(n, gw1, welt)
	m.within(3*promptly, ear.heardTimes(handshakes, n.Key().String(), 3))
	check(t, ear.heardTimes(handshakes, "-"+n.Key().String(), 1)())
}

// askAndConnect gives the node a tunnel to the gateway, to which the server has to send it.
func (m *mesh) askAndConnect(n *lab.Node, g *gateway, d domain) {
	m.t.Helper()
	if to := m.ask(n, d); to != g {
		m.t.Fatalf("the node is sent to %s", to.Name())
	}
	m.eventually(g.applied(d, n.Key())) // a first handshake that is too early is repeated too late
	m.connect(n, g, d)
}

// heardTimes returns an attempt that succeeds when this was published so many times.
func (e *ear) heardTimes(topic, payload string, times int) func() error {
	return func() error {
		heard := 0
		for _, line := range e.heard() {
			if line == topic+" "+payload {
				heard++
			}
		}
		if heard != times {
			return fmt.Errorf("%s %s was published %d times, want %d", topic, payload, heard, times)
		}
		return nil
	}
}
