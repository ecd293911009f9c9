package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// replyTimeout bounds the wait for an answer. The kernel answers within the call
// that asks; only a lost answer takes longer.
const replyTimeout = 10 * time.Second

// errReply says that the kernel answered something that cannot be read.
var errReply = errors.New("netlink reply cannot be read")

// socket is an rtnetlink socket for one request or dump at a time. The library's own
// sockets take a new 64 KiB buffer for every packet, which would be most of this
// program's garbage, and send one request at a time.
type socket struct {
	fd  int
	buf []byte
}

// openSocket opens a socket whose dumps are filtered by the kernel where it can
// (Linux 4.20), so that a gateway with a full routing table does not send all of it.
func openSocket() (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	timeout := unix.NsecToTimeval(replyTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("set netlink timeout: %w", err)
	}
	// Each of these is a convenience that older kernels lack: filtered dumps, errors
	// without a copy of the request, errors with a text.
	for _, option := range []int{unix.NETLINK_GET_STRICT_CHK, unix.NETLINK_CAP_ACK, unix.NETLINK_EXT_ACK} {
		_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, option, 1)
	}
	return &socket{fd: fd, buf: make([]byte, nl.RECEIVE_BUFFER_SIZE)}, nil
}

func (s *socket) close() { unix.Close(s.fd) }

func (s *socket) send(requests []byte) error {
	for {
		err := unix.Sendto(s.fd, requests, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
		if err != unix.EINTR {
			return err
		}
	}
}

// receive calls handle with each message of the next packet. What it passes is only
// valid during the call.
func (s *socket) receive(handle func(unix.NlMsghdr, []byte) error) error {
	var n int
	var err error
	for {
		if n, _, err = unix.Recvfrom(s.fd, s.buf, unix.MSG_TRUNC); err != unix.EINTR {
			break
		}
	}
	switch {
	case err == unix.EAGAIN:
		return fmt.Errorf("no answer from the kernel within %v", replyTimeout)
	case err != nil:
		return err
	case n > len(s.buf):
		return fmt.Errorf("%w: %d bytes", errReply, n)
	}
	for packet := s.buf[:n]; len(packet) > 0; {
		header, payload, rest, err := nextMessage(packet)
		if err != nil {
			return err
		}
		if err := handle(header, payload); err != nil {
			return err
		}
		packet = rest
	}
	return nil
}

// nextMessage splits off the packet's first message.
func nextMessage(packet []byte) (header unix.NlMsghdr, payload, rest []byte, err error) {
	if len(packet) < unix.SizeofNlMsghdr {
		return header, nil, nil, errReply
	}
	order := binary.NativeEndian
	header = unix.NlMsghdr{
		Len: order.Uint32(packet), Type: order.Uint16(packet[4:]), Flags: order.Uint16(packet[6:]),
		Seq: order.Uint32(packet[8:]), Pid: order.Uint32(packet[12:]),
	}
	if header.Len < unix.SizeofNlMsghdr || int64(header.Len) > int64(len(packet)) {
		return header, nil, nil, errReply
	}
	end := min((int(header.Len)+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1), len(packet))
	return header, packet[unix.SizeofNlMsghdr:header.Len], packet[end:], nil
}

// answer reads the payload of an NLMSG_ERROR or NLMSG_DONE: the error that it reports, or nil.
func answer(header unix.NlMsghdr, payload []byte) error {
	if header.Type == unix.NLMSG_DONE && len(payload) < 4 {
		return nil
	}
	if len(payload) < 4 {
		return errReply
	}
	code := int32(binary.NativeEndian.Uint32(payload))
	if code == 0 {
		return nil
	}
	errno := unix.Errno(-code)
	// With NETLINK_CAP_ACK the request's header alone comes back before the attributes.
	if at := 4 + unix.SizeofNlMsghdr; header.Flags&unix.NLM_F_ACK_TLVS != 0 && header.Flags&unix.NLM_F_CAPPED != 0 && len(payload) > at {
		if text := attributes(payload[at:])[nl.NLMSGERR_ATTR_MSG]; len(text) > 1 {
			return fmt.Errorf("%w (%s)", errno, unix.ByteSliceToString(text))
		}
	}
	return errno
}

// attributes takes the attributes of a message apart, by type.
func attributes(b []byte) map[uint16][]byte {
	found := make(map[uint16][]byte)
	for len(b) >= unix.SizeofRtAttr {
		length := int(binary.NativeEndian.Uint16(b))
		if length < unix.SizeofRtAttr || length > len(b) {
			break
		}
		found[binary.NativeEndian.Uint16(b[2:])] = b[unix.SizeofRtAttr:length]
		b = b[min((length+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1), len(b)):]
	}
	return found
}
