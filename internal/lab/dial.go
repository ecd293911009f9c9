package lab

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
)

// DialContext connects from inside the host. The address is an IP address and a
// port: nothing resolves names in the lab.
func (h *Host) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, fmt.Errorf("dial from host %s: %w", h.name, err)
	}
	var conn net.Conn
	// A socket stays in the network namespace of the thread that made it, and Dial
	// makes the socket for a literal address on the caller's.
	err := inNetNS(h.namespacePath(), func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, network, address)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("dial from host %s: %w", h.name, err)
	}
	return conn, nil
}

// Client returns an HTTP client that connects from inside the host, anew for each
// request.
func (h *Host) Client() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: h.DialContext, DisableKeepAlives: true}}
}
