package uplink

import (
	"fmt"
	"sync/atomic"

	mqtt "github.com/eclipse/paho.mqtt.golang"

	"wgsteer/agent/internal/gateway"
	"wgsteer/internal/peer"
	"wgsteer/internal/report"
	"wgsteer/topics"
)

// receive hands what came in to the gateway. It is called for one message after the
// other, and must not block: the client answers pings only in between.
func (u *Uplink) receive(_ mqtt.Client, message mqtt.Message) {
	topic, err := u.keyTopic(message.Topic())
	switch {
	case err != nil:
		u.ignore(&u.ignored.topics, "error", err)
	case topic.Kind == topics.Evict:
		u.evict(topic.Domain, message.Payload())
	case topic.Worker == topics.All:
		u.add(topic.Domain, message.Payload(), gateway.FromExchange)
	default:
		u.add(topic.Domain, message.Payload(), gateway.FromReplay)
	}
}

func (u *Uplink) add(domain string, payload []byte, origin gateway.Origin) {
	key, err := peer.ParseKey(string(payload))
	if err != nil {
		u.ignore(&u.ignored.keys, "domain", domain, "error", err)
		return
	}
	u.log.Debug("key received", "domain", domain, "key", key, "replayed", origin == gateway.FromReplay)
	u.gateway.Add(domain, key, origin)
}

func (u *Uplink) evict(domain string, payload []byte) {
	keys, err := report.ParseEvict(payload)
	if err != nil {
		u.ignore(&u.ignored.evictions, "domain", domain, "error", err)
		return
	}
	u.log.Debug("eviction received", "domain", domain, "keys", len(keys))
	u.gateway.Evict(domain, keys)
}

// ignore counts a message without effect, and says so once for each count.
func (u *Uplink) ignore(count *atomic.Uint64, about ...any) {
	if count.Add(1) == 1 {
		u.log.Warn("message ignored (said once; counted from now on)", about...)
	}
}

// keyTopic takes a topic apart that carries keys for this worker, in one of its domains.
func (u *Uplink) keyTopic(name string) (topics.Topic, error) {
	topic, err := topics.Parse(name)
	if err != nil {
		return topics.Topic{}, err
	}
	forUs := topic.Worker == u.worker || topic.Kind == topics.Key && topic.Worker == topics.All
	if forUs && (topic.Kind == topics.Key || topic.Kind == topics.Evict) {
		for _, d := range u.domains {
			if d.name == topic.Domain {
				return topic, nil
			}
		}
	}
	return topics.Topic{}, fmt.Errorf("topic %q does not carry keys for this worker", name)
}
