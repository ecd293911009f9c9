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
	"sync"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"github.com/labstack/echo/v4"
	"github.com/prometheus/client_golang/prometheus"

	"wgsteer/internal/peer"
	"wgsteer/server/internal/bus"
	"wgsteer/server/internal/exchange"
	"wgsteer/server/internal/keys"
	"wgsteer/server/internal/steering"
)

// The size of the benchmark: connections that send exchanges, and exchanges of each
// of them in one round.
const (
	benchWorkers     = 4
	benchConnections = 16
	benchExchanges   = 250
)

// BenchmarkExchange sends exchanges of many different keys over HTTP, with four
// workers subscribed, and takes turns with a bare echo handler that decodes the same
// JSON, publishes to the same subscribers and answers a constant. "x-echo" is the
// throughput relative to that handler's.
func BenchmarkExchange(b *testing.B) {
	log := slog.New(slog.DiscardHandler)
	registry := prometheus.NewRegistry()
	table := steering.NewTable([]string{"ff_a"}, func(string) uint32 { return 1 }, 0)
	store, err := keys.New(time.Hour, nil, time.Now())
	if err != nil {
		b.Fatal(err)
	}
	mqttServer, err := bus.New(bus.Config{Listen: "127.0.0.1:0", Domains: []string{"ff_a"}}, table, store, nil, log, registry)
	if err != nil {
		b.Fatal(err)
	}
	api, err := exchange.New(exchange.Config{Listen: "127.0.0.1:0"}, table, store, mqttServer, log, registry)
	if err != nil {
		b.Fatal(err)
	}
	start(b, mqttServer.Run)
	start(b, api.Run)
	bare := serveBare(b, mqttServer)
	for n := range benchWorkers {
		subscribe(b, mqttServer.Addr().String(), fmt.Sprintf("gw%d", n))
	}

	var ours, theirs time.Duration
	for b.Loop() {
		ours += round(b, api.Addr().String())
		theirs += round(b, bare)
	}
	perRound := float64(benchConnections * benchExchanges * b.N)
	b.ReportMetric(perRound/ours.Seconds(), "exchanges/s")
	b.ReportMetric(perRound/theirs.Seconds(), "echo/s")
	b.ReportMetric(theirs.Seconds()/ours.Seconds(), "x-echo")
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

// subscribe connects a worker that offers the domain and takes its keys.
func subscribe(b *testing.B, address, worker string) {
	client := mqtt.NewClient(mqtt.NewClientOptions().AddBroker("tcp://" + address).SetClientID(worker))
	wait := func(token mqtt.Token) {
		if token.Wait(); token.Error() != nil {
			b.Fatal(token.Error())
		}
	}
	wait(client.Connect())
	b.Cleanup(func() { client.Disconnect(0) })
	wait(client.Subscribe("wireguard/ff_a/all", 1, func(mqtt.Client, mqtt.Message) {}))
	wait(client.Publish("wireguard-worker/"+worker+"/ff_a/data", 1, true,
		`{"ExternalAddress":"gw.example.org","Port":40011,"PublicKey":"TszFS3oFRdhsJP3K0VOlklGMGYZy+oFCtlaghXJqW2g=","LinkAddress":"fe80::27c:16ff:fec0:6c74"}`))
	wait(client.Publish("wireguard-metrics/ff_a/"+worker+"/connected_peers", 1, true, "0"))
	wait(client.Publish("wireguard-worker/"+worker+"/status", 1, true, "1"))
}

// round sends one round of exchanges and returns how long that took.
func round(b *testing.B, address string) time.Duration {
	var all sync.WaitGroup
	began := time.Now()
	for range benchConnections {
		all.Go(func() {
			if err := exchanges(address); err != nil {
				b.Error(err)
			}
		})
	}
	all.Wait()
	return time.Since(began)
}

// exchanges sends exchanges over one connection, each when the last one is answered.
// It does as little as it can itself: the client is not what is measured.
func exchanges(address string) error {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	answers := bufio.NewReader(conn)
	for range benchExchanges {
		var key peer.Key
		for i := range key {
			key[i] = byte(rand.Uint32())
		}
		body := fmt.Sprintf(`{"domain": "ff_a", "public_key": "%s"}`, key)
		if _, err := fmt.Fprintf(conn, "POST /api/v2/wg/key/exchange HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s", len(body), body); err != nil {
			return err
		}
		answer, err := http.ReadResponse(answers, nil)
		if err != nil {
			return err
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			return err
		}
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("answer %s", answer.Status)
		}
	}
	return nil
}
