package gateway

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"wgsteer/internal/peer"
)

// Kernel is what a gateway needs of the system that it runs on. Several domains use
// it at the same time.
//
// Methods that change something take many things at once, and one that fails does
// not hold up the others: they return nil when all went well, else one error (or nil)
// for each thing in its place. Adding what is there and removing what is gone are no
// errors.
type Kernel interface {
	// Links reads what there is of a domain's interfaces, by their names.
	Links(wireGuard, vxlan string) (Links, error)
	// Device reads a WireGuard interface. The error wraps ErrNoDevice when the
	// interface is not one.
	Device(wireGuard string) (Device, error)
	// Routes reads the routes to single addresses in the main table that leave by the interface.
	Routes(link int) ([]Route, error)
	// Entries reads the FDB entries of a VXLAN interface that flood to one address:
	// those of the all-zero MAC address, with the interface's own VNI and port.
	Entries(vxlan int) ([]Entry, error)

	// SetPeers adds peers, or gives those that are there the one allowed IP.
	SetPeers(wireGuard string, peers []NewPeer) []error
	RemovePeers(wireGuard string, keys []peer.Key) []error
	// AddRoutes adds routes with our protocol number. One that is there stays, whosever it is.
	AddRoutes(link int, to []netip.Addr) []error
	// RemoveRoutes removes the routes to these addresses over the interface: those
	// with our protocol number, or any for a Route that is not Ours.
	RemoveRoutes(link int, routes []Route) []error
	AddEntries(vxlan int, entries []Entry) []error
	RemoveEntries(vxlan int, entries []Entry) []error

	// Watch calls changed, which must not block, whenever interfaces or addresses
	// change, until ctx is done.
	Watch(ctx context.Context, changed func(Change)) error
}

// ErrNoDevice says that an interface is not a WireGuard interface, or (with userspace
// WireGuard) not one yet.
var ErrNoDevice = errors.New("not a WireGuard interface")

// Links are the interfaces of a domain.
type Links struct {
	// WireGuard and VXLAN are interface indexes; zero: no such interface.
	WireGuard, VXLAN int
	// Up tells whether the WireGuard interface is up.
	Up bool
	// IsVXLAN tells whether the interface that should be the VXLAN interface is one.
	IsVXLAN bool
	// Addresses are the IPv6 link-local addresses of the WireGuard interface that can be used now.
	Addresses []Address
}

// Address is an address of an interface.
type Address struct {
	IP netip.Addr
	// ByKernel tells whether the kernel made the address up by itself.
	ByKernel bool
}

// Device is a WireGuard interface.
type Device struct {
	// PublicKey is zero when the interface has no private key.
	PublicKey peer.Key
	// Port is the UDP port it listens on; zero: none.
	Port  uint16
	Peers []Peer
}

// Peer is a peer of a WireGuard interface.
type Peer struct {
	Key        peer.Key
	AllowedIPs []netip.Prefix
	// LastHandshake is zero when there was none.
	LastHandshake time.Time
}

// NewPeer is a peer as it should be: reachable at Address and nowhere else.
type NewPeer struct {
	Key     peer.Key
	Address netip.Addr
}

// Route is a route to a single address over a WireGuard interface.
type Route struct {
	To netip.Addr
	// Ours tells whether it has our protocol number.
	Ours bool
}

// Entry is an FDB entry that makes a VXLAN interface flood to an address as well.
type Entry struct {
	To netip.Addr
	// Via is the index of the interface that it sends over; zero: left to the routing.
	Via int
	// Lost tells whether the interface Via no longer exists. Removing such an entry
	// removes all entries for the address.
	Lost bool
}

// Change is a change of interfaces: of the one with this name or index. The zero
// Change means that any may have changed.
type Change struct {
	Name  string
	Index int
}
