package bus

import (
	"log/slog"
	"testing"
	"time"

	"github.com/mochi-mqtt/server/v2/packets"
	"github.com/prometheus/client_golang/prometheus"

	"wgsteer/server/internal/steering"
)

func TestRetainedMessagesDoNotExpireByThemselves(t *testing.T) {
	table := steering.NewTable([]string{"ff_a"}, func(string) uint32 { return 1 }, 0)
	b, err := New(Config{Listen: "127.0.0.1:0"}, table, nil, nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
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
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if _, there := b.server.Topics.Retained.Get("test/expired"); !there {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("nothing ever expires: this test shows nothing")
		}
	}
	if _, there := b.server.Topics.Retained.Get("wireguard-worker/gw1/status"); !there {
		t.Error("a worker's status has expired")
	}
}
