package bus

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"wgsteer/topics"
)

// metrics are the counters of the bus.
type metrics struct {
	rejected *prometheus.CounterVec
	dropped  prometheus.Counter
	replayed prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) *metrics {
	m := &metrics{
		rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wgsteer_mqtt_rejected_total",
			Help: "What MQTT clients sent and had no effect, by kind of topic and reason.",
		}, []string{"kind", "reason"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "wgsteer_mqtt_dropped_total",
			Help: "Messages that did not reach a subscriber because it was too slow.",
		}),
		replayed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "wgsteer_mqtt_replayed_keys_total",
			Help: "Keys that were sent to clients that had just subscribed.",
		}),
	}
	registry.MustRegister(m.rejected, m.dropped, m.replayed)
	return m
}

// rejections counts what had no effect, and logs it once per worker and kind.
type rejections struct {
	log   *slog.Logger
	total *prometheus.CounterVec

	mu     sync.Mutex
	logged map[rejection]struct{}
}

// rejection is what is logged once.
type rejection struct{ from, kind, reason string }

// maxLogged bounds how many rejections are remembered as logged: names come from
// outside. More are counted only.
const maxLogged = 10_000

func newRejections(log *slog.Logger, total *prometheus.CounterVec) *rejections {
	return &rejections{log: log, total: total, logged: make(map[rejection]struct{})}
}

// maxText bounds, in bytes, what is kept and logged of a text that a client chose.
const maxText = 64

func clip(text string) string {
	if len(text) <= maxText {
		return text
	}
	return strings.ToValidUTF8(text[:maxText], "") + "…"
}

// add counts a message that was rejected. Its topic is zero when it is none of the
// mesh's.
func (r *rejections) add(topic topics.Topic, client string, err error) {
	client = clip(client)
	rejected := rejection{from: clip(topic.Worker), kind: topic.Kind.String(), reason: "payload"}
	switch {
	case topic == (topics.Topic{}):
		rejected = rejection{from: client, kind: "topic", reason: "topic"}
	case errors.Is(err, errDomain):
		rejected.reason = "domain"
	}
	r.count(rejected, "MQTT message has no effect", "client", client, "worker", clip(topic.Worker), "domain", clip(topic.Domain), "error", err)
}

// addAccount counts a client that was not let in, and logs it once per host.
func (r *rejections) addAccount(client, username, remote string) {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	r.count(rejection{from: host, kind: "connect", reason: "account"},
		"MQTT client is not let in: wrong username or password", "client", clip(client), "username", clip(username), "source", remote)
}

func (r *rejections) count(rejected rejection, message string, fields ...any) {
	r.total.WithLabelValues(rejected.kind, rejected.reason).Inc()
	r.mu.Lock()
	_, known := r.logged[rejected]
	full := len(r.logged) >= maxLogged
	if !known && !full {
		r.logged[rejected] = struct{}{}
	}
	r.mu.Unlock()
	if !known && !full {
		r.log.Warn(message+" (logged once, counted always)", fields...)
	}
}
