package endtoend_test

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"wgsteer/internal/lab"
)

func TestTheAgentStartsBeforeItsInterfacesAndTheServer(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	gw1 := m.gateway("gw1")
	agent := gw1.startAgent()
	m.eventually(logged(agent, `reason="wg-welt does not exist"`, `reason="wg-city does not exist"`, "cannot connect to the MQTT server"))

	// The interfaces of welt appear one after the other, as at boot.
	wg := must(gw1.WireGuard(m.ctx, welt.WireGuard))(t)
	address := m.scheme.LinkAddress(wg.Key())
	check(t, wg.Up(m.ctx, netip.PrefixFrom(address, 128)))
	m.eventually(logged(agent, `reason="vx-welt does not exist"`))
	server := m.startServer()
	m.eventually(logged(agent, "connected to the MQTT server"))
	m.eventually(logged(server, "worker online"))
	check(t, m.lacks(welt, city)())

	inner := must(gw1.VXLAN(m.ctx, lab.VXLAN{Name: welt.VXLAN, WireGuard: welt.WireGuard, VNI: welt.VNI, Local: address}))(t)
	m.eventually(m.lacks(city))
	gw1.addSegment(city)
	m.eventually(m.lacks())

	n := m.node("node1")
	endpoint := must(n.Exchange(m.ctx, m.url(), welt.name))(t)
	check(t, n.Connect(m.ctx, endpoint, welt.VNI))
	check(t, n.AwaitHandshake(m.ctx, wg.Key()))
	must(n.AwaitPing(m.ctx, inner))(t)

	// Each state was said once, however often it was found.
	check(t, logged(agent,
		`reason="wg-welt does not exist"`, `reason="vx-welt does not exist"`, `reason="wg-city does not exist"`,
		`msg="domain is offered" domain=ffmuc_welt`, `msg="domain is offered" domain=ffmuc_city`,
		"cannot connect to the MQTT server", "connected to the MQTT server")())
	check(t, logged(server, "worker online")())
}

func TestADomainIsOfferedOnlyWhileItsInterfacesAreComplete(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.startServer()
	m.eventually(m.lacks(welt, city))
	gw1 := m.gateway("gw1", welt, city)
	agent := gw1.startAgent()
	m.eventually(m.lacks())

	segment := gw1.segments[welt.name]
	address := segment.LinkAddress().String() + "/128"
	on := func(command string) func() error {
		return func() error { _, err := gw1.lines(command); return err }
	}
	steps := []struct {
		name   string
		lose   func() error
		reason string
		repair func() error
	}{
		{
			"the VXLAN interface is removed",
			func() error { return segment.StopVXLAN(m.ctx) },
			"vx-welt does not exist",
			func() error { return segment.StartVXLAN(m.ctx) },
		},
		{
			"both interfaces are removed",
			func() error { return segment.Stop(m.ctx) },
			"wg-welt does not exist",
			func() error { return segment.Start(m.ctx) },
		},
		{
			"the WireGuard interface is down", // and thereby loses its addresses
			on("ip link set wg-welt down"),
			"wg-welt is down",
			all(on("ip link set wg-welt up"), on("ip address add "+address+" dev wg-welt")),
		},
		{
			"the link-local address is removed",
			on("ip address del " + address + " dev wg-welt"),
			"wg-welt has no link-local address",
			on("ip address add " + address + " dev wg-welt"),
		},
		{
			"another interface has the name of the VXLAN interface",
			all(func() error { return segment.StopVXLAN(m.ctx) }, on("ip link add vx-welt type bridge")),
			"vx-welt is not a VXLAN interface",
			all(on("ip link del vx-welt"), func() error { return segment.StartVXLAN(m.ctx) }),
		},
	}
	for _, step := range steps {
		t.Log(step.name)
		before := len(agent.Log())
		check(t, step.lose())
		m.eventually(m.lacks(welt))
		m.eventually(func() error {
			if said := states(agent.Log()[before:], welt); !slices.Contains(said, step.reason) {
				return fmt.Errorf("the log says of welt only %q", said)
			}
			return nil
		})
		check(t, step.repair())
		m.eventually(m.lacks())
	}
	said := states(agent.Log(), welt)
	if once := slices.Compact(slices.Clone(said)); len(once) != len(said) {
		t.Errorf("a state that lasts is logged more than once: %q", said)
	}
	if said := states(agent.Log(), city); len(said) != 1 {
		t.Errorf("city, to which nothing happened, is logged as %q", said)
	}
}

var stateLine = regexp.MustCompile(`msg="domain is (not )?offered" domain=(\S+) (?:reason="([^"]*))?`)

// states are the states of a domain that an agent's log tells of: why it is not
// offered, or "offered".
func states(log string, d domain) []string {
	var states []string
	for _, match := range stateLine.FindAllStringSubmatch(log, -1) {
		if match[2] != d.name {
			continue
		}
		reason, _, _ := strings.Cut(match[3], ";")
		states = append(states, cmp.Or(reason, "offered"))
	}
	return states
}
