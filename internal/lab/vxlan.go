package lab

import (
	"context"
	"fmt"
	"net"
	"net/netip"
)

// vxlanPort is the UDP port of VXLAN that Gluon uses, Linux's old default.
const vxlanPort = 8472

// inner6 is the network inside of all tunnels of a VNI, which is added to it.
var inner6 = netip.MustParsePrefix("fdc4:7767:7374::/48")

// VXLAN is a VXLAN interface over a WireGuard one.
type VXLAN struct {
	Name string
	// WireGuard is the name of the interface that carries it.
	WireGuard string
	VNI       uint32
	// Local is the host's own link address.
	Local netip.Addr
	// Remote is the gateway's link address, for a node. A gateway has none: it
	// has a list of its nodes in the forwarding table.
	Remote netip.Addr
}

// VXLAN makes a VXLAN interface, brings it up and gives it an address of the
// network inside of the tunnels, which it returns.
func (h *Host) VXLAN(ctx context.Context, v VXLAN) (netip.Addr, error) {
	remote := ""
	if v.Remote.IsValid() {
		remote = "remote " + v.Remote.String()
	}
	inner := h.Inner(v.VNI)
	err := ipBatch(ctx, h.namespace(),
		fmt.Sprintf("link add %s type vxlan id %d local %s %s dstport %d dev %s", v.Name, v.VNI, v.Local, remote, vxlanPort, v.WireGuard),
		fmt.Sprintf("link set %s up", v.Name),
		fmt.Sprintf("address add %s/64 dev %s", inner, v.Name))
	if err != nil {
		return netip.Addr{}, fmt.Errorf("make VXLAN interface %s on host %s: %w", v.Name, h.name, err)
	}
	return inner, nil
}

// Inner returns the address that the host has inside of the tunnels of a VNI.
func (h *Host) Inner(vni uint32) netip.Addr {
	b := inner6.Addr().As16()
	// VNIs have 24 bits, the subnet has 16: the labs' VNIs are small.
	b[6], b[7] = byte(vni>>8), byte(vni)
	return withNumber(netip.PrefixFrom(netip.AddrFrom16(b), 64), h.number)
}

// dialSocket tells whether somebody listens on a unix socket.
func dialSocket(path string) error {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	return conn.Close()
}
