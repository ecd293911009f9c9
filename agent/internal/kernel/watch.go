package kernel

import (
	"context"
	"encoding/binary"
	"fmt"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"wgsteer/agent/internal/gateway"
)

// resubscribeAfter is the pause after a subscription that failed.
const resubscribeAfter = time.Second

// Watch calls changed for every change of an interface or of an IPv6 address, until ctx
// is done. Whenever changes may have been missed, at the start for one, it calls it with
// the zero Change.
func (Kernel) Watch(ctx context.Context, changed func(gateway.Change)) error {
	for ctx.Err() == nil {
		// What fails here (an overrun, descriptors, memory) is no reason to stop: until it
		// works again the gateway looks by itself, every half a minute.
		_ = watch(ctx, changed)
		select {
		case <-ctx.Done():
		case <-time.After(resubscribeAfter):
		}
	}
	return nil
}

// watch is Watch with one subscription, until that fails.
func watch(ctx context.Context, changed func(gateway.Change)) error {
	s, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV6_IFADDR)
	if err != nil {
		return fmt.Errorf("subscribe to interface changes: %w", err)
	}
	defer s.Close()
	defer context.AfterFunc(ctx, s.Close)()
	changed(gateway.Change{})
	for {
		messages, from, err := s.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil: // ENOBUFS, for one: more than we could read
			return fmt.Errorf("receive interface changes: %w", err)
		case from.Pid != nl.PidKernel: // not from the kernel
		default:
			for _, m := range messages {
				changed(changeOf(m))
			}
		}
	}
}

// changeOf reads an event. One that it cannot read may be about anything.
func changeOf(m syscall.NetlinkMessage) gateway.Change {
	order := binary.NativeEndian
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		if len(m.Data) >= unix.SizeofIfInfomsg {
			name := attributes(m.Data[unix.SizeofIfInfomsg:])[unix.IFLA_IFNAME]
			return gateway.Change{Name: unix.ByteSliceToString(name), Index: int(order.Uint32(m.Data[4:]))}
		}
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		if len(m.Data) >= unix.SizeofIfAddrmsg {
			return gateway.Change{Index: int(order.Uint32(m.Data[4:]))}
		}
	}
	return gateway.Change{}
}
