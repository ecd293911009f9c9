package bus

import (
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/prometheus/client_golang/prometheus"

	"wgsteer/internal/peer"
	"wgsteer/internal/steering"
	"wgsteer/server/internal/keys"
)

// serve runs a bus until the end of the test.
func serve(t *testing.T) *Bus {
	t.Helper()
	table := steering.New(steering.Settings{Domains: []string{"ff_a"}})
	store, err := keys.New(time.Hour, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(Config{Listen: "127.0.0.1:0", Domains: []string{"ff_a"}}, table, store, nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	stopped := make(chan error, 1)
	go func() { stopped <- b.Run(t.Context()) }()
	t.Cleanup(func() {
		if err := <-stopped; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return b
}

// awaits fails the test when something does not become true within a minute.
func awaits(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

func TestNoSessionOutlivesItsConnection(t *testing.T) {
	b := serve(t)
	client := mqtt.NewClient(mqtt.NewClientOptions().AddBroker("tcp://" + b.Addr().String()).
		SetClientID("persistent").SetCleanSession(false).SetAutoReconnect(false))
	for _, step := range []func() mqtt.Token{
		client.Connect, func() mqtt.Token { return client.Subscribe("wireguard/ff_a/all", 1, nil) },
	} {
		if token := step(); token.Wait() && token.Error() != nil {
			t.Fatal(token.Error())
		}
	}
	client.Disconnect(0)
	awaits(t, "the server has forgotten the client", func() bool {
		_, there := b.server.Clients.Get("persistent")
		return !there
	})
}

func TestAClientThatAcknowledgesNothingIsDisconnected(t *testing.T) {
	b := serve(t)
	b.server.Options.Capabilities.MaximumInflight = 10
	tcp, err := net.Dial("tcp", b.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	// CONNECT as "x" without a keepalive, and SUBSCRIBE to # with QoS 1 (MQTT 3.1.1).
	if _, err := tcp.Write([]byte("\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01x\x82\x06\x00\x01\x00\x01#\x01")); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, tcp) // reads all, and says nothing
	}()
	awaits(t, "it has as many messages under way as it may", func() bool {
		if err := b.PublishKey("ff_a", peer.Key{1}); err != nil {
			t.Fatal(err)
		}
		cl, there := b.server.Clients.Get("x")
		return there && cl.State.Inflight.Len() >= 10
	})
	b.cutThoseWhoDoNotAcknowledge()
	<-ended
}

func TestRetainedMessagesDoNotExpireByThemselves(t *testing.T) {
	b := serve(t)
	longAgo := time.Now().AddDate(0, -3, 0).Unix()
	retain := func(topic string, expiry int64) {
		b.server.Topics.Retained.Add(topic, packets.Packet{
			FixedHeader: packets.FixedHeader{Type: packets.Publish, Retain: true},
			TopicName:   topic, Payload: []byte("1"), ProtocolVersion: 5, Created: longAgo, Expiry: expiry,
		})
	}
	retain("wireguard-worker/gw1/status", 0)
	retain("test/expired", longAgo+1) // its publisher wanted it to expire
	// When that one is gone, the server has looked at both.
	awaits(t, "what has expired is gone", func() bool {
		_, there := b.server.Topics.Retained.Get("test/expired")
		return !there
	})
	if _, there := b.server.Topics.Retained.Get("wireguard-worker/gw1/status"); !there {
		t.Error("a worker's status has expired")
	}
}
