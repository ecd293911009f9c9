package kernel

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"wgsteer/agent/internal/gateway"
)

// Routes reads the IPv6 routes to single addresses over an interface.
func (Kernel) Routes(link int) ([]gateway.Route, error) {
	request := nl.NewNetlinkRequest(unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	filter := &nl.RtMsg{RtMsg: unix.RtMsg{Family: unix.AF_INET6, Table: unix.RT_TABLE_MAIN}}
	request.AddData(filter)
	request.AddData(nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(link))))
	var found []gateway.Route
	err := dump("routes", request, unix.RTM_NEWROUTE, func() { found = found[:0] }, func(payload []byte) {
		if route, ok := hostRoute(payload, link); ok {
			found = append(found, route)
		}
	})
	return found, err
}

// hostRoute reads a route message: struct rtmsg and attributes. It is ok when the route
// is one that we could have made, but for the protocol number.
func hostRoute(payload []byte, link int) (gateway.Route, bool) {
	if len(payload) < unix.SizeofRtMsg {
		return gateway.Route{}, false
	}
	family, length, table, protocol, kind := payload[0], payload[1], payload[4], payload[5], payload[7]
	if family != unix.AF_INET6 || length != 128 || table != unix.RT_TABLE_MAIN || kind != unix.RTN_UNICAST {
		return gateway.Route{}, false
	}
	if flags := binary.NativeEndian.Uint32(payload[8:]); flags&unix.RTM_F_CLONED != 0 { // a cache entry
		return gateway.Route{}, false
	}
	attrs := attributes(payload[unix.SizeofRtMsg:])
	to, ok := netip.AddrFromSlice(attrs[unix.RTA_DST])
	out := attrs[unix.RTA_OIF]
	_, byGateway := attrs[unix.RTA_GATEWAY]
	if !ok || byGateway || len(out) != 4 || binary.NativeEndian.Uint32(out) != uint32(link) {
		return gateway.Route{}, false
	}
	return gateway.Route{To: to, Ours: protocol == Protocol}, true
}

// AddRoutes adds routes to single addresses over an interface.
//
// NLM_F_APPEND without NLM_F_EXCL or NLM_F_REPLACE: a node that is in two domains has
// the same address in both, and the kernel keeps both routes, as they differ in the
// interface.
func (Kernel) AddRoutes(link int, to []netip.Addr) []error {
	requests := make([]*nl.NetlinkRequest, len(to))
	for i, address := range to {
		requests[i] = nl.NewNetlinkRequest(unix.RTM_NEWROUTE, unix.NLM_F_CREATE|unix.NLM_F_APPEND)
		message := nl.NewRtMsg()
		message.Protocol = Protocol
		addRoute(requests[i], message, link, address)
	}
	return explain(batch(requests), thereAlready, func(i int) string {
		return fmt.Sprintf("add route to %v over interface %d", to[i], link)
	})
}

// RemoveRoutes removes routes to single addresses over an interface.
func (Kernel) RemoveRoutes(link int, routes []gateway.Route) []error {
	requests := make([]*nl.NetlinkRequest, len(routes))
	for i, route := range routes {
		requests[i] = nl.NewNetlinkRequest(unix.RTM_DELROUTE, 0)
		message := nl.NewRtDelMsg()
		if route.Ours {
			message.Protocol = Protocol // else zero, which matches any
		}
		addRoute(requests[i], message, link, route.To)
	}
	return explain(batch(requests), goneAlready, func(i int) string {
		return fmt.Sprintf("remove route to %v over interface %d", routes[i].To, link)
	})
}

func addRoute(request *nl.NetlinkRequest, message *nl.RtMsg, link int, to netip.Addr) {
	message.Family, message.Dst_len = unix.AF_INET6, 128
	request.AddData(message)
	request.AddData(nl.NewRtAttr(unix.RTA_DST, to.AsSlice()))
	request.AddData(nl.NewRtAttr(unix.RTA_OIF, nl.Uint32Attr(uint32(link))))
}
