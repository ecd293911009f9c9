package bus

import (
	"context"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/prometheus/client_golang/prometheus"

	"wgsteer/internal/peer"
	"wgsteer/internal/report"
	"wgsteer/topics"
)

// Table is where reports go.
type Table interface {
	// Knows tells whether a domain is configured.
	Knows(domain string) bool
	// SetStatus returns whether the status is news.
	SetStatus(worker string, online bool, now time.Time) (changed bool)
	SetData(worker, domain string, data report.Data)
	// SetPeers takes the time of the report.
	SetPeers(worker, domain string, peers int, now time.Time)
	// Seen takes what the worker says of the handshakes of nodes.
	Seen(worker, domain string, handshakes []report.Handshake, now time.Time)
}

// Keys are the keys that were accepted.
type Keys interface {
	// Live returns the keys of a domain that are alive, newest first.
	Live(domain string, now time.Time) []peer.Key
	// Handshakes records that a worker has seen handshakes of keys.
	Handshakes(domain string, keys []peer.Key, now time.Time)
}

// Memory is where reports survive the process.
type Memory interface {
	// SaveReport keeps the last payload of a topic. It does not wait for the disk.
	SaveReport(topic string, payload []byte)
	// Reports returns the payloads by topic.
	Reports() (map[string][]byte, error)
}

// Config is how the MQTT server is reached.
type Config struct {
	// Domains are the configured domains. More can be added.
	Domains []string
	// Listen is a TCP address, host:port.
	Listen string
	// Username and Password are the account that clients must have. Without a
	// username everybody who reaches the address may connect.
	Username, Password string
}

// Bus is the embedded MQTT server.
type Bus struct {
	config   Config
	table    Table
	keys     Keys
	memory   Memory // nil: none
	log      *slog.Logger
	metrics  *metrics
	rejected *rejections
	listener *listener
	server   *mqtt.Server

	// reports orders reports: the table and the retained messages change together.
	reports  sync.Mutex
	speakers map[string]*session // by worker; guarded by reports
	// awaited are the workers that were online before a restart and have not come back;
	// guarded by reports.
	awaited map[string]struct{}
	// domains are the configured domains; guarded by reports.
	domains []string
	// unknown are the last reports of domains that are not configured; guarded by reports.
	unknown map[string][]byte
	// stopping is set when the server stops: then sessions end, and that says nothing
	// about their workers; guarded by reports.
	stopping bool
	replays  sync.WaitGroup
	// inflightDropped is the library's count at the last tick; only the tick uses it.
	inflightDropped int64
}

// How the embedded server differs from the library's defaults.
const (
	// maxPacket bounds a packet, in bytes. The largest of ours, data, has about 600.
	maxPacket = 64 << 10
	// statsInterval is the time between two looks at the library's counters. Every
	// look stops the world for a moment to read the memory statistics.
	statsInterval = 10 * time.Second
)

// New listens on the configured address and takes up the reports in the memory, which
// is nil for none. Connections are served by Run.
func New(config Config, table Table, keys Keys, memory Memory, log *slog.Logger, registry prometheus.Registerer) (*Bus, error) {
	tcp, err := net.Listen("tcp", config.Listen)
	if err != nil {
		return nil, fmt.Errorf("MQTT server: %w", err)
	}
	b := &Bus{
		config: config, table: table, keys: keys, memory: memory, log: log,
		metrics:  newMetrics(registry),
		listener: newListener(tcp, log),
		speakers: make(map[string]*session),
		awaited:  make(map[string]struct{}),
		domains:  slices.Clone(config.Domains),
		unknown:  make(map[string][]byte),
	}
	b.rejected = newRejections(log, b.metrics.rejected)
	capabilities := mqtt.NewDefaultServerCapabilities()
	capabilities.MaximumPacketSize = maxPacket
	capabilities.MaximumSessionExpiryInterval = 0
	// Retained messages are what a gateway last said. They do not expire.
	capabilities.MaximumMessageExpiryInterval = 0
	b.server = mqtt.New(&mqtt.Options{
		Capabilities:           capabilities,
		InlineClient:           true,
		SysTopicResendInterval: int64(statsInterval / time.Second),
		// Below errors, the library writes lines that clients cause, with whole
		// packets in them.
		Logger: slog.New(atLeast{slog.LevelError, log.Handler()}),
	})
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "wgsteer_mqtt_clients",
		Help: "MQTT clients that are connected.",
	}, func() float64 { return float64(atomic.LoadInt64(&b.server.Info.ClientsConnected)) }))
	if err := b.server.AddHook(&hook{bus: b}, nil); err != nil {
		return nil, fmt.Errorf("MQTT server: %w", err)
	}
	if err := b.server.AddListener(b.listener); err != nil {
		return nil, fmt.Errorf("MQTT server: %w", err)
	}
	b.restore()
	return b, nil
}

// Addr is the address that the MQTT server listens on.
func (b *Bus) Addr() net.Addr { return b.listener.tcp.Addr() }

// Run serves connections until ctx is done and all clients are disconnected.
func (b *Bus) Run(ctx context.Context) error {
	if err := b.server.Serve(); err != nil {
		return fmt.Errorf("MQTT server: %w", err)
	}
	b.log.Info("MQTT server listens", "address", b.Addr().String())
	b.dropMissing(ctx)
	<-ctx.Done()
	b.reports.Lock()
	b.stopping = true
	b.reports.Unlock()
	err := b.server.Close()
	b.replays.Wait()
	return err
}

// PublishKey sends a node's key to all workers of the domain.
func (b *Bus) PublishKey(domain string, key peer.Key) error {
	topic, err := topics.Topic{Kind: topics.Key, Domain: domain, Worker: topics.All}.Build()
	if err != nil {
		return err
	}
	if err := b.server.Publish(topic, []byte(key.String()), false, 1); err != nil {
		return fmt.Errorf("publish key to %s: %w", topic, err)
	}
	return nil
}

// PublishEvict tells a worker to let go of nodes in the domain.
func (b *Bus) PublishEvict(worker, domain string, keys []peer.Key) error {
	topic, err := topics.Topic{Kind: topics.Evict, Domain: domain, Worker: worker}.Build()
	if err != nil {
		return err
	}
	if err := b.server.Publish(topic, report.FormatEvict(keys), false, 1); err != nil {
		return fmt.Errorf("publish keys to %s: %w", topic, err)
	}
	return nil
}

// admits tells whether the account may connect. It takes the same time however much
// of it is right.
func (b *Bus) admits(username, password []byte) bool {
	if b.config.Username == "" {
		return true
	}
	user := subtle.ConstantTimeCompare(username, []byte(b.config.Username))
	pass := subtle.ConstantTimeCompare(password, []byte(b.config.Password))
	return user&pass == 1
}

// atLeast drops log records below a level.
type atLeast struct {
	level slog.Level
	slog.Handler
}

func (h atLeast) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.level && h.Handler.Enabled(ctx, level)
}

func (h atLeast) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atLeast{h.level, h.Handler.WithAttrs(attrs)}
}

func (h atLeast) WithGroup(name string) slog.Handler {
	return atLeast{h.level, h.Handler.WithGroup(name)}
}
