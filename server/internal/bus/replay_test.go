package bus_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/google/go-cmp/cmp"

	"wgsteer/internal/peer"
	"wgsteer/server/internal/bus"
)

func numbered(n int) (k peer.Key) { binary.BigEndian.PutUint32(k[:], uint32(n)+1); return k }

// accept makes keys alive in a domain, each a second younger than the one before, the
// last one now. It returns them, the newest first.
func (s *server) accept(t *testing.T, domain string, n int) []string {
	t.Helper()
	var newestFirst []string
	now := time.Now()
	for i := range n {
		if err := s.keys.Save(domain, numbered(i), "", now.Add(time.Duration(i-n)*time.Millisecond*100)); err != nil {
			t.Fatal(err)
		}
		newestFirst = append([]string{numbered(i).String()}, newestFirst...)
	}
	return newestFirst
}

// inbox collects messages.
type inbox struct {
	mu  sync.Mutex
	got []string
}

func (i *inbox) take(_ mqtt.Client, m mqtt.Message) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.got = append(i.got, m.Topic()+" "+string(m.Payload()))
}

func (i *inbox) all() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.Clone(i.got)
}

func (i *inbox) count() int { return len(i.all()) }

func TestWhoSubscribesIsSentTheKeysThatAreAlive(t *testing.T) {
	for name, tt := range map[string]struct {
		filters map[string]byte
		want    []string // topics
	}{
		"an agent":          {map[string]byte{"wireguard/ff_a/all": 1, "wireguard/ff_a/gw1": 1}, []string{"wireguard/ff_a/gw1"}},
		"a Python worker":   {map[string]byte{"wireguard/ff_a/+": 0}, []string{"wireguard/ff_a/client"}},
		"all domains":       {map[string]byte{"wireguard/+/gw1": 1}, []string{"wireguard/ff_a/gw1", "wireguard/ff_b/gw1"}},
		"only new keys":     {map[string]byte{"wireguard/ff_a/all": 1}, []string{"wireguard/ff_a/all"}},
		"something else":    {map[string]byte{"wireguard-worker/#": 1}, nil},
		"an unknown domain": {map[string]byte{"wireguard/ff_z/gw1": 1}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, bus.Config{})
			s.accept(t, "ff_a", 20)
			s.accept(t, "ff_b", 20)
			client, got := connect(t, s.options("client")), &inbox{}
			done(t, client.SubscribeMultiple(tt.filters, got.take))
			eventually(t, "all keys are there", func() bool { return got.count() >= 20*len(tt.want) })
			topics := map[string]int{}
			for _, message := range got.all() {
				topic, _, _ := strings.Cut(message, " ")
				topics[topic]++
			}
			want := map[string]int{}
			for _, topic := range tt.want {
				want[topic] = 20
			}
			if diff := cmp.Diff(want, topics); diff != "" {
				t.Errorf("keys by topic (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAReplayGoesToTheSubscriberAlone(t *testing.T) {
	s := start(t, bus.Config{})
	other := &inbox{}
	done(t, connect(t, s.options("gw2")).Subscribe("wireguard/ff_a/+", 0, other.take))
	s.accept(t, "ff_a", 20)
	got := &inbox{}
	done(t, connect(t, s.options("gw1")).Subscribe("wireguard/ff_a/+", 0, got.take))
	eventually(t, "the subscriber has all keys", func() bool { return got.count() == 20 })
	if n := other.count(); n != 0 {
		t.Errorf("the other one was sent %d keys: %v", n, other.all())
	}
}

func TestAReplayOfManyKeysIsCompleteAndNewestFirst(t *testing.T) {
	const n = 20_000
	for _, qos := range []byte{0, 1} {
		t.Run(fmt.Sprintf("QoS %d", qos), func(t *testing.T) {
			s := start(t, bus.Config{})
			now := time.Now()
			for i := range n {
				if err := s.keys.Save("ff_a", numbered(i), "", now.Add(-time.Duration(i/1000)*time.Second)); err != nil {
					t.Fatal(err)
				}
			}
			live := s.keys.Live("ff_a", now)
			got := &inbox{}
			done(t, connect(t, s.options("gw1")).Subscribe("wireguard/ff_a/gw1", qos, got.take))
			eventually(t, "all keys are there", func() bool { return got.count() == n })
			age := func(key string) int {
				return slices.IndexFunc(live, func(k peer.Key) bool { return k.String() == key }) / 1000
			}
			messages := got.all()
			for i := 0; i < n; i += 997 {
				if _, key, _ := strings.Cut(messages[i], " "); age(key) != i/1000 {
					t.Fatalf("message %d is a key of %d seconds ago, want %d", i, age(key), i/1000)
				}
			}
			if strings.Contains(s.log.String(), "dropped") {
				t.Errorf("messages were dropped:\n%s", s.log)
			}
		})
	}
}

// Keys that were read from a disk which could not be read when the server started.
func TestKeysThatAreFoundLaterReachThoseWhoSubscribedBefore(t *testing.T) {
	s := start(t, bus.Config{})
	s.accept(t, "ff_a", 10)
	agent, python := &inbox{}, &inbox{}
	done(t, connect(t, s.options("gw1")).SubscribeMultiple(map[string]byte{"wireguard/ff_a/all": 1, "wireguard/ff_a/gw1": 1}, agent.take))
	done(t, connect(t, s.options("py1")).Subscribe("wireguard/ff_b/+", 0, python.take))
	eventually(t, "the agent has the first keys", func() bool { return agent.count() == 10 })
	// Also while a replay is under way: none is forgotten.
	s.accept(t, "ff_a", 3000)
	s.accept(t, "ff_b", 10)
	s.ReplayAgain()
	s.accept(t, "ff_a", 3010)
	s.ReplayAgain()
	eventually(t, "all keys are there", func() bool {
		got := map[string]struct{}{}
		for _, message := range agent.all() {
			got[message] = struct{}{}
		}
		return len(got) == 3010 && python.count() >= 10
	})
}

// A client that acknowledges nothing gets no more than the window, and new keys all the
// same: they do not wait for the replay.
func TestNewKeysOvertakeTheReplay(t *testing.T) {
	s := start(t, bus.Config{})
	s.accept(t, "ff_a", 3000)
	tcp := s.raw(t, plainConnect("raw"))
	if _, err := io.WriteString(tcp, packet(0x82, "\x00\x01"+field("wireguard/ff_a/all")+"\x01"+field("wireguard/ff_a/gw1")+"\x01")); err != nil {
		t.Fatal(err)
	}
	if err := tcp.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	published := false
	text, buf := "", make([]byte, 64<<10)
	for !strings.Contains(text, "wireguard/ff_a/all") {
		n, err := tcp.Read(buf)
		if err != nil {
			t.Fatalf("the new key did not come: %v", err)
		}
		text += string(buf[:n])
		if !published && strings.Contains(text, "wireguard/ff_a/gw1") {
			published = true
			if err := s.PublishKey("ff_a", peer.Key{0xff}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if n := strings.Count(text, "wireguard/ff_a/gw1"); n > 400 {
		t.Errorf("the new key came after %d replayed ones, none of which was acknowledged", n)
	}
}

func TestHandshakesKeepKeysAlive(t *testing.T) {
	s := start(t, bus.Config{})
	key, gone := numbered(7), numbered(8)
	for _, k := range []peer.Key{key, gone} {
		if err := s.keys.Save("ff_a", k, "", time.Now().Add(-59*time.Minute)); err != nil { // they live for an hour
			t.Fatal(err)
		}
	}
	publish(t, connect(t, s.options("gw1")), "wgsteer/ff_a/gw1/handshakes", key.String()+"\n-"+gone.String())
	later := time.Now().Add(30 * time.Minute)
	if diff := cmp.Diff([]peer.Key{key}, s.keys.Live("ff_a", later)); diff != "" {
		t.Errorf("alive (-want +got):\n%s", diff)
	}
	if got := s.retained(t, "wgsteer/#"); len(got) != 0 {
		t.Errorf("handshakes are retained: %v", got)
	}
}

// memory is where reports survive in these tests.
type memory struct {
	mu   sync.Mutex
	kept map[string][]byte
}

func (m *memory) SaveReport(topic string, payload []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.kept[topic] = slices.Clone(payload)
}

func (m *memory) Reports() (map[string][]byte, error) { return m.kept, nil }

func TestOnlyReportsComeBackAfterARestart(t *testing.T) {
	key := numbered(7).String()
	s := startWith(t, bus.Config{}, &memory{kept: map[string][]byte{
		"wireguard/ff_a/all": []byte(key), "wgsteer/ff_a/gw1/evict": []byte(key), "wireguard-worker/gw1/status": []byte("1"),
	}})
	want := map[string]string{"wireguard-worker/gw1/status": "1"}
	if diff := cmp.Diff(want, s.retained(t, "#")); diff != "" {
		t.Errorf("retained (-want +got):\n%s", diff)
	}
}

func TestARestartedServerKnowsItsWorkersAtOnce(t *testing.T) {
	kept := &memory{kept: map[string][]byte{}}
	before := startWith(t, bus.Config{}, kept)
	offer(t, connect(t, before.worker("gw1", "gw1")), "gw1")
	offer(t, connect(t, before.worker("gw2", "gw2")), "gw2")
	publish(t, connect(t, before.options("script")), "wireguard-worker/gw2/status", "0")
	before.stop()

	after := startWith(t, bus.Config{}, kept)
	if got := after.chosen(); got != "gw1" {
		t.Errorf("right after the start a node is sent to %q, want gw1", got)
	}
	want := map[string]string{"wireguard-worker/gw1/status": "1", "wireguard-worker/gw2/status": "0"}
	got := after.retained(t, "wireguard-worker/+/status")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("retained (-want +got):\n%s", diff)
	}
}
