package bus

import (
	"errors"
	"sync/atomic"
	"time"

	mqtt "github.com/mochi-mqtt/server/v2"
	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/mochi-mqtt/server/v2/system"

	"wgsteer/topics"
)

// hook is how the MQTT library calls the bus.
type hook struct {
	mqtt.HookBase
	bus *Bus
}

// ID names the hook to the library.
func (h *hook) ID() string { return "wgsteer" }

// Provides lists the calls that the hook wants.
func (h *hook) Provides(call byte) bool {
	switch call {
	case mqtt.OnConnectAuthenticate, mqtt.OnACLCheck, mqtt.OnSessionEstablish, mqtt.OnPublish,
		mqtt.OnSubscribe, mqtt.OnSubscribed, mqtt.OnUnsubscribe, mqtt.OnWillSent, mqtt.OnPublishDropped, mqtt.OnSysInfoTick:
		return true
	}
	return false
}

// OnConnectAuthenticate checks the account of a client.
func (h *hook) OnConnectAuthenticate(cl *mqtt.Client, pk packets.Packet) bool {
	if h.bus.admits(pk.Connect.Username, pk.Connect.Password) {
		return true
	}
	h.bus.rejected.addAccount(cl.ID, string(pk.Connect.Username), cl.Net.Remote)
	return false
}

// OnACLCheck allows what the library asks for: whoever has the account may do all.
func (h *hook) OnACLCheck(*mqtt.Client, string, bool) bool { return true }

// OnSessionEstablish prepares the session of a client that may connect: its will is
// looked at, then the session before it, of the same client id, is ended.
func (h *hook) OnSessionEstablish(cl *mqtt.Client, _ packets.Packet) {
	c := cl.Net.Conn.(*conn) // of our listener, the only one
	// What a client missed is in the replay: no session outlives its connection. For MQTT
	// 5 the capabilities say so.
	cl.Properties.Clean = true
	// The will comes first: a worker whose session is replaced is not offline in between.
	h.takeWill(cl, c)
	h.bus.listener.follow(cl.ID, c)
}

// takeWill looks at a client's will, which the library would send without asking
// anybody. One that could not be published is taken away, and one on a worker's
// status is the bus's own business.
func (h *hook) takeWill(cl *mqtt.Client, c *conn) {
	will := &cl.Properties.Will
	if atomic.LoadUint32(&will.Flag) == 0 || !topics.InScheme(will.TopicName) {
		return
	}
	m, err := h.bus.read(will.TopicName, will.Payload)
	if err == nil && m.topic.Kind == topics.Status && m.online {
		err = errors.New("a will that says online")
	}
	switch {
	case err != nil:
		h.bus.rejected.add(m.topic, cl.ID, err)
		atomic.StoreUint32(&will.Flag, 0)
	case m.topic.Kind == topics.Status:
		atomic.StoreUint32(&will.Flag, 0)
		speaks := h.bus.speak(m.topic.Worker)
		c.onEnd = func() { h.bus.end(speaks) }
	case m.topic.Kind == topics.Key, m.topic.Kind == topics.Handshakes, m.topic.Kind == topics.Evict:
		will.Retain = false
	}
}

// OnPublish takes what a client publishes, before it is acknowledged.
func (h *hook) OnPublish(cl *mqtt.Client, pk packets.Packet) (packets.Packet, error) {
	if cl.Net.Inline || !topics.InScheme(pk.TopicName) {
		return pk, nil // our own, or nothing of ours
	}
	if !h.bus.receive(cl.ID, pk.TopicName, pk.Payload, pk.FixedHeader.Qos) {
		return pk, packets.CodeSuccessIgnore
	}
	// A retained key would come back to life at every subscription, for ever, and an
	// eviction be repeated.
	pk.FixedHeader.Retain = false
	return pk, nil
}

// OnSubscribe lets the subscription have its packet identifier.
func (h *hook) OnSubscribe(cl *mqtt.Client, pk packets.Packet) packets.Packet {
	h.freeIdentifier(cl, pk.PacketID)
	return pk
}

// OnSubscribed has the keys replayed that the client has subscribed to.
func (h *hook) OnSubscribed(cl *mqtt.Client, pk packets.Packet, codes []byte) {
	h.bus.startReplays(cl, cl.Net.Conn.(*conn), pk.Filters, codes)
}

// OnUnsubscribe is like OnSubscribe.
func (h *hook) OnUnsubscribe(cl *mqtt.Client, pk packets.Packet) packets.Packet {
	h.freeIdentifier(cl, pk.PacketID)
	return pk
}

// freeIdentifier forgets a message that waits for the client's acknowledgement under
// a packet identifier that the client uses now. The two sides number independently
// (MQTT 3.1.1, section 2.3.1), but the library keeps one table for both and would
// refuse a subscription whose number meets that of a message under way. The message
// itself has been sent; what is lost is that the library would send it again to a
// session that is resumed.
func (h *hook) freeIdentifier(cl *mqtt.Client, id uint16) {
	inflight := cl.State.Inflight
	if waiting, ok := inflight.Get(id); ok && waiting.FixedHeader.Type == packets.Publish && inflight.Delete(id) {
		inflight.IncreaseSendQuota()
		atomic.AddInt64(&h.bus.server.Info.Inflight, -1)
	}
}

// OnWillSent takes a will on a worker's data or connected peers, which the library
// has published.
func (h *hook) OnWillSent(cl *mqtt.Client, pk packets.Packet) {
	if !topics.InScheme(pk.TopicName) {
		return
	}
	m, err := h.bus.read(pk.TopicName, pk.Payload)
	if err != nil || m.apply == nil {
		return // was checked when the client connected, and is no report
	}
	h.bus.reports.Lock()
	defer h.bus.reports.Unlock()
	m.apply(h.bus)
	if m.topic.Kind != topics.Handshakes && h.bus.memory != nil {
		h.bus.memory.SaveReport(pk.TopicName, pk.Payload)
	}
}

// OnPublishDropped is called when a client does not read what it subscribed to. It
// is disconnected: when it comes back, it knows that it has missed something.
func (h *hook) OnPublishDropped(cl *mqtt.Client, _ packets.Packet) {
	h.bus.metrics.dropped.Inc()
	h.bus.cut(cl, "it does not read")
}

// OnSysInfoTick finds messages that the library dropped without a call: those above
// the limit of unacknowledged messages.
func (h *hook) OnSysInfoTick(info *system.Info) {
	dropped := atomic.LoadInt64(&info.InflightDropped)
	if n := dropped - h.bus.inflightDropped; n > 0 {
		h.bus.metrics.dropped.Add(float64(n))
		h.bus.cutThoseWhoDoNotAcknowledge()
	}
	h.bus.inflightDropped = dropped
}

// cutThoseWhoDoNotAcknowledge disconnects the clients with the most messages under way
// that they may have, of which the library drops any more.
func (b *Bus) cutThoseWhoDoNotAcknowledge() {
	for _, cl := range b.server.Clients.GetAll() {
		if !cl.Net.Inline && !cl.Closed() && cl.State.Inflight.Len() >= int(b.server.Options.Capabilities.MaximumInflight) {
			b.cut(cl, "it does not acknowledge")
		}
	}
}

// cut disconnects a client that has missed messages. Its own goroutine runs into the
// deadline, and ends the session as any other.
func (b *Bus) cut(cl *mqtt.Client, why string) {
	b.log.Warn("MQTT client has missed messages and is disconnected", "client", clip(cl.ID), "reason", why)
	_ = cl.Net.Conn.SetDeadline(time.Now())
}
