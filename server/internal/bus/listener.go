package bus

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"
)

// listener wraps a TCP listener for the MQTT library, which stops serving at the
// first failed accept and does not tell when a connection is gone.
type listener struct {
	net.Listener
	log *slog.Logger

	mu   sync.Mutex
	open map[*conn]struct{}
}

func newListener(tcp net.Listener, log *slog.Logger) *listener {
	return &listener{Listener: tcp, log: log, open: make(map[*conn]struct{})}
}

const (
	// acceptPause is how long to wait after a failed accept (no file descriptor is
	// left, say) before the next.
	acceptPause = 100 * time.Millisecond
	// connectWithin is how long a new connection has for its CONNECT packet. Then
	// the library sets the deadlines, from the keepalive.
	connectWithin = 10 * time.Second
)

// Accept returns the next connection. It fails only when the listener is closed.
func (l *listener) Accept() (net.Conn, error) {
	for failed := false; ; {
		tcp, err := l.Listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		if err != nil {
			if !failed {
				l.log.Error("MQTT connections cannot be accepted", "error", err)
			}
			failed = true
			time.Sleep(acceptPause)
			continue
		}
		c := &conn{Conn: tcp, listener: l}
		if err := c.SetDeadline(time.Now().Add(connectWithin)); err != nil {
			c.Close()
			continue
		}
		l.mu.Lock()
		l.open[c] = struct{}{}
		l.mu.Unlock()
		return c, nil
	}
}

func (l *listener) forget(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.open, c)
}

// closeConnections closes every connection that is open.
func (l *listener) closeConnections() {
	l.mu.Lock()
	open := make([]*conn, 0, len(l.open))
	for c := range l.open {
		open = append(open, c)
	}
	l.mu.Unlock()
	for _, c := range open {
		c.Close()
	}
}

// conn is a client's connection. The library closes it when the session ends,
// whatever ended it, which makes it the one sure sign of that.
type conn struct {
	net.Conn
	listener *listener
	closing  sync.Once

	// session is set once, before the session is established, by the goroutine that
	// establishes it.
	session *session
	// onClose is called when the connection is closed, if it is set. It is set like
	// session.
	onClose func()
}

// Close closes the connection and tells who waits for that.
func (c *conn) Close() error {
	err := c.Conn.Close()
	c.closing.Do(func() {
		c.listener.forget(c)
		if c.onClose != nil {
			c.onClose()
		}
	})
	return err
}
