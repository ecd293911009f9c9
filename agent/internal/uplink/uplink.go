package uplink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/eclipse/paho.mqtt.golang/packets"

	"wgsteer/agent/internal/gateway"
	"wgsteer/internal/config"
	"wgsteer/internal/peer"
	"wgsteer/internal/report"
	"wgsteer/topics"
)

// Gateway takes the keys that come in, and has the reports that go out.
type Gateway interface {
	// Add and Evict must not block.
	Add(domain string, key peer.Key, origin gateway.Origin)
	Evict(domain string, keys []peer.Key)
	// BeginSession is called before the first key of a session can arrive.
	BeginSession()
	Report(domain string) gateway.Report
	// Looked is closed when the Reports say something.
	Looked() <-chan struct{}
	// Handshakes returns keys that have made handshakes or are gone, as far as they were
	// not returned before in this session.
	Handshakes(domain string) []report.Handshake
	// Changed is signalled when there is a new Report, or new Handshakes.
	Changed() <-chan struct{}
}

// Uplink keeps a worker connected to the MQTT server.
type Uplink struct {
	mqtt    config.MQTT
	worker  string
	gateway Gateway
	log     *slog.Logger

	status  string
	domains []domainTopics

	// ignored counts messages without effect.
	ignored struct{ topics, keys, evictions atomic.Uint64 }
}

// domainTopics are the topics of one domain.
type domainTopics struct {
	name            string
	allKeys, myKeys string
	evict           string
	data, peers     string
	handshakes      string
}

// New returns an uplink for the config's worker and domains. The error says which name
// cannot stand in a topic.
func New(cfg *config.Config, gateway Gateway, log *slog.Logger) (*Uplink, error) {
	u := &Uplink{mqtt: cfg.MQTT, worker: cfg.Agent.Worker, gateway: gateway, log: log.With("worker", cfg.Agent.Worker)}
	var err error
	build := func(kind topics.Kind, domain, worker string) string {
		topic, buildErr := topics.Topic{Kind: kind, Domain: domain, Worker: worker}.Build()
		err = errors.Join(err, buildErr)
		return topic
	}
	u.status = build(topics.Status, "", u.worker)
	for _, d := range cfg.Domains {
		u.domains = append(u.domains, domainTopics{
			name:       d.Name,
			allKeys:    build(topics.Key, d.Name, topics.All),
			myKeys:     build(topics.Key, d.Name, u.worker),
			evict:      build(topics.Evict, d.Name, u.worker),
			data:       build(topics.Data, d.Name, u.worker),
			peers:      build(topics.ConnectedPeers, d.Name, u.worker),
			handshakes: build(topics.Handshakes, d.Name, u.worker),
		})
	}
	if err != nil {
		return nil, err
	}
	return u, nil
}

// Run stays connected until ctx is done, then says goodbye to the server and returns
// nil, within about two seconds.
func (u *Uplink) Run(ctx context.Context) error {
	var pauses pauses
	var said failure
	// A session begins with all reports. One that said that nothing is offered, because
	// nobody had looked yet, would take the worker out of the choice for a moment.
	select {
	case <-ctx.Done():
	case <-u.gateway.Looked():
	}
	for ctx.Err() == nil {
		start := time.Now()
		connected, err := u.session(ctx)
		if ctx.Err() != nil {
			break
		}
		said = u.explain(connected, err, said)
		select {
		case <-ctx.Done():
		case <-time.After(pauses.after(time.Since(start), connected)):
		}
	}
	topics, keys, evictions := u.ignored.topics.Load(), u.ignored.keys.Load(), u.ignored.evictions.Load()
	if topics+keys+evictions > 0 {
		u.log.Info("messages that were ignored", "unknown_topics", topics, "malformed_keys", keys, "malformed_evictions", evictions)
	}
	return nil
}

// failure is a kind of failure to connect, of which an operator hears once: the texts of
// the errors differ in every port and server that was tried. Zero is none.
type failure int

const (
	unreachable failure = iota + 1
	refused
	untrusted
	unsubscribed
)

func failureOf(err error) failure {
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate):
		return untrusted
	case errors.Is(err, errSubscribe):
		return unsubscribed
	case errors.Is(err, packets.ErrorNetworkError):
		return unreachable
	}
	return refused
}

// explain logs why a session ended or did not begin, unless that was said before. It
// returns what was said last.
func (u *Uplink) explain(connected bool, err error, said failure) failure {
	if connected {
		u.log.Warn("lost the connection to the MQTT server; reconnecting", "error", err)
		return 0
	}
	kind := failureOf(err)
	if kind == said {
		u.log.Debug("cannot connect to the MQTT server", "error", err)
		return said
	}
	u.log.Warn("cannot connect to the MQTT server; retrying (said once)", "error", err)
	return kind
}

// server is where the MQTT server is, for logs.
func (u *Uplink) server() string { return fmt.Sprintf("%s:%d", u.mqtt.Host, u.mqtt.Port) }
