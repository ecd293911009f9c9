package bus

import (
	"slices"
	"sync/atomic"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"

	"wgsteer/internal/peer"
	"wgsteer/topics"
)

// A client that subscribes to keys of a domain is sent all that are alive, the newest
// first, past the library's queue: the queue drops what is above its limit, and stays
// free for the new keys, which overtake the replay there.

const (
	// replayChunk and replayPause pace a replay: at most 6,400 keys a second, so that
	// exchanges have the processor, too.
	replayChunk = 32
	replayPause = 5 * time.Millisecond
	// replayWindow is how many messages may be under way to a client that acknowledges
	// them, far below the limit of the library.
	replayWindow = 256
)

// startReplays starts a replay for each domain whose keys the client subscribes to now.
func (b *Bus) startReplays(cl *mqtt.Client, c *conn, filters packets.Subscriptions, codes []byte) {
	b.reports.Lock()
	domains := slices.Clone(b.domains)
	b.reports.Unlock()
	b.startReplaysOf(domains, cl, c, filters, codes)
}

func (b *Bus) startReplaysOf(domains []string, cl *mqtt.Client, c *conn, filters packets.Subscriptions, codes []byte) {
	for _, domain := range domains {
		topic, qos := b.replayTopic(cl, domain, filters, codes)
		if topic == "" {
			continue
		}
		if run := c.subscribe(domain, func() { b.replay(cl, c, domain, topic, qos) }); run != nil {
			b.replays.Go(run)
		}
	}
}

// ReplayAgain sends all clients the keys that are alive once more: there may be some that
// were neither new nor known when the clients subscribed. It does not wait for that.
func (b *Bus) ReplayAgain() {
	b.reports.Lock() // for stopping
	defer b.reports.Unlock()
	if b.stopping {
		return
	}
	for _, c := range b.listener.all() {
		for _, run := range c.again() {
			b.replays.Go(run)
		}
	}
}

// replayTopic is the topic that the keys of a domain are sent on to this client alone:
// the most special one that it subscribed to. It is empty when the client subscribed to
// none of them.
func (b *Bus) replayTopic(cl *mqtt.Client, domain string, filters packets.Subscriptions, codes []byte) (text string, qos byte) {
	worker := ""
	for i, filter := range filters {
		if codes[i] >= packets.ErrUnspecifiedError.Code {
			continue
		}
		subscribed, ok := topics.KeyFilter(filter.Filter, domain)
		if !ok {
			continue
		}
		if subscribed == "" { // a Python worker, whose client id is its name
			subscribed = cl.ID
			if topics.CheckWorker(subscribed) != nil {
				subscribed = topics.All
			}
		}
		if worker == "" || worker == topics.All {
			worker, qos = subscribed, filter.Qos
		}
	}
	if worker == "" {
		return "", 0
	}
	text, err := topics.Topic{Kind: topics.Key, Domain: domain, Worker: worker}.Build()
	if err != nil {
		return "", 0
	}
	return text, min(qos, 1)
}

// replay sends the keys of the domain that are alive. It ends early with the session.
func (b *Bus) replay(cl *mqtt.Client, c *conn, domain, topic string, qos byte) {
	began := time.Now()
	live := b.keys.Live(domain, began)
	if len(live) == 0 {
		return
	}
	pace := time.NewTicker(replayPause)
	defer pace.Stop()
	window, chunkLen := replayWindow, replayChunk
	if most := int(cl.Properties.Props.ReceiveMaximum); most > 0 { // MQTT 5
		window, chunkLen = min(window, most), min(chunkLen, most)
	}
	sent := 0
	for sent < len(live) {
		if qos == 0 || cl.State.Inflight.Len()+chunkLen <= window {
			chunk := live[sent:min(sent+chunkLen, len(live))]
			if err := b.sendKeys(cl, topic, chunk, qos); err != nil {
				b.log.Debug("replay ended early", "client", clip(cl.ID), "domain", domain, "sent", sent, "keys", len(live), "error", err)
				return
			}
			sent += len(chunk)
		}
		select {
		case <-pace.C:
		case <-c.closed:
			b.log.Debug("replay ended early", "client", clip(cl.ID), "domain", domain, "sent", sent, "keys", len(live))
			return
		}
	}
	b.metrics.replayed.Add(float64(sent))
	b.log.Info("keys replayed", "client", clip(cl.ID), "domain", domain, "keys", sent, "took", time.Since(began).Round(time.Millisecond))
}

// sendKeys writes keys to the client's connection, as slowly as the client reads.
func (b *Bus) sendKeys(cl *mqtt.Client, topic string, keys []peer.Key, qos byte) error {
	for _, key := range keys {
		message := packets.Packet{
			FixedHeader: packets.FixedHeader{Type: packets.Publish, Qos: qos},
			TopicName:   topic, Payload: []byte(key.String()), Created: time.Now().Unix(),
		}
		if qos > 0 {
			id, err := cl.NextPacketID()
			if err != nil {
				return err
			}
			message.PacketID = uint16(id)
			if cl.State.Inflight.Set(message) {
				cl.State.Inflight.DecreaseSendQuota()
				atomic.AddInt64(&b.server.Info.Inflight, 1)
			}
		}
		if err := cl.WritePacket(message); err != nil {
			return err
		}
	}
	return nil
}
