package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"wgsteer/internal/peer"
	"wgsteer/internal/steering"
	"wgsteer/server/internal/bus"
	"wgsteer/server/internal/exchange"
	"wgsteer/server/internal/keys"
	"wgsteer/server/internal/state"
)

// The size of the benchmark: connections that send exchanges, and exchanges of each
// of them in one round. Rounds are short, so that what else the machine does meets both
// sides alike.
const (
	benchWorkers     = 4
	benchConnections = 16
	benchExchanges   = 50
)

// BenchmarkExchange sends exchanges of many different keys over HTTP, with four
// workers subscribed, and takes turns with a bare echo handler that decodes the same
// JSON, publishes to the same subscribers and answers a constant. "x-echo" is the
// throughput relative to that handler's.
func BenchmarkExchange(b *testing.B) {
	site := startSite(b, nil)
	bare := serveBare(b, site.mqtt)
	site.takeTurns(b, site.api.Addr().String(), bare, "echo")
}

// BenchmarkExchangeStored sends exchanges of many new keys to a server that saves them
// on disk, and takes turns with one that keeps them in memory. "x-memory" is the
// throughput relative to that one's.
func BenchmarkExchangeStored(b *testing.B) {
	file, err := state.Open(b.Context(), b.TempDir(), discard, prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	start(b, file.Run)
	stored, memory := startSite(b, file), startSite(b, nil)
	stored.takeTurns(b, stored.api.Addr().String(), memory.api.Addr().String(), "memory")
	if err := file.Fault(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkExchangeDuringReplay measures exchanges one at a time, in turns while nothing
// else happens and while 20,000 keys are replayed to a worker. "x-latency" is the ratio of
// the medians.
func BenchmarkExchangeDuringReplay(b *testing.B) {
	const keys, exchanges = 20_000, 300
	site := startSite(b, nil)
	for range keys {
		if err := site.keys.Save("ff_a", newKey(), "", time.Now()); err != nil {
			b.Fatal(err)
		}
	}
	connection := dial(b, site.api.Addr().String())
	defer connection.Close()
	medians := func() time.Duration {
		took := make([]time.Duration, exchanges)
		for i := range took {
			began := time.Now()
			if err := connection.exchange(newKey()); err != nil {
				b.Fatal(err)
			}
			took[i] = time.Since(began)
		}
		slices.Sort(took)
		return took[exchanges/2]
	}
	var quiet, replaying time.Duration
	for b.Loop() {
		quiet += medians()
		var received atomic.Int64
		client := connect(b, site.mqtt.Addr().String(), "replayed")
		wait(b, client.Subscribe("wireguard/ff_a/replayed", 1, func(mqtt.Client, mqtt.Message) { received.Add(1) }))
		replaying += medians()
		if n := received.Load(); n == 0 || n >= keys {
			b.Fatalf("%d keys were replayed meanwhile: this measures something else", n)
		}
		client.Disconnect(0)
	}
	b.ReportMetric(float64(quiet.Microseconds())/float64(b.N), "µs-quiet")
	b.ReportMetric(float64(replaying.Microseconds())/float64(b.N), "µs-replaying")
	b.ReportMetric(replaying.Seconds()/quiet.Seconds(), "x-latency")
	b.ReportMetric(0, "ns/op")
}

var discard = slog.New(slog.DiscardHandler)

// site is a server with workers that offer the domain and take its keys.
type site struct {
	keys *keys.Store
	mqtt *bus.Bus
	api  *exchange.API
}

func startSite(b *testing.B, disk keys.Disk) site {
	registry := prometheus.NewRegistry()
	table := steering.New(steering.Settings{Domains: []string{"ff_a"}})
	store, err := keys.New(24*time.Hour, disk, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	mqttServer, err := bus.New(bus.Config{Listen: "127.0.0.1:0", Domains: []string{"ff_a"}}, table, store, nil, discard, registry)
	if err != nil {
		b.Fatal(err)
	}
	api, err := exchange.New(exchange.Config{Listen: "127.0.0.1:0"}, table, store, mqttServer, discard, registry)
	if err != nil {
		b.Fatal(err)
	}
	start(b, store.Run)
	start(b, mqttServer.Run)
	start(b, api.Run)
	for n := range benchWorkers {
		subscribe(b, mqttServer.Addr().String(), fmt.Sprintf("gw%d", n))
	}
	return site{store, mqttServer, api}
}

// takeTurns sends a round of exchanges to ours, then one to the other, and again.
func (site) takeTurns(b *testing.B, ours, other, name string) {
	var tookOurs, tookOther time.Duration
	for b.Loop() {
		tookOurs += round(b, ours)
		tookOther += round(b, other)
	}
	perRound := float64(benchConnections * benchExchanges * b.N)
	b.ReportMetric(perRound/tookOurs.Seconds(), "exchanges/s")
	b.ReportMetric(perRound/tookOther.Seconds(), name+"/s")
	b.ReportMetric(tookOther.Seconds()/tookOurs.Seconds(), "x-"+name)
	b.ReportMetric(0, "ns/op") // a round of both: says nothing
}

// start has a part of the server run until the benchmark ends.
func start(b *testing.B, part func(context.Context) error) {
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- part(ctx) }()
	b.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			b.Error(err)
		}
	})
}

// serveBare starts the handler to compare with and returns its address.
func serveBare(b *testing.B, mqttServer *bus.Bus) string {
	e := echo.New()
	e.POST("/api/v2/wg/key/exchange", func(c echo.Context) error {
		var request struct {
			Domain    string   `json:"domain"`
			PublicKey peer.Key `json:"public_key"`
		}
		if err := json.NewDecoder(c.Request().Body).Decode(&request); err != nil {
			return err
		}
		if err := mqttServer.PublishKey(request.Domain, request.PublicKey); err != nil {
			return err
		}
		return c.JSONBlob(http.StatusOK, []byte(`{"Endpoint":{"Address":"gw.example.org","Port":"40011","AllowedIPs":["fe80::27c:16ff:fec0:6c74"],"PublicKey":"TszFS3oFRdhsJP3K0VOlklGMGYZy+oFCtlaghXJqW2g="}}`))
	})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := http.Server{Handler: e}
	go server.Serve(listener)
	b.Cleanup(func() { server.Close() })
	return listener.Addr().String()
}

func wait(b *testing.B, token mqtt.Token) {
	b.Helper()
	if token.Wait(); token.Error() != nil {
		b.Fatal(token.Error())
	}
}

func connect(b *testing.B, address, id string) mqtt.Client {
	b.Helper()
	client := mqtt.NewClient(mqtt.NewClientOptions().AddBroker("tcp://" + address).SetClientID(id).SetAutoReconnect(false))
	wait(b, client.Connect())
	b.Cleanup(func() { client.Disconnect(0) })
	return client
}

// subscribe connects a worker that offers the domain and takes its keys.
func subscribe(b *testing.B, address, worker string) {
	b.Helper()
	client := connect(b, address, worker)
	wait(b, client.Subscribe("wireguard/ff_a/all", 1, func(mqtt.Client, mqtt.Message) {}))
	wait(b, client.Publish("wireguard-worker/"+worker+"/ff_a/data", 1, true,
		`{"ExternalAddress":"gw.example.org","Port":40011,"PublicKey":"TszFS3oFRdhsJP3K0VOlklGMGYZy+oFCtlaghXJqW2g=","LinkAddress":"fe80::27c:16ff:fec0:6c74"}`))
	wait(b, client.Publish("wireguard-metrics/ff_a/"+worker+"/connected_peers", 1, true, "0"))
	wait(b, client.Publish("wireguard-worker/"+worker+"/status", 1, true, "1"))
}

// round sends one round of exchanges and returns how long that took.
func round(b *testing.B, address string) time.Duration {
	var all sync.WaitGroup
	began := time.Now()
	for range benchConnections {
		all.Go(func() {
			c := dial(b, address)
			defer c.Close()
			for range benchExchanges {
				if err := c.exchange(newKey()); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

func newKey() (key peer.Key) {
	for i := range key {
		key[i] = byte(rand.Uint32())
	}
	return key
}

// connection sends exchanges, each when the last one is answered. It does as little as
// it can itself: the client is not what is measured.
type connection struct {
	net.Conn
	answers *bufio.Reader
}

func dial(b *testing.B, address string) connection {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		b.Fatal(err)
	}
	return connection{conn, bufio.NewReader(conn)}
}

func (c connection) exchange(key peer.Key) error {
	body := fmt.Sprintf(`{"domain": "ff_a", "public_key": "%s"}`, key)
	if _, err := fmt.Fprintf(c, "POST /api/v2/wg/key/exchange HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		return err
	}
	answer, err := http.ReadResponse(c.answers, nil)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("answer %s", answer.Status)
	}
	return nil
}
