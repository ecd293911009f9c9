package bus

import (
	"bytes"
	"errors"
	"slices"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"wgsteer/topics"
)

// A domain can be configured while the server runs. Gateways may serve it before: what
// they reported of it is remembered until then, because they do not repeat all of it.

const (
	// maxUnknown bounds how many topics of domains that are not configured are remembered,
	// and maxUnknownLen, in bytes, what of one is: names and payloads come from outside.
	maxUnknown    = 1000
	maxUnknownLen = 2 << 10
)

// AddDomains serves more domains, which the table knows already: what workers reported of
// them before counts now, and clients are sent the keys that they subscribed to.
func (b *Bus) AddDomains(domains []string) {
	b.reports.Lock()
	defer b.reports.Unlock()
	if b.stopping {
		return
	}
	for _, domain := range domains {
		if !slices.Contains(b.domains, domain) {
			b.domains = append(b.domains, domain)
		}
	}
	b.takeUnknown()
	// A client that subscribes from now on finds the domains in the list.
	for _, cl := range b.server.Clients.GetAll() {
		if !cl.Net.Inline {
			b.replayAdded(domains, cl)
		}
	}
}

// replayAdded sends a client the keys of added domains that it subscribed to before.
func (b *Bus) replayAdded(domains []string, cl *mqtt.Client) {
	c, ok := cl.Net.Conn.(*conn)
	if !ok {
		return
	}
	var filters packets.Subscriptions
	for _, filter := range cl.State.Subscriptions.GetAll() {
		filters = append(filters, filter)
	}
	b.startReplaysOf(domains, cl, c, filters, make([]byte, len(filters)))
}

// keepUnknown remembers what a worker reported of a domain that is not configured. It
// returns whether the domain is configured by now, and then remembers nothing.
func (b *Bus) keepUnknown(topic topics.Topic, text string, payload []byte) (known bool) {
	b.reports.Lock()
	defer b.reports.Unlock()
	if b.table.Knows(topic.Domain) {
		return true
	}
	b.remember(topic, text, payload)
	return false
}

// remember is keepUnknown with Bus.reports held.
func (b *Bus) remember(topic topics.Topic, text string, payload []byte) {
	if topic.Kind != topics.Data && topic.Kind != topics.ConnectedPeers || len(payload) > maxUnknownLen {
		return // keys and handshakes are no state
	}
	if _, there := b.unknown[text]; there || len(b.unknown) < maxUnknown {
		b.unknown[text] = bytes.Clone(payload)
	}
}

// takeUnknown takes what was remembered of domains that are configured by now.
func (b *Bus) takeUnknown() {
	for text, payload := range b.unknown {
		m, err := b.read(text, payload)
		switch {
		case errors.Is(err, errDomain):
			continue
		case err != nil:
			b.rejected.add(m.topic, m.topic.Worker, err)
		default:
			m.apply(b)
			b.publishAndSave(m.topic, payload, 1)
		}
		delete(b.unknown, text)
	}
}
