package endtoend_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"

	"wgsteer/internal/lab"
	"wgsteer/internal/peer"
)

// post makes exchanges for all the keys, in about this order: several nodes that stay
// connected make one after the other. version is v1 or v2.
func (m *mesh) post(version string, d domain, keys []peer.Key) {
	m.t.Helper()
	next := make(chan []peer.Key, len(keys))
	for few := range slices.Chunk(keys, 10) {
		next <- few
	}
	close(next)
	const at = 16
	errs := make([]error, at)
	var all sync.WaitGroup
	for i := range at {
		all.Go(func() { errs[i] = m.tryPost(version, d, next) })
	}
	all.Wait()
	check(m.t, errors.Join(errs...))
}

// tryPost is post over one connection. A node that is told that no gateway is there, as
// happens on a machine so busy that the gateway's connection breaks, asks again.
func (m *mesh) tryPost(version string, d domain, next <-chan []peer.Key) error {
	conn, err := m.central.DialContext(m.ctx, "tcp", net.JoinHostPort(m.central.Addr().String(), "5000"))
	if err != nil {
		return err
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for keys := range next {
		for _, key := range keys {
			ask := func() error { return exchangeOver(conn, answers, version, d, key) }
			err := ask()
			if errors.Is(err, errNoGateway) {
				ctx, cancel := context.WithTimeout(m.ctx, patience)
				err = lab.Eventually(ctx, ask)
				cancel()
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

var errNoGateway = errors.New("the exchange answers that there is no gateway")

// exchangeOver is exchange over a connection that stays open. It does as little as it can
// itself: most of the time is to be the server's.
func exchangeOver(conn net.Conn, answers *bufio.Reader, version string, d domain, key peer.Key) error {
	text := fmt.Sprintf(`{"domain": "%s", "public_key": "%v"}`, d.name, key)
	_, err := fmt.Fprintf(conn, "POST /api/%s/wg/key/exchange HTTP/1.1\r\nHost: server\r\nContent-Length: %d\r\n\r\n%s", version, len(text), text)
	if err != nil {
		return err
	}
	answer, err := http.ReadResponse(answers, nil)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(answer.Body)
	switch {
	case err != nil:
		return err
	case answer.StatusCode == http.StatusServiceUnavailable:
		return errNoGateway
	case answer.StatusCode != http.StatusOK:
		return fmt.Errorf("the exchange answers %s %s", answer.Status, body)
	}
	return nil
}
