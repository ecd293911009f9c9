package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"wgsteer/internal/peer"
)

// Segment is a domain as the hosts of a lab set it up.
type Segment struct {
	// WireGuard and VXLAN are the interfaces on gateways.
	WireGuard, VXLAN string
	// VNI tells the segment's VXLAN from others', on gateways and nodes. The lab
	// has room for 16 bits of it.
	VNI uint32
	// Scheme is how link addresses follow from keys.
	Scheme peer.Scheme
}

// Gateway is one segment on a gateway host: the interfaces that an agent finds.
// What an agent adds, peers and routes and forwarding entries, is not there.
type Gateway struct {
	host    *Host
	segment Segment
	wg      *WireGuard
}

// Gateway sets up a segment on the host, with a new key.
func (h *Host) Gateway(ctx context.Context, s Segment) (*Gateway, error) {
	wg, err := h.WireGuard(ctx, s.WireGuard)
	if err != nil {
		return nil, err
	}
	g := &Gateway{host: h, segment: s, wg: wg}
	return g, g.bringUp(ctx)
}

// bringUp does all that comes after making the WireGuard interface.
func (g *Gateway) bringUp(ctx context.Context) error {
	// A /128 makes no route to the other link addresses, as a /64 would, so that
	// nothing in the lab works without the routes that the agent has to make.
	if err := g.wg.Up(ctx, netip.PrefixFrom(g.LinkAddress(), 128)); err != nil {
		return err
	}
	return g.StartVXLAN(ctx)
}

// WireGuard returns the gateway's WireGuard interface.
func (g *Gateway) WireGuard() *WireGuard { return g.wg }

// LinkAddress returns the gateway's link address.
func (g *Gateway) LinkAddress() netip.Addr { return g.segment.Scheme.LinkAddress(g.wg.Key()) }

// Inner returns the gateway's address inside of its tunnels.
func (g *Gateway) Inner() netip.Addr { return g.host.Inner(g.segment.VNI) }

// Endpoint returns how nodes reach the gateway: at its underlay address.
func (g *Gateway) Endpoint() Endpoint {
	return Endpoint{
		Address:    g.host.Addr().String(),
		Port:       strconv.Itoa(int(g.wg.Port())),
		AllowedIPs: []string{g.LinkAddress().String()},
		PublicKey:  g.wg.Key().String(),
	}
}

// Stop removes both interfaces.
func (g *Gateway) Stop(ctx context.Context) error { return g.wg.Stop(ctx) }

// Start makes both interfaces again after Stop, with the same key and port, and
// without any peer.
func (g *Gateway) Start(ctx context.Context) error {
	if err := g.wg.Start(ctx); err != nil {
		return err
	}
	return g.bringUp(ctx)
}

// StopVXLAN removes only the VXLAN interface.
func (g *Gateway) StopVXLAN(ctx context.Context) error {
	return ipBatch(ctx, g.host.namespace(), "link del "+g.segment.VXLAN)
}

// StartVXLAN makes the VXLAN interface again after StopVXLAN.
func (g *Gateway) StartVXLAN(ctx context.Context) error {
	_, err := g.host.VXLAN(ctx, VXLAN{
		Name: g.segment.VXLAN, WireGuard: g.segment.WireGuard, VNI: g.segment.VNI, Local: g.LinkAddress(),
	})
	return err
}

// AddNode does by hand what an agent does for a node's key.
func (g *Gateway) AddNode(ctx context.Context, key peer.Key) error {
	address := g.segment.Scheme.LinkAddress(key).String()
	if err := g.wg.Set(ctx, "peer", key.String(), "allowed-ips", address+"/128"); err != nil {
		return err
	}
	if err := ipBatch(ctx, g.host.namespace(),
		fmt.Sprintf("route replace %s/128 dev %s", address, g.segment.WireGuard)); err != nil {
		return err
	}
	_, err := g.host.Run(ctx, "bridge", "fdb", "append", "00:00:00:00:00:00",
		"dev", g.segment.VXLAN, "dst", address, "via", g.segment.WireGuard)
	return err
}

// Endpoint is how a node reaches a gateway, as the server's answer says it.
type Endpoint struct {
	Address    string
	Port       string
	AllowedIPs []string
	PublicKey  string
}

// HostPort is the endpoint as `wg set` takes it.
func (e Endpoint) HostPort() string { return net.JoinHostPort(e.Address, e.Port) }

// LinkAddress returns the gateway's link address.
func (e Endpoint) LinkAddress() (netip.Addr, error) {
	if len(e.AllowedIPs) == 0 {
		return netip.Addr{}, errors.New("the endpoint has no AllowedIPs")
	}
	address, err := netip.ParseAddr(e.AllowedIPs[0])
	if err != nil {
		return netip.Addr{}, fmt.Errorf("the endpoint's AllowedIPs: %w", err)
	}
	return address, nil
}

// Key returns the gateway's public key.
func (e Endpoint) Key() (peer.Key, error) {
	key, err := peer.ParseKey(e.PublicKey)
	if err != nil {
		return peer.Key{}, fmt.Errorf("the endpoint's PublicKey: %w", err)
	}
	return key, nil
}
