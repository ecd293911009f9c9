package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"wgsteer/agent/internal/gateway"
)

// Protocol marks our routes: the 119 of `ip -6 route show proto 119`. No routing
// daemon in iproute2's rt_protos uses it.
const Protocol = 119

// Kernel is the kernel of the network namespace that the process runs in. The zero
// value is ready. It may be used by several goroutines.
//
// It keeps no connection open: every operation has its own, so that none can be
// poisoned by an earlier one, and a WireGuard module that is loaded later is found.
type Kernel struct{}

var _ gateway.Kernel = Kernel{}

// hasErrno tells whether the error is one of these.
func hasErrno(err error, errnos ...unix.Errno) bool {
	for _, errno := range errnos {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// each puts one error in the place of each of n things, or returns nil for none.
func each(n int, err error) []error {
	if err == nil {
		return nil
	}
	errs := make([]error, n)
	for i := range errs {
		errs[i] = err
	}
	return errs
}

// explain drops the errors that mean that there was nothing to do, and says of the
// others what was attempted. It returns nil when none is left.
func explain(errs []error, nothingToDo func(error) bool, attempt func(i int) string) []error {
	left := false
	for i, err := range errs {
		switch {
		case err == nil:
		case nothingToDo(err):
			errs[i] = nil
		default:
			errs[i] = fmt.Errorf("%s: %w", attempt(i), err)
			left = true
		}
	}
	if !left {
		return nil
	}
	return errs
}

// thereAlready and goneAlready are the answers to adding something that is there and
// to removing something that is not.
func thereAlready(err error) bool { return hasErrno(err, unix.EEXIST) }

func goneAlready(err error) bool { return hasErrno(err, unix.ESRCH, unix.ENOENT, unix.ENODEV) }
