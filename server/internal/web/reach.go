package web

import (
	"fmt"
	"net"
)

// Reach returns the address at which this machine reaches a server that listens at an
// address, host:port: where that means every address of the machine, it is loopback.
func Reach(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return "", fmt.Errorf("reach %q: %w", listen, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	return net.JoinHostPort(host, port), nil
}
