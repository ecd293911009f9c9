package bus

import (
	"errors"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/mochi-mqtt/server/v2/listeners"
)

// listener accepts connections for the MQTT library and knows what the library does
// not tell: when it is completely done with one. Sessions of one client id follow
// each other strictly because of that: the library alone lets the end of the old
// session remove the new one, which is then connected and never sent anything.
type listener struct {
	tcp net.Listener
	log *slog.Logger

	accepted chan struct{}  // closed when no further connection is accepted
	served   sync.WaitGroup // connections that are being served
	mu       sync.Mutex
	open     map[*conn]struct{}
	latest   map[string]*conn // the connection that was last established, by client id
}

func newListener(tcp net.Listener, log *slog.Logger) *listener {
	return &listener{
		tcp: tcp, log: log, accepted: make(chan struct{}),
		open: make(map[*conn]struct{}), latest: make(map[string]*conn),
	}
}

// The library asks for these.

func (l *listener) ID() string              { return "tcp" }
func (l *listener) Protocol() string        { return "tcp" }
func (l *listener) Address() string         { return l.tcp.Addr().String() }
func (l *listener) Init(*slog.Logger) error { return nil }

const (
	// acceptPause is how long to wait after a failed accept (no file descriptor is
	// left, say) before the next.
	acceptPause = 100 * time.Millisecond
	// connectWithin is how long a new connection has for its CONNECT packet. Then
	// the library sets the deadlines, from the keepalive.
	connectWithin = 10 * time.Second
	// closeGrace is how long clients get to take their DISCONNECT when the server stops.
	closeGrace = time.Second
)

// Serve has connections served until the listener is closed.
func (l *listener) Serve(establish listeners.EstablishFn) {
	defer close(l.accepted)
	for failed := false; ; {
		tcp, err := l.tcp.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			if !failed {
				l.log.Error("MQTT connections cannot be accepted", "error", err)
			}
			failed = true
			time.Sleep(acceptPause)
			continue
		}
		failed = false
		c := newConn(tcp)
		l.mu.Lock()
		l.open[c] = struct{}{}
		l.mu.Unlock()
		l.served.Go(func() {
			defer l.finish(c)
			if err := c.SetDeadline(time.Now().Add(connectWithin)); err == nil {
				err = establish(l.ID(), c)
				l.log.Debug("MQTT connection ended", "source", c.RemoteAddr().String(), "error", err)
			}
		})
	}
}

// follow makes the connection the latest one of the client id. It ends the one
// before and waits until nothing of it is left.
func (l *listener) follow(client string, c *conn) {
	l.mu.Lock()
	before := l.latest[client]
	c.client, l.latest[client] = client, c
	l.mu.Unlock()
	if before != nil {
		before.Close()
		<-before.done
	}
}

// finish forgets a connection that the library is done with.
func (l *listener) finish(c *conn) {
	c.Close()
	l.mu.Lock()
	delete(l.open, c)
	if l.latest[c.client] == c {
		delete(l.latest, c.client)
	}
	l.mu.Unlock()
	if c.onEnd != nil {
		c.onEnd()
	}
	close(c.done)
}

// Close stops accepting, has the library disconnect its clients, and waits until all
// connections are done with. Those that do not go are cut.
func (l *listener) Close(disconnectClients listeners.CloseFn) {
	if err := l.tcp.Close(); err != nil {
		l.log.Error("MQTT listener cannot be closed", "error", err)
	}
	<-l.accepted
	cut := time.AfterFunc(closeGrace, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		for c := range l.open {
			c.Close()
		}
	})
	defer cut.Stop()
	disconnectClients(l.ID())
	l.served.Wait()
}

// all returns the connections that are open.
func (l *listener) all() []*conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Collect(maps.Keys(l.open))
}

// conn is a client's connection.
type conn struct {
	net.Conn
	// client is the id of the client, once it is established.
	client string
	// onEnd is called when the session has ended, if it is set.
	onEnd func()
	// closed is closed with the connection, and done when the library is done with it.
	closed, done chan struct{}
	closing      sync.Once

	mu sync.Mutex
	// feeds are the domains whose keys the client subscribed to.
	feeds map[string]*feed
}

// feed is how a client is sent the keys of a domain that are alive.
type feed struct {
	replay func()
	// running tells whether that is under way, and again whether to begin anew then.
	running, again bool
}

func newConn(tcp net.Conn) *conn {
	return &conn{Conn: tcp, closed: make(chan struct{}), done: make(chan struct{}), feeds: make(map[string]*feed)}
}

// Close closes the connection.
func (c *conn) Close() error {
	c.closing.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// subscribe notes how the keys of a domain are replayed. It returns the function that does
// it now, or nil while the ones of an earlier subscription are: what is new since that
// began was sent as new.
func (c *conn) subscribe(domain string, replay func()) (run func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f := c.feeds[domain]; f != nil && f.running {
		return nil
	}
	f := &feed{replay: replay, running: true}
	c.feeds[domain] = f
	return func() { c.run(f) }
}

// again returns functions that replay once more what the client subscribed to.
func (c *conn) again() (run []func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range c.feeds {
		if f.running {
			f.again = true
			continue
		}
		f.running = true
		run = append(run, func() { c.run(f) })
	}
	return run
}

// run replays a feed until nothing asks for more.
func (c *conn) run(f *feed) {
	for more := true; more; {
		f.replay()
		c.mu.Lock()
		more, f.again = f.again, false
		f.running = more
		c.mu.Unlock()
	}
}
