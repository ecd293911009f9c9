package bus_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"wgsteer/internal/logtest"
	"wgsteer/internal/peer"
	"wgsteer/internal/steering"
	"wgsteer/server/internal/bus"
	"wgsteer/server/internal/keys"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// server is a bus on a port of its own, with the table that it feeds.
type server struct {
	*bus.Bus
	table    *steering.Table
	keys     *keys.Store
	registry *prometheus.Registry
	log      *logtest.Buffer
	// stop stops it, and fails the test if that fails. Later calls do nothing.
	stop func()
}

func start(t *testing.T, config bus.Config) *server {
	t.Helper()
	return startWith(t, config, nil)
}

func startWith(t *testing.T, config bus.Config, memory bus.Memory) *server {
	t.Helper()
	s := &server{
		table:    steering.New(steering.Settings{Domains: []string{"ff_a", "ff_b"}}),
		registry: prometheus.NewPedanticRegistry(),
		log:      &logtest.Buffer{},
	}
	config.Listen = "127.0.0.1:0"
	config.Domains = []string{"ff_a", "ff_b"}
	var err error
	if s.keys, err = keys.New(time.Hour, nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	s.Bus, err = bus.New(config, s.table, s.keys, memory, slog.New(slog.NewTextHandler(s.log, nil)), s.registry)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- s.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(s.stop)
	return s
}

// options are those of a client with this id that does not come back by itself.
func (s *server) options(id string) *mqtt.ClientOptions {
	return mqtt.NewClientOptions().AddBroker("tcp://" + s.Addr().String()).SetClientID(id).
		SetAutoReconnect(false).SetKeepAlive(5 * time.Second)
}

// worker are the options of a client that has its will on the worker's status.
func (s *server) worker(id, worker string) *mqtt.ClientOptions {
	return s.options(id).SetWill("wireguard-worker/"+worker+"/status", "0", 1, true)
}

func done(t *testing.T, token mqtt.Token) {
	t.Helper()
	if !token.WaitTimeout(5 * time.Second) {
		t.Fatal("no answer from the MQTT server")
	}
	if err := token.Error(); err != nil {
		t.Fatal(err)
	}
}

func connect(t *testing.T, options *mqtt.ClientOptions) mqtt.Client {
	t.Helper()
	client := mqtt.NewClient(options)
	done(t, client.Connect())
	t.Cleanup(func() { client.Disconnect(0) })
	return client
}

func publish(t *testing.T, client mqtt.Client, topic, payload string) {
	t.Helper()
	done(t, client.Publish(topic, 1, true, payload))
}

const workerData = `{"ExternalAddress":"gw.example.org","Port":40011,"PublicKey":"TszFS3oFRdhsJP3K0VOlklGMGYZy+oFCtlaghXJqW2g=","LinkAddress":"fe80::27c:16ff:fec0:6c74"}`

// offer makes the worker offer domain ff_a.
func offer(t *testing.T, client mqtt.Client, worker string) {
	t.Helper()
	publish(t, client, "wireguard-worker/"+worker+"/ff_a/data", workerData)
	publish(t, client, "wireguard-metrics/ff_a/"+worker+"/connected_peers", "0")
	publish(t, client, "wireguard-worker/"+worker+"/status", "1")
}

// chosen is the worker that a node is sent to in domain ff_a, or "".
func (s *server) chosen() string {
	e, _ := s.table.Explain(steering.Ask{Domain: "ff_a"}, time.Now())
	return e.Chosen
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// retained returns what a new subscriber is told at once, by topic.
func (s *server) retained(t *testing.T, filter string) map[string]string {
	t.Helper()
	var mu sync.Mutex
	got := map[string]string{}
	client := connect(t, s.options("reader"))
	done(t, client.Subscribe(filter, 1, func(_ mqtt.Client, m mqtt.Message) {
		mu.Lock()
		defer mu.Unlock()
		if m.Retained() {
			got[m.Topic()] = string(m.Payload())
		}
	}))
	// Retained messages were sent before this one comes back: the end of them.
	end := make(chan struct{})
	done(t, client.Subscribe("test/end", 1, func(mqtt.Client, mqtt.Message) { close(end) }))
	done(t, client.Publish("test/end", 1, false, "x"))
	<-end
	client.Disconnect(100)
	mu.Lock()
	defer mu.Unlock()
	return got
}

func TestAReportIsInTheTableBeforeItIsAcknowledged(t *testing.T) {
	s := start(t, bus.Config{})
	client := connect(t, s.worker("gw1", "gw1"))
	offer(t, client, "gw1")
	if got := s.chosen(); got != "gw1" {
		t.Errorf("after the last acknowledgement a node is sent to %q, want gw1", got)
	}
	publish(t, client, "wireguard-metrics/ff_a/gw1/connected_peers", "-1")
	if got := s.chosen(); got != "" {
		t.Errorf("after -1 was acknowledged a node is sent to %q, want nowhere", got)
	}
}

func TestReportsAreRetained(t *testing.T) {
	s := start(t, bus.Config{})
	offer(t, connect(t, s.worker("gw1", "gw1")), "gw1")
	want := map[string]string{
		"wireguard-worker/gw1/status":                "1",
		"wireguard-worker/gw1/ff_a/data":             workerData,
		"wireguard-metrics/ff_a/gw1/connected_peers": "0",
	}
	got := s.retained(t, "wireguard-worker/#")
	for topic, payload := range s.retained(t, "wireguard-metrics/#") {
		got[topic] = payload
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("retained (-want +got):\n%s", diff)
	}
}

// cut ends a client's connection without a DISCONNECT.
func cut(t *testing.T, options *mqtt.ClientOptions) (client mqtt.Client, end func()) {
	t.Helper()
	var tcp net.Conn
	options.SetCustomOpenConnectionFn(func(server *url.URL, _ mqtt.ClientOptions) (net.Conn, error) {
		var err error
		tcp, err = net.Dial("tcp", server.Host)
		return tcp, err
	})
	client = connect(t, options)
	return client, func() { tcp.Close() }
}

// settle returns when nothing is left of the session that the client id had.
func (s *server) settle(t *testing.T, id string) {
	t.Helper()
	connect(t, s.options(id)).Disconnect(0)
}

func TestAWorkerIsOfflineWhenItsSessionEnds(t *testing.T) {
	for name, end := range map[string]func(mqtt.Client, func()){
		"by a cut":        func(_ mqtt.Client, cut func()) { cut() },
		"by a disconnect": func(client mqtt.Client, _ func()) { client.Disconnect(0) },
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, bus.Config{})
			client, cut := cut(t, s.worker("gw1", "gw1"))
			offer(t, client, "gw1")
			end(client, cut)
			eventually(t, "the worker is offline", func() bool { return s.chosen() == "" })
			if got := s.retained(t, "wireguard-worker/gw1/status")["wireguard-worker/gw1/status"]; got != "0" {
				t.Errorf("the retained status is %q, want 0", got)
			}
		})
	}
}

func TestASilentWorkerIsOfflineAfterItsKeepalive(t *testing.T) {
	s := start(t, bus.Config{})
	// A client that connects and then neither speaks nor closes: clean session, a will
	// of QoS 1, retained, a keepalive of one second.
	s.raw(t, packet(0x10, field("MQTT")+"\x04\x2e\x00\x01"+field("gw1")+field("wireguard-worker/gw1/status")+field("0")))
	offer(t, connect(t, s.options("helper")), "gw1")
	if s.chosen() != "gw1" {
		t.Fatal("the worker is not online")
	}
	eventually(t, "the worker is offline", func() bool { return s.chosen() == "" })
}

func TestATakeoverKeepsTheWorkerOnline(t *testing.T) {
	s := start(t, bus.Config{})
	offer(t, connect(t, s.worker("gw1", "gw1")), "gw1")
	for range 50 {
		client := connect(t, s.worker("gw1", "gw1")) // the same client id
		publish(t, client, "wireguard-worker/gw1/status", "1")
		if got := s.chosen(); got != "gw1" {
			t.Fatalf("after a takeover a node is sent to %q", got)
		}
	}
	if got := s.retained(t, "wireguard-worker/gw1/status")["wireguard-worker/gw1/status"]; got != "1" {
		t.Errorf("the retained status is %q, want 1", got)
	}
	if strings.Contains(s.log.String(), "worker offline") {
		t.Errorf("the worker was offline in between:\n%s", s.log)
	}
}

// An agent that is restarted is back within milliseconds, while the server is still
// busy with the end of its last session.
func TestAClientThatIsBackAtOnceGetsItsKeys(t *testing.T) {
	s := start(t, bus.Config{})
	before := connect(t, s.options("gw1"))
	for n := range 300 {
		got := make(chan struct{}, 1)
		gone := make(chan struct{})
		go func() {
			before.Disconnect(0)
			close(gone)
		}()
		client := connect(t, s.options("gw1"))
		done(t, client.Subscribe("wireguard/ff_a/all", 1, func(mqtt.Client, mqtt.Message) { got <- struct{}{} }))
		if err := s.PublishKey("ff_a", peer.Key{1}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-got:
		case <-time.After(5 * time.Second):
			t.Fatalf("no key after %d reconnects", n+1)
		}
		<-gone
		before = client
	}
}

func TestALateWillOfAReplacedSessionChangesNothing(t *testing.T) {
	s := start(t, bus.Config{})
	old, cutOld := cut(t, s.worker("gw1-old", "gw1"))
	offer(t, old, "gw1")
	young, cutYoung := cut(t, s.worker("gw1-young", "gw1")) // another client id: no takeover
	publish(t, young, "wireguard-worker/gw1/status", "1")
	cutOld()
	s.settle(t, "gw1-old")
	if got := s.chosen(); got != "gw1" {
		t.Errorf("after the old session has ended a node is sent to %q, want gw1", got)
	}
	cutYoung()
	eventually(t, "the worker is offline", func() bool { return s.chosen() == "" })
}

func TestAStatusWithoutAWillHoldsUntilTheNext(t *testing.T) {
	s := start(t, bus.Config{})
	script := connect(t, s.options("script"))
	offer(t, script, "gw1")
	script.Disconnect(0)
	eventually(t, "the script is gone", func() bool {
		return s.clients(t) == 0
	})
	if got := s.chosen(); got != "gw1" {
		t.Errorf("a node is sent to %q, want gw1", got)
	}
	publish(t, connect(t, s.options("script")), "wireguard-worker/gw1/status", "0")
	if got := s.chosen(); got != "" {
		t.Errorf("after status 0 a node is sent to %q, want nowhere", got)
	}
}

func TestAWillOnConnectedPeersIsHeard(t *testing.T) {
	s := start(t, bus.Config{})
	offer(t, connect(t, s.worker("gw1", "gw1")), "gw1")
	_, cut := cut(t, s.options("other").SetWill("wireguard-metrics/ff_a/gw1/connected_peers", "-1", 1, true))
	cut()
	eventually(t, "the domain is left", func() bool { return s.chosen() == "" })
}

// clients is how many clients the server says are connected.
func (s *server) clients(t *testing.T) int {
	t.Helper()
	families, err := s.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "wgsteer_mqtt_clients" {
			return int(family.GetMetric()[0].GetGauge().GetValue())
		}
	}
	t.Fatal("there is no metric wgsteer_mqtt_clients")
	return 0
}

func TestWhatIsMalformedHasNoEffectAndIsCounted(t *testing.T) {
	for name, tt := range map[string]struct{ topic, payload, counted string }{
		"status":                     {"wireguard-worker/gw1/status", "online", `kind="status",reason="payload"`},
		"an empty status":            {"wireguard-worker/gw1/status", "", `kind="status",reason="payload"`},
		"data":                       {"wireguard-worker/gw1/ff_a/data", "{}", `kind="data",reason="payload"`},
		"peers":                      {"wireguard-metrics/ff_a/gw1/connected_peers", "many", `kind="connected_peers",reason="payload"`},
		"a key":                      {"wireguard/ff_a/all", "key", `kind="key",reason="payload"`},
		"data of an unknown domain":  {"wireguard-worker/gw1/ff_z/data", workerData, `kind="data",reason="domain"`},
		"peers of an unknown domain": {"wireguard-metrics/ff_z/gw1/connected_peers", "1", `kind="connected_peers",reason="domain"`},
		"handshakes":                 {"wgsteer/ff_a/gw1/handshakes", "--", `kind="handshakes",reason="payload"`},
		"an eviction":                {"wgsteer/ff_a/gw1/evict", "-TszFS3oFRdhsJP3K0VOlklGMGYZy+oFCtlaghXJqW2g=", `kind="evict",reason="payload"`},
		"eviction, unknown domain":   {"wgsteer/ff_z/gw1/evict", "TszFS3oFRdhsJP3K0VOlklGMGYZy+oFCtlaghXJqW2g=", `kind="evict",reason="domain"`},
		"a topic":                    {"wireguard-metrics/ff_a/gw1/peers", "1", `kind="topic",reason="topic"`},
		"a worker called all":        {"wireguard-worker/all/status", "1", `kind="topic",reason="topic"`},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, bus.Config{})
			client := connect(t, s.worker("gw1", "gw1"))
			offer(t, client, "gw1")
			before := s.retained(t, "#")
			publish(t, client, tt.topic, tt.payload)
			publish(t, client, tt.topic, tt.payload)
			if got := s.chosen(); got != "gw1" {
				t.Errorf("a node is sent to %q, want gw1", got)
			}
			if diff := cmp.Diff(before, s.retained(t, "#")); diff != "" {
				t.Errorf("retained (-before +after):\n%s", diff)
			}
			want := fmt.Sprintf("# HELP wgsteer_mqtt_rejected_total What MQTT clients sent and had no effect, by kind of topic and reason.\n"+
				"# TYPE wgsteer_mqtt_rejected_total counter\nwgsteer_mqtt_rejected_total{%s} 2\n", tt.counted)
			if err := testutil.GatherAndCompare(s.registry, strings.NewReader(want), "wgsteer_mqtt_rejected_total"); err != nil {
				t.Error(err)
			}
			if n := strings.Count(s.log.String(), "has no effect"); n != 1 {
				t.Errorf("logged %d times, want once:\n%s", n, s.log)
			}
		})
	}
}

func TestAMalformedWillIsTakenAway(t *testing.T) {
	for name, will := range map[string][2]string{
		"no status":            {"wireguard-worker/gw1/status", "bye"},
		"online":               {"wireguard-worker/gw1/status", "1"},
		"no count":             {"wireguard-metrics/ff_a/gw1/connected_peers", "none"},
		"unknown domain":       {"wireguard-metrics/ff_z/gw1/connected_peers", "-1"},
		"no topic of the mesh": {"wireguard-worker/gw1/state", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, bus.Config{})
			offer(t, connect(t, s.worker("gw1", "gw1")), "gw1")
			before := s.retained(t, "#")
			_, cut := cut(t, s.options("other").SetWill(will[0], will[1], 1, true))
			cut()
			s.settle(t, "other")
			if got := s.chosen(); got != "gw1" {
				t.Errorf("a node is sent to %q, want gw1", got)
			}
			if diff := cmp.Diff(before, s.retained(t, "#")); diff != "" {
				t.Errorf("retained (-before +after):\n%s", diff)
			}
			if n := strings.Count(s.log.String(), "has no effect"); n != 1 {
				t.Errorf("logged %d times, want once:\n%s", n, s.log)
			}
		})
	}
}

func TestTheAccount(t *testing.T) {
	s := start(t, bus.Config{Username: "user", Password: "SECRET"})
	connect(t, s.options("right").SetUsername("user").SetPassword("SECRET"))
	for name, options := range map[string]*mqtt.ClientOptions{
		"no account":     s.options("none"),
		"wrong password": s.options("password").SetUsername("user").SetPassword("secret"),
		"wrong username": s.options("username").SetUsername("root").SetPassword("SECRET"),
		"no password":    s.options("empty").SetUsername("user"),
	} {
		t.Run(name, func(t *testing.T) {
			token := mqtt.NewClient(options).Connect()
			if !token.WaitTimeout(5 * time.Second) {
				t.Fatal("no answer")
			}
			if token.Error() == nil {
				t.Error("the client is let in")
			}
		})
	}
	if strings.Contains(s.log.String(), "SECRET") {
		t.Errorf("the log holds a password:\n%s", s.log)
	}
}

func TestKeysReachAllWorkersOfTheDomain(t *testing.T) {
	s := start(t, bus.Config{})
	key, err := peer.ParseKey("o52Ge+Rpj4CUSitVag9mS7pSXUesNM0ESnvj/wwehkg=")
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 10)
	for _, filter := range []string{"wireguard/ff_a/all", "wireguard/ff_a/+"} { // ours and a Python worker's
		client := connect(t, s.options(strings.ReplaceAll(filter, "/", "-")))
		done(t, client.Subscribe(filter, 1, func(_ mqtt.Client, m mqtt.Message) {
			got <- fmt.Sprintf("%s %s QoS %d retained %v", m.Topic(), m.Payload(), m.Qos(), m.Retained())
		}))
	}
	if err := s.PublishKey("ff_a", key); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		want := "wireguard/ff_a/all o52Ge+Rpj4CUSitVag9mS7pSXUesNM0ESnvj/wwehkg= QoS 1 retained false"
		select {
		case message := <-got:
			if message != want {
				t.Errorf("got  %s\nwant %s", message, want)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("the key did not arrive")
		}
	}
	if retained := s.retained(t, "wireguard/#"); len(retained) != 0 {
		t.Errorf("keys are retained: %v", retained)
	}
}

func TestAKeyThatAClientPublishesIsPassedOnButNotRetained(t *testing.T) {
	s := start(t, bus.Config{})
	got := make(chan string, 1)
	done(t, connect(t, s.options("worker")).Subscribe("wireguard/ff_a/+", 1, func(_ mqtt.Client, m mqtt.Message) {
		got <- m.Topic() + " " + string(m.Payload())
	}))
	publish(t, connect(t, s.options("wgkex-broker")), "wireguard/ff_a/gw1", "o52Ge+Rpj4CUSitVag9mS7pSXUesNM0ESnvj/wwehkg=")
	if want := "wireguard/ff_a/gw1 o52Ge+Rpj4CUSitVag9mS7pSXUesNM0ESnvj/wwehkg="; <-got != want {
		t.Errorf("not passed on as %q", want)
	}
	if retained := s.retained(t, "wireguard/#"); len(retained) != 0 {
		t.Errorf("keys are retained: %v", retained)
	}
}

func TestAnEvictionThatAClientPublishesIsPassedOnButNotRetained(t *testing.T) {
	const topic, keys = "wgsteer/ff_a/gw1/evict", "o52Ge+Rpj4CUSitVag9mS7pSXUesNM0ESnvj/wwehkg=\nTszFS3oFRdhsJP3K0VOlklGMGYZy+oFCtlaghXJqW2g="
	for name, send := range map[string]func(*testing.T, *server){
		"as a message": func(t *testing.T, s *server) { publish(t, connect(t, s.options("script")), topic, keys) },
		"as a will": func(t *testing.T, s *server) {
			_, cut := cut(t, s.options("script").SetWill(topic, keys, 1, true))
			cut()
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, bus.Config{})
			got := make(chan string, 1)
			done(t, connect(t, s.options("gw1")).Subscribe(topic, 1, func(_ mqtt.Client, m mqtt.Message) {
				got <- fmt.Sprintf("%s QoS %d retained %v", m.Payload(), m.Qos(), m.Retained())
			}))
			send(t, s)
			select {
			case message := <-got:
				if want := keys + " QoS 1 retained false"; message != want {
					t.Errorf("got  %s\nwant %s", message, want)
				}
			case <-time.After(5 * time.Second):
				t.Fatal("the eviction did not arrive")
			}
			if retained := s.retained(t, "wgsteer/#"); len(retained) != 0 {
				t.Errorf("evictions are retained: %v", retained)
			}
		})
	}
}

func TestRunStopsWithClientsOfEveryKindConnected(t *testing.T) {
	s := start(t, bus.Config{})
	offer(t, connect(t, s.worker("gw1", "gw1")), "gw1")
	silent, err := net.Dial("tcp", s.Addr().String()) // never says who it is
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	s.stop()
	if _, err := silent.Read(make([]byte, 1)); err == nil {
		t.Error("the silent connection is still open")
	}
}

// raw connects a client that is no more than what the test writes and reads.
func (s *server) raw(t *testing.T, connectPacket string) net.Conn {
	t.Helper()
	tcp, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tcp.Close() })
	if err := tcp.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(tcp, connectPacket); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(tcp, make([]byte, 4)); err != nil { // CONNACK
		t.Fatal(err)
	}
	return tcp
}

// packet writes an MQTT 3.1.1 packet of less than 128 bytes; field, a text in it.
func packet(kind byte, body string) string { return string([]byte{kind, byte(len(body))}) + body }
func field(text string) string             { return string([]byte{0, byte(len(text))}) + text }

// plainConnect is a CONNECT with a clean session and no keepalive.
func plainConnect(id string) string {
	return packet(0x10, field("MQTT")+"\x04\x02\x00\x00"+field(id))
}

// The numbers that a client gives its packets are its own: a subscription may have
// the number of a message that the client has not acknowledged yet.
func TestASubscriptionMayHaveTheNumberOfAMessageUnderWay(t *testing.T) {
	s := start(t, bus.Config{})
	tcp := s.raw(t, plainConnect("raw"))
	subscribe := func(number byte, filter string) {
		if _, err := io.WriteString(tcp, packet(0x82, string([]byte{0, number})+field(filter)+"\x01")); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(want string) {
		t.Helper()
		got := make([]byte, len(want))
		if _, err := io.ReadFull(tcp, got); err != nil || string(got) != want {
			t.Fatalf("got %x, %v, want %x", got, err, want)
		}
	}
	subscribe(7, "wireguard/ff_a/all")
	expect("\x90\x03\x00\x07\x01")
	key := peer.Key{1}
	if err := s.PublishKey("ff_a", key); err != nil {
		t.Fatal(err)
	}
	expect(packet(0x32, field("wireguard/ff_a/all")+"\x00\x01"+key.String()))
	subscribe(1, "wireguard/ff_b/all") // message 1 is not acknowledged
	expect("\x90\x03\x00\x01\x01")
}

func TestASubscriberThatDoesNotReadIsDisconnected(t *testing.T) {
	s := start(t, bus.Config{})
	tcp := s.raw(t, plainConnect("raw"))
	if _, err := io.WriteString(tcp, packet(0x82, "\x00\x01"+field("wireguard/+/all")+"\x00")); err != nil { // QoS 0
		t.Fatal(err)
	}
	if _, err := io.ReadFull(tcp, make([]byte, 5)); err != nil { // SUBACK
		t.Fatal(err)
	}
	eventually(t, "it is disconnected", func() bool {
		for range 1000 {
			if err := s.PublishKey("ff_a", peer.Key{1}); err != nil {
				t.Fatal(err)
			}
		}
		return s.clients(t) == 0
	})
	if !strings.Contains(s.log.String(), "it does not read") {
		t.Errorf("the log does not say why:\n%s", s.log)
	}
}

func TestAnAddressInUseIsAnError(t *testing.T) {
	s := start(t, bus.Config{})
	_, err := bus.New(bus.Config{Listen: s.Addr().String()}, s.table, s.keys, nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err == nil || !strings.Contains(err.Error(), "MQTT server") {
		t.Errorf("error %v, want one that names the MQTT server", err)
	}
}
