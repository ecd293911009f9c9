package bus

import (
	"errors"
	"fmt"
	"time"

	"wgsteer/internal/peer"
	"wgsteer/internal/report"
	"wgsteer/topics"
)

// message is a publish or a will, read and found right.
type message struct {
	topic   topics.Topic
	payload []byte
	// apply records what a report says, unless it is a status. It is nil for what is
	// only passed on: a key or an eviction.
	apply func(*Bus)
	// online is the status in a status report.
	online bool
}

// errDomain is the reason to reject what is about a domain that is not configured.
var errDomain = errors.New("domain is not configured")

// read checks a topic of the mesh and what was published on it.
func (b *Bus) read(topic string, payload []byte) (m message, err error) {
	m.payload = payload
	if m.topic, err = topics.Parse(topic); err != nil {
		return message{}, err
	}
	t := m.topic
	if t.Kind != topics.Status && !b.table.Knows(t.Domain) {
		return message{topic: t}, fmt.Errorf("%w: %q", errDomain, t.Domain)
	}
	switch t.Kind {
	case topics.Key:
		_, err = peer.ParseKey(string(payload))
	case topics.Status:
		m.online, err = report.ParseStatus(payload)
	case topics.Data:
		var data report.Data
		data, err = report.ParseData(payload)
		m.apply = func(b *Bus) { b.table.SetData(t.Worker, t.Domain, data) }
	case topics.ConnectedPeers:
		var peers int
		peers, err = report.ParsePeers(payload)
		m.apply = func(b *Bus) { b.table.SetPeers(t.Worker, t.Domain, peers, time.Now()) }
	case topics.Handshakes:
		var handshakes []report.Handshake
		handshakes, err = report.ParseHandshakes(payload)
		m.apply = func(b *Bus) {
			now := time.Now()
			b.keys.Handshakes(t.Domain, connected(handshakes), now)
			b.table.Seen(t.Worker, t.Domain, handshakes, now)
		}
	case topics.Evict:
		_, err = report.ParseEvict(payload)
	}
	if err != nil {
		return message{topic: t}, err
	}
	return m, nil
}

// connected returns the keys that are not gone.
func connected(handshakes []report.Handshake) []peer.Key {
	keys := make([]peer.Key, 0, len(handshakes))
	for _, h := range handshakes {
		if !h.Gone {
			keys = append(keys, h.Key)
		}
	}
	return keys
}

// receive takes what a client published on a topic of the mesh. It returns whether
// the library should pass it on: reports of a worker's state are published from here.
func (b *Bus) receive(client, topic string, payload []byte, qos byte) (passOn bool) {
	m, err := b.read(topic, payload)
	if errors.Is(err, errDomain) && b.keepUnknown(m.topic, topic, payload) {
		m, err = b.read(topic, payload)
	}
	if err != nil {
		b.rejected.add(m.topic, client, err)
		return false
	}
	switch m.topic.Kind {
	case topics.Key, topics.Evict:
		return true
	case topics.Handshakes:
		m.apply(b)
		return true
	}
	b.reports.Lock()
	defer b.reports.Unlock()
	if m.topic.Kind == topics.Status {
		delete(b.awaited, m.topic.Worker)
		b.setStatus(m.topic.Worker, m.online, "it says so")
	} else {
		delete(b.unknown, topic)
		m.apply(b)
	}
	b.publishAndSave(m.topic, payload, qos)
	return false
}

// publish publishes a report, retained. Bus.reports is held.
func (b *Bus) publish(topic topics.Topic, payload []byte, qos byte) (text string) {
	text, err := topic.Build()
	if err == nil {
		err = b.server.Publish(text, payload, true, qos)
	}
	if err != nil {
		b.log.Error("report cannot be published", "topic", text, "error", err)
	}
	return text
}

// publishAndSave also keeps the report for after a restart.
func (b *Bus) publishAndSave(topic topics.Topic, payload []byte, qos byte) {
	text := b.publish(topic, payload, qos)
	if b.memory != nil {
		b.memory.SaveReport(text, payload)
	}
}
