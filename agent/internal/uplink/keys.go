package uplink

import (
	"fmt"

	mqtt "github.com/eclipse/paho.mqtt.golang"

	"wgsteer/internal/peer"
	"wgsteer/topics"
)

// receive hands a key that came in to the gateway. It is called for one message after
// the other, and must not block: the client answers pings only in between.
func (u *Uplink) receive(_ mqtt.Client, message mqtt.Message) {
	domain, err := u.keyTopic(message.Topic())
	if err != nil {
		if u.ignored.topics.Add(1) == 1 {
			u.log.Warn("message ignored (said once; counted from now on)", "error", err)
		}
		return
	}
	key, err := peer.ParseKey(string(message.Payload()))
	if err != nil {
		if u.ignored.keys.Add(1) == 1 {
			u.log.Warn("message ignored (said once; counted from now on)", "domain", domain, "error", err)
		}
		return
	}
	u.log.Debug("key received", "domain", domain, "key", key)
	u.gateway.Add(domain, key)
}

// keyTopic returns the domain of a topic that carries keys for this worker.
func (u *Uplink) keyTopic(name string) (string, error) {
	topic, err := topics.Parse(name)
	if err != nil {
		return "", err
	}
	if topic.Kind == topics.Key && (topic.Worker == topics.All || topic.Worker == u.worker) {
		for _, d := range u.domains {
			if d.name == topic.Domain {
				return d.name, nil
			}
		}
	}
	return "", fmt.Errorf("topic %q does not carry keys for this worker", name)
}
