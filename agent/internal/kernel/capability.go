package kernel

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// ErrCapability says that the process may not change the network.
var ErrCapability = errors.New("the capability CAP_NET_ADMIN is missing: " +
	"give it with AmbientCapabilities=CAP_NET_ADMIN in the systemd unit (or --cap-add NET_ADMIN for a container), or run as root")

// CheckCapability returns ErrCapability when the process lacks CAP_NET_ADMIN, the one
// it needs. To reach a userspace WireGuard it must also be allowed to open that one's
// socket in /var/run/wireguard, which belongs to the user who started it.
func CheckCapability() error {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData // version 3 has 64 capabilities, in two halves
	if err := unix.Capget(&header, &data[0]); err != nil {
		return fmt.Errorf("read the process's capabilities: %w", err)
	}
	if data[0].Effective&(1<<unix.CAP_NET_ADMIN) == 0 {
		return ErrCapability
	}
	return nil
}
