package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"wgsteer/agent/internal/gateway"
)

// flood is the MAC address whose FDB entries get what has no entry of its own:
// broadcasts and what batman-adv sends to all.
var flood [6]byte

// sizeofNdMsg is the size of struct ndmsg (linux/neighbour.h).
const sizeofNdMsg = 12

// Entries reads the FDB entries of a VXLAN interface that flood to one IPv6 address.
func (Kernel) Entries(vxlan int) ([]gateway.Entry, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
	request.AddData(&netlink.Ndmsg{Family: unix.AF_BRIDGE, Index: uint32(vxlan)})
	var found []gateway.Entry
	err := dump("FDB entries", request, unix.RTM_NEWNEIGH, func() { found = found[:0] }, func(payload []byte) {
		if entry, ok := floodEntry(payload, vxlan); ok {
			found = append(found, entry)
		}
	})
	if err != nil {
		return nil, err
	}
	return found, findLost(vxlan, found)
}

// floodEntry reads a neighbour message: struct ndmsg and attributes. It is ok when the
// entry is one that we could have made.
func floodEntry(payload []byte, vxlan int) (gateway.Entry, bool) {
	if len(payload) < sizeofNdMsg {
		return gateway.Entry{}, false
	}
	order := binary.NativeEndian
	if family, index := payload[0], order.Uint32(payload[4:]); family != unix.AF_BRIDGE || index != uint32(vxlan) {
		return gateway.Entry{}, false
	}
	attrs := attributes(payload[sizeofNdMsg:])
	if mac := attrs[unix.NDA_LLADDR]; len(mac) != len(flood) || [6]byte(mac) != flood {
		return gateway.Entry{}, false
	}
	// The kernel names VNI and port only where they are not those of the interface.
	for _, other := range []uint16{unix.NDA_VNI, unix.NDA_PORT} {
		if _, named := attrs[other]; named {
			return gateway.Entry{}, false
		}
	}
	to, ok := netip.AddrFromSlice(attrs[unix.NDA_DST])
	if !ok || !to.Is6() {
		return gateway.Entry{}, false
	}
	entry := gateway.Entry{To: to}
	if via := attrs[unix.NDA_IFINDEX]; len(via) == 4 {
		entry.Via = int(order.Uint32(via))
	}
	return entry, true
}

// findLost marks the entries whose interface no longer exists, if the kernel can remove
// such entries.
func findLost(vxlan int, entries []gateway.Entry) error {
	there := map[int]bool{0: true} // 0 is no interface
	for _, e := range entries {
		if _, known := there[e.Via]; known {
			continue
		}
		var err error
		if there[e.Via], err = exists(e.Via); err != nil {
			return err
		}
	}
	anyLost := slices.ContainsFunc(entries, func(e gateway.Entry) bool { return !there[e.Via] })
	if !anyLost || !canFlush(vxlan) {
		return nil
	}
	for i, e := range entries {
		entries[i].Lost = !there[e.Via]
	}
	return nil
}

// AddEntries adds FDB entries, as `bridge fdb append 00:00:00:00:00:00 dev VXLAN dst TO
// via VIA` does.
func (Kernel) AddEntries(vxlan int, entries []gateway.Entry) []error {
	requests := make([]*nl.NetlinkRequest, len(entries))
	for i, entry := range entries {
		requests[i] = nl.NewNetlinkRequest(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_APPEND)
		addEntry(requests[i], vxlan, entry)
	}
	return explain(batch(requests), thereAlready, func(i int) string {
		return fmt.Sprintf("add FDB entry for %v via interface %d to interface %d", entries[i].To, entries[i].Via, vxlan)
	})
}

// RemoveEntries removes FDB entries. Removing one names address and interface, so that no
// other of the same MAC address goes. But the kernel refuses to hear the name of an
// interface that is gone: a Lost entry takes all entries for its address with it.
func (Kernel) RemoveEntries(vxlan int, entries []gateway.Entry) []error {
	requests := make([]*nl.NetlinkRequest, len(entries))
	for i, entry := range entries {
		if entry.Lost {
			requests[i] = flush(vxlan, entry.To)
			continue
		}
		requests[i] = nl.NewNetlinkRequest(unix.RTM_DELNEIGH, 0)
		addEntry(requests[i], vxlan, entry)
	}
	return explain(batch(requests), goneAlready, func(i int) string {
		return fmt.Sprintf("remove FDB entry for %v via interface %d from interface %d", entries[i].To, entries[i].Via, vxlan)
	})
}

// flush is the request to remove all entries for an address (Linux 6.7).
func flush(vxlan int, to netip.Addr) *nl.NetlinkRequest {
	request := nl.NewNetlinkRequest(unix.RTM_DELNEIGH, unix.NLM_F_BULK)
	request.AddData(&netlink.Ndmsg{Family: unix.AF_BRIDGE, Index: uint32(vxlan), Flags: netlink.NTF_SELF})
	request.AddData(nl.NewRtAttr(unix.NDA_DST, to.AsSlice()))
	return request
}

// canFlush tries flush with an address that no entry has: one of the prefix that is to
// be discarded (RFC 6666).
func canFlush(vxlan int) bool {
	nobody := netip.MustParseAddr("100::1")
	return batch([]*nl.NetlinkRequest{flush(vxlan, nobody)})[0] == nil
}

func addEntry(request *nl.NetlinkRequest, vxlan int, entry gateway.Entry) {
	request.AddData(&netlink.Ndmsg{
		Family: unix.AF_BRIDGE,
		Index:  uint32(vxlan),
		State:  netlink.NUD_PERMANENT | netlink.NUD_NOARP,
		Flags:  netlink.NTF_SELF,
	})
	request.AddData(nl.NewRtAttr(unix.NDA_LLADDR, flood[:]))
	request.AddData(nl.NewRtAttr(unix.NDA_DST, entry.To.AsSlice()))
	// The library cannot write this attribute, and a link-local address means nothing without it.
	request.AddData(nl.NewRtAttr(unix.NDA_IFINDEX, nl.Uint32Attr(uint32(entry.Via))))
}
