package endtoend_test

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wgsteer/internal/lab"
	"wgsteer/internal/peer"
)

func TestStalePeersAreSweptAndNothingElseIs(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "unshare", "mount")
	m.agent = "  sweep_interval: 1s\n  unused_after: 8s\n"
	gw1 := m.gateway("gw1", welt, city)
	gw1.addForeigners(welt)
	foreign := must(gw1.everything(welt))(t)
	m.startServer()
	order := gw1.watchOrder(welt)
	agent := order.relay.command(m.programs.agent, "--config", m.config(gw1.Host))
	m.start(gw1.Host, agent[0], agent[1:]...)
	m.eventually(m.lacks())

	n := m.node("node1")
	m.ask(n, welt)
	m.eventually(gw1.applied(welt, n.Key())) // a first handshake that is too early is repeated too late
	m.connect(n, gw1, welt)
	pings := m.ping(n, gw1, welt)
	stale := newKeys(5)
	check(t, m.choices(welt, stale, map[string]int{"gw1": len(stale)})())
	m.eventually(gw1.applied(welt, stale...))
	fresh := newKey() // its node never connects, but still asks
	m.eventually(all(m.choices(welt, []peer.Key{fresh}, map[string]int{"gw1": 1}), gw1.gone(welt, stale...)))
	for _, key := range stale {
		order.check(key)
	}

	check(t, gw1.applied(welt, fresh, n.Key())())
	pings.lostNone()
	left := slices.DeleteFunc(must(gw1.everything(welt))(t), func(line string) bool {
		return slices.ContainsFunc([]peer.Key{fresh, n.Key()}, func(key peer.Key) bool {
			return strings.Contains(line, key.String()) || strings.Contains(line, m.scheme.LinkAddress(key).String())
		})
	})
	if diff := cmp.Diff(foreign, left); diff != "" {
		t.Errorf("what is not ours (-before +after):\n%s", diff)
	}
}

// addForeigners adds peers, routes and FDB entries that an administrator could have made.
func (g *gateway) addForeigners(d domain) {
	t, segment := g.mesh.t, g.segments[d.name]
	elsewhere, more := newKey(), newKey()
	check(t, segment.WireGuard().Set(g.mesh.ctx,
		"peer", elsewhere.String(), "allowed-ips", "fe80::1234/128",
		"peer", more.String(), "allowed-ips", g.mesh.scheme.LinkAddress(more).String()+"/128,fd00:1::/64"))
	// Of the form that our link addresses have, and of another.
	likeOurs := g.mesh.scheme.LinkAddress(newKey()).String()
	for _, address := range []string{"fe80::1234", likeOurs} {
		g.mesh.run(g.Host, "ip", "-6", "route", "add", address+"/128", "dev", d.WireGuard, "proto", "static")
	}
	g.mesh.run(g.Host, "ip", "-6", "route", "add", "fd00:1::/64", "dev", d.WireGuard)
	for _, entry := range []string{
		"00:00:00:00:00:00 dst fe80::1234 via " + d.WireGuard,
		"02:00:00:00:12:34 dst fe80::1234 via " + d.WireGuard,
		"00:00:00:00:00:00 dst " + likeOurs + " via eth0",
	} {
		g.mesh.run(g.Host, "bridge", append([]string{"fdb", "append", "dev", d.VXLAN}, strings.Fields(entry)...)...)
	}
}

// everything returns all peers, routes and FDB entries of the domain, as lines.
func (g *gateway) everything(d domain) ([]string, error) {
	var lines []string
	for _, command := range []string{
		"wg show " + d.WireGuard + " allowed-ips", "ip -6 route show dev " + d.WireGuard, "bridge fdb show dev " + d.VXLAN,
	} {
		more, err := g.lines(command)
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

// order watches in which order an agent takes peers apart. The kernel tells of FDB
// entries and routes, in order. Nobody tells of WireGuard peers: what asks for their
// removal is held up on its way to the userspace WireGuard, and looked at. When the
// kernel has WireGuard, there is no such way, and peers are not watched.
type order struct {
	gateway *gateway
	domain  domain
	monitor *lab.Program
	relay   *relay

	mu sync.Mutex
	// left are the routes and FDB entries that were still there when a peer's removal
	// was asked for.
	left map[peer.Key][]string
}

func (g *gateway) watchOrder(d domain) *order {
	g.mesh.t.Helper()
	o := &order{gateway: g, domain: d, left: make(map[peer.Key][]string)}
	o.monitor = g.mesh.startUntilKilled(g.Host, "ip", "monitor", "neigh", "route")
	o.relay = g.relayWireGuard(o.inspect)
	return o
}

// inspect looks for what an operation would remove.
func (o *order) inspect(operation string) error {
	var last peer.Key
	for line := range strings.Lines(operation) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		switch name {
		case "public_key":
			if _, err := hex.Decode(last[:], []byte(value)); err != nil {
				return err
			}
		case "remove":
			if err := o.removes(last); err != nil {
				return err
			}
		}
	}
	return nil
}

func (o *order) removes(key peer.Key) error {
	address := o.gateway.mesh.scheme.LinkAddress(key).String()
	there, err := o.gateway.everything(o.domain)
	if err != nil {
		return err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.left[key] = slices.DeleteFunc(there, func(line string) bool {
		return !strings.Contains(line, address) || strings.Contains(line, key.String())
	})
	return nil
}

// check fails the test unless the key's FDB entry went first, then its route, then its peer.
func (o *order) check(key peer.Key) {
	t, address := o.gateway.mesh.t, o.gateway.mesh.scheme.LinkAddress(key).String()
	t.Helper()
	var removed []string
	o.gateway.mesh.eventually(func() error {
		removed = nil
		for _, line := range linesOf(o.monitor.Log()) {
			// Without a neighbour that the kernel forgets, which is nobody's entry.
			if strings.HasPrefix(line, "Deleted "+address+" ") && !strings.HasSuffix(line, " NOARP") {
				removed = append(removed, strings.Join(strings.Fields(line)[2:4], " "))
			}
		}
		if len(removed) < 2 {
			return fmt.Errorf("only %q were removed of %s", removed, address)
		}
		return nil
	})
	if diff := cmp.Diff([]string{"dev " + o.domain.VXLAN, "dev " + o.domain.WireGuard}, removed); diff != "" {
		t.Errorf("FDB entry and route of %s, as they were removed (-want +got):\n%s", address, diff)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	check(t, o.relay.err())
	if left, removed := o.left[key]; !o.gateway.mesh.lab.KernelWireGuard() && (!removed || len(left) > 0) {
		t.Errorf("removal of peer %v was seen: %v, and before it that of all but %q", key, removed, left)
	}
}
