package endtoend_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"

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

// tryPost is post over one connection. It does as little as it can itself: most of the
// time is to be the server's.
func (m *mesh) tryPost(version string, d domain, next <-chan []peer.Key) error {
	conn, err := m.central.DialContext(m.ctx, "tcp", net.JoinHostPort(m.central.Addr().String(), "5000"))
	if err != nil {
		return err
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for keys := range next {
		for _, key := range keys {
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
			if err != nil {
				return err
			}
			if answer.StatusCode != http.StatusOK {
				return fmt.Errorf("the exchange answers %s %s", answer.Status, body)
			}
		}
	}
	return nil
}
