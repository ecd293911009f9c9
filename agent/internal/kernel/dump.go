package kernel

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// errInterrupted says that something changed while it was dumped, so that the dump may
// lack or repeat parts.
var errInterrupted = errors.New("interrupted by a change")

// maxDumps is how often an interrupted dump is repeated before it is an error.
const maxDumps = 10

// untilWhole repeats a dump that was interrupted.
func untilWhole(what string, dump func() error) error {
	var err error
	for range maxDumps {
		err = dump()
		if !errors.Is(err, errInterrupted) && !hasErrno(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", what, err)
	}
	return nil
}

// dump asks for everything of a kind and calls handle with the payload of each message
// of type reply. It starts over, after a call of reset, when it was interrupted.
//
// Of IPv6 routes and FDB entries the kernel does not tell when a dump was interrupted
// (as of Linux 6.18): while others come and go, one can be missing or be there twice.
// That is why adding what is there, and removing what is gone, must be no errors.
func dump(what string, request *nl.NetlinkRequest, reply uint16, reset func(), handle func(payload []byte)) error {
	return untilWhole(what, func() error {
		reset()
		s, err := openSocket()
		if err != nil {
			return err
		}
		defer s.close()
		if err := s.send(request.Serialize()); err != nil {
			return err
		}
		done, interrupted := false, false
		for !done {
			err := s.receive(func(header unix.NlMsghdr, payload []byte) error {
				interrupted = interrupted || header.Flags&unix.NLM_F_DUMP_INTR != 0
				switch header.Type {
				case unix.NLMSG_DONE, unix.NLMSG_ERROR:
					done = true
					return answer(header, payload)
				case reply:
					handle(payload)
				}
				return nil
			})
			if err != nil {
				return err
			}
		}
		if interrupted {
			return errInterrupted
		}
		return nil
	})
}
