package kernel

import (
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// batchSize is how many requests go into one packet. Should all of them fail, their
// answers must fit into the socket's receive buffer, of which each takes up to 1.3 KB,
// of 208 KB by default.
const batchSize = 100

// batch makes requests, many per system call, and returns nil or one error (or nil)
// for each.
//
// The kernel works through a packet in order, and answers each request that fails. Only
// the last one asks for an answer in any case, which comes when all are done.
func batch(requests []*nl.NetlinkRequest) []error {
	s, err := openSocket()
	if err != nil {
		return each(len(requests), err)
	}
	defer s.close()
	errs := make([]error, len(requests))
	for start := 0; start < len(requests); start += batchSize {
		end := min(start+batchSize, len(requests))
		if err := s.batch(requests[start:end], uint32(start), errs[start:end]); err != nil {
			// Which of them were done is not known: as all can be repeated, none counts.
			copy(errs[start:], each(len(errs)-start, err))
			break
		}
	}
	return errs
}

// batch makes one packet of requests, with sequence numbers that begin after the given one.
func (s *socket) batch(requests []*nl.NetlinkRequest, after uint32, errs []error) error {
	var packet []byte
	last := after + uint32(len(requests))
	for i, r := range requests {
		r.Seq = after + 1 + uint32(i)
		if r.Seq == last {
			r.Flags |= unix.NLM_F_ACK
		}
		packet = append(packet, r.Serialize()...)
	}
	if err := s.send(packet); err != nil {
		return err
	}
	for done := false; !done; {
		err := s.receive(func(header unix.NlMsghdr, payload []byte) error {
			if header.Type != unix.NLMSG_ERROR || header.Seq <= after || header.Seq > last {
				return nil
			}
			errs[header.Seq-after-1] = answer(header, payload)
			done = done || header.Seq == last
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}
