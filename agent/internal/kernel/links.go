package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"wgsteer/agent/internal/gateway"
)

// Links reads the interfaces of a domain and the addresses of its WireGuard interface.
func (Kernel) Links(wireGuard, vxlan string) (gateway.Links, error) {
	var links gateway.Links
	wg, err := link(wireGuard)
	if err != nil {
		return links, err
	}
	vx, err := link(vxlan)
	if err != nil {
		return links, err
	}
	if vx != nil {
		links.VXLAN = vx.Attrs().Index
		links.IsVXLAN = vx.Type() == "vxlan"
	}
	if wg == nil {
		return links, nil
	}
	links.WireGuard = wg.Attrs().Index
	links.Up = wg.Attrs().Flags&net.FlagUp != 0
	links.Addresses, err = linkLocals(links.WireGuard)
	return links, err
}

// link returns nil when there is no such interface.
func link(name string) (netlink.Link, error) {
	found, err := netlink.LinkByName(name)
	switch {
	case isMissing(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read interface %s: %w", name, err)
	}
	return found, nil
}

func exists(index int) (bool, error) {
	_, err := netlink.LinkByIndex(index)
	if err != nil && !isMissing(err) {
		return false, fmt.Errorf("read interface %d: %w", index, err)
	}
	return err == nil, nil
}

func isMissing(err error) bool {
	var missing netlink.LinkNotFoundError
	return errors.As(err, &missing) || hasErrno(err, unix.ENODEV)
}

// ifaProto is the attribute IFA_PROTO (linux/if_addr.h), which golang.org/x/sys does not
// have. It tells who made an address, since Linux 5.18. Before, nobody can tell, and all
// addresses count as the operator's: a WireGuard interface of the kernel never makes
// one up, only a TUN device under a userspace WireGuard does.
const ifaProto = 11

// The makers below this one are the kernel itself: loopback, router advertisement and
// link-local (IFAPROT_KERNEL_LO, _RA and _LL, linux/if_addr.h). Zero is unspecified.
const firstForeignProto = 4

// unusable are the flags of an address that cannot be used: duplicate address
// detection is not over, or found a duplicate.
const unusable = unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED

// linkLocals reads the usable IPv6 link-local addresses of an interface.
func linkLocals(index int) ([]gateway.Address, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETADDR, unix.NLM_F_DUMP)
	filter := nl.NewIfAddrmsg(unix.AF_INET6)
	filter.Index = uint32(index)
	request.AddData(filter)
	var found []gateway.Address
	err := dump("addresses", request, unix.RTM_NEWADDR, func() { found = nil }, func(payload []byte) {
		if address, ok := linkLocal(payload, index); ok {
			found = append(found, address)
		}
	})
	if hasErrno(err, unix.ENODEV) { // gone since its index was read
		return nil, nil
	}
	return found, err
}

// linkLocal reads an address message: struct ifaddrmsg and attributes.
func linkLocal(payload []byte, index int) (gateway.Address, bool) {
	if len(payload) < unix.SizeofIfAddrmsg || payload[0] != unix.AF_INET6 {
		return gateway.Address{}, false
	}
	order := binary.NativeEndian
	flags := uint32(payload[2])
	if order.Uint32(payload[4:]) != uint32(index) {
		return gateway.Address{}, false
	}
	attrs := attributes(payload[unix.SizeofIfAddrmsg:])
	if all := attrs[unix.IFA_FLAGS]; len(all) == 4 {
		flags = order.Uint32(all)
	}
	// On a point-to-point interface IFA_ADDRESS may be the peer's.
	bytes, ok := attrs[unix.IFA_LOCAL]
	if !ok {
		bytes = attrs[unix.IFA_ADDRESS]
	}
	ip, ok := netip.AddrFromSlice(bytes)
	if !ok || !ip.IsLinkLocalUnicast() || flags&unusable != 0 {
		return gateway.Address{}, false
	}
	proto := attrs[ifaProto]
	return gateway.Address{IP: ip, ByKernel: len(proto) == 1 && proto[0] != 0 && proto[0] < firstForeignProto}, true
}
