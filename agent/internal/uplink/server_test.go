package uplink

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/listeners"
	"github.com/mochi-mqtt/server/v2/packets"

	"wgsteer/agent/internal/gateway"
	"wgsteer/internal/config"
	"wgsteer/internal/logtest"
	"wgsteer/internal/peer"
	"wgsteer/internal/report"
)

// broker is a real MQTT server, and what it saw.
type broker struct {
	mqtt.HookBase
	server *mqtt.Server
	addr   string

	closing  sync.Once
	mu       sync.Mutex
	seen     []string // "subscribe FILTER" and "TOPIC PAYLOAD qN [retain]", in order
	connects []packets.Packet
	gone     int    // connections that ended, after what that makes the server send
	refuse   bool   // refuses connections
	forbid   string // refuses this subscription
	// onSubscribe, when not nil, is called before a subscription is acknowledged.
	onSubscribe func()
}

func (*broker) ID() string { return "test" }

func (*broker) Provides(b byte) bool {
	return slices.Contains([]byte{
		mqtt.OnConnect, mqtt.OnConnectAuthenticate, mqtt.OnACLCheck, mqtt.OnSubscribed, mqtt.OnPublished, mqtt.OnWillSent, mqtt.OnDisconnect,
	}, b)
}

func (b *broker) OnConnectAuthenticate(*mqtt.Client, packets.Packet) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.refuse
}

func (b *broker) OnACLCheck(_ *mqtt.Client, topic string, write bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return write || topic != b.forbid
}

func (b *broker) OnConnect(_ *mqtt.Client, pk packets.Packet) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.connects = append(b.connects, pk)
	return nil
}

func (b *broker) OnSubscribed(_ *mqtt.Client, pk packets.Packet, _ []byte) {
	var filters []string
	for _, f := range pk.Filters {
		filters = append(filters, fmt.Sprintf("%s q%d", f.Filter, f.Qos))
	}
	slices.Sort(filters)
	b.mu.Lock()
	b.seen = append(b.seen, "subscribe "+strings.Join(filters, " "))
	b.mu.Unlock()
	if b.onSubscribe != nil {
		b.onSubscribe()
	}
}

func (b *broker) OnDisconnect(*mqtt.Client, error, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.gone++
}

func (b *broker) OnPublished(client *mqtt.Client, pk packets.Packet) {
	if !client.Net.Inline {
		b.note("", pk.TopicName, pk.Payload, pk.FixedHeader)
	}
}

func (b *broker) OnWillSent(_ *mqtt.Client, pk packets.Packet) {
	b.note("will ", pk.TopicName, pk.Payload, pk.FixedHeader)
}

func (b *broker) note(prefix, topic string, payload []byte, header packets.FixedHeader) {
	b.mu.Lock()
	defer b.mu.Unlock()
	line := fmt.Sprintf("%s%s %s q%d", prefix, topic, payload, header.Qos)
	if header.Retain {
		line += " retain"
	}
	b.seen = append(b.seen, line)
}

// startBroker starts a server at the address, or at any for an empty one.
func startBroker(t *testing.T, addr string, tlsConfig *tls.Config) *broker {
	t.Helper()
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	b := &broker{server: mqtt.New(&mqtt.Options{InlineClient: true, Logger: discard})}
	if err := b.server.AddHook(b, nil); err != nil {
		t.Fatal(err)
	}
	listener := listeners.NewTCP(listeners.Config{ID: "tcp", Address: addr, TLSConfig: tlsConfig})
	if err := b.server.AddListener(listener); err != nil {
		t.Fatal(err)
	}
	if err := b.server.Serve(); err != nil {
		t.Fatal(err)
	}
	b.addr = listener.Address()
	t.Cleanup(b.close)
	return b
}

// close stops the server, once.
func (b *broker) close() { b.closing.Do(func() { b.server.Close() }) }

// publish sends a message to whoever subscribed.
func (b *broker) publish(t *testing.T, topic, payload string) {
	t.Helper()
	if err := b.server.Publish(topic, []byte(payload), false, 1); err != nil {
		t.Fatal(err)
	}
}

// history returns what was seen so far.
func (b *broker) history() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.seen)
}

// saw returns an error unless the line was seen, after the first n.
func (b *broker) saw(line string, n int) error {
	if seen := b.history(); len(seen) < n || !slices.Contains(seen[n:], line) {
		return fmt.Errorf("%q is not in:\n%s", line, strings.Join(seen, "\n"))
	}
	return nil
}

// fakeGateway is a gateway with reports to set, that takes note of keys.
type fakeGateway struct {
	mu      sync.Mutex
	reports map[string]gateway.Report
	keys    []string // "DOMAIN KEY exchange", "DOMAIN KEY replay", "DOMAIN KEY evict" and "session"
	changed chan struct{}
	looked  chan struct{}
	// handshakes are those to be reported next.
	handshakes map[string][]report.Handshake
}

// newFakeGateway returns a gateway that has looked at its interfaces.
func newFakeGateway() *fakeGateway {
	g := &fakeGateway{reports: make(map[string]gateway.Report), changed: make(chan struct{}, 1), looked: make(chan struct{})}
	close(g.looked)
	return g
}

func (g *fakeGateway) Looked() <-chan struct{} { return g.looked }

func (g *fakeGateway) Add(domain string, key peer.Key, origin gateway.Origin) {
	names := map[gateway.Origin]string{gateway.FromExchange: "exchange", gateway.FromReplay: "replay"}
	g.note(domain + " " + key.String() + " " + names[origin])
}

func (g *fakeGateway) Evict(domain string, keys []peer.Key) {
	for _, key := range keys {
		g.note(domain + " " + key.String() + " evict")
	}
}

func (g *fakeGateway) BeginSession() { g.note("session") }

func (g *fakeGateway) note(line string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.keys = append(g.keys, line)
}

// took returns an attempt that succeeds when the gateway was given exactly this, in order.
func (g *fakeGateway) took(want ...string) func() error {
	return func() error {
		g.mu.Lock()
		defer g.mu.Unlock()
		if diff := cmp.Diff(want, g.keys); diff != "" {
			return fmt.Errorf("given to the gateway (-want +got):\n%s", diff)
		}
		return nil
	}
}

func (g *fakeGateway) Report(domain string) gateway.Report {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reports[domain]
}

func (g *fakeGateway) Handshakes(domain string) []report.Handshake {
	g.mu.Lock()
	defer g.mu.Unlock()
	handshakes := g.handshakes[domain]
	delete(g.handshakes, domain)
	return handshakes
}

func (g *fakeGateway) Changed() <-chan struct{} { return g.changed }

func (g *fakeGateway) set(domain string, r gateway.Report) {
	g.mu.Lock()
	g.reports[domain] = r
	g.mu.Unlock()
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// uplinkTo is the config of an uplink to the address.
func uplinkTo(t testing.TB, addr string) *config.Config {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	var number uint16
	if _, err := fmt.Sscan(port, &number); err != nil {
		t.Fatal(err)
	}
	return &config.Config{
		Domains: []config.Domain{{Name: "ffmuc_welt"}, {Name: "ffmuc_city"}},
		MQTT:    config.MQTT{Host: host, Port: number, Username: "user", Password: "SECRET", Keepalive: 5 * time.Second},
		Agent:   config.Agent{Worker: "gw1"},
	}
}

// running is an uplink at work.
type running struct {
	t    *testing.T
	log  *lines
	stop func() time.Duration // and how long it took
}

func start(t *testing.T, cfg *config.Config, g Gateway) running {
	t.Helper()
	log := &lines{}
	u, err := New(cfg, g, slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- u.Run(ctx) }()
	var once sync.Once
	var took time.Duration
	stop := func() time.Duration {
		once.Do(func() {
			began := time.Now()
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("Run: %v", err)
			}
			took = time.Since(began)
		})
		return took
	}
	t.Cleanup(func() { stop() })
	return running{t, log, stop}
}

// eventually fails the test when attempt does not return nil in time.
func eventually(t *testing.T, attempt func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := attempt()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

var discard = slog.New(slog.NewTextHandler(io.Discard, nil))

// lines is a log.
type lines struct{ logtest.Buffer }

// says returns an error unless the log holds the text that many times.
func (l *lines) says(text string, times int) error {
	if n := l.Count(text); n != times {
		return fmt.Errorf("the log says %q %d times, want %d, in:\n%s", text, n, times, l.String())
	}
	return nil
}

// wire is a TCP proxy, which can be cut without either side being told.
type wire struct {
	addr string
	mu   sync.Mutex
	cut  bool
}

func newWire(t *testing.T, to string) *wire {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{addr: listener.Addr().String()}
	var all sync.WaitGroup
	var conns []net.Conn
	all.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				near.Close()
				continue
			}
			w.mu.Lock()
			conns = append(conns, near, far)
			w.mu.Unlock()
			all.Go(func() { w.carry(near, far) })
			all.Go(func() { w.carry(far, near) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		w.mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		w.mu.Unlock()
		all.Wait()
	})
	return w
}

func (w *wire) carry(from, to net.Conn) {
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		w.mu.Lock()
		cut := w.cut
		w.mu.Unlock()
		if cut {
			if err != nil {
				return
			}
			continue
		}
		if _, writeErr := to.Write(buf[:n]); err != nil || writeErr != nil {
			to.Close()
			return
		}
	}
}

func (w *wire) setCut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
}
