package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"

	"wgsteer/internal/config"
	"wgsteer/internal/lab"
	"wgsteer/internal/report"
	"wgsteer/topics"
)

// offers is what the workers have published, heard by a client of its own: it sees
// what any other MQTT client of the mesh sees.
type offers struct {
	client mqtt.Client

	mu    sync.Mutex
	heard map[topics.Topic]bool
}

// watch connects to the server on the central host until stop.
func watch(ctx context.Context, central *lab.Host, account config.MQTT) *offers {
	o := &offers{heard: make(map[topics.Topic]bool)}
	options := mqtt.NewClientOptions().
		AddBroker("tcp://" + net.JoinHostPort(central.Addr().String(), strconv.Itoa(int(account.Port)))).
		SetClientID("demo").
		SetUsername(account.Username).
		SetPassword(account.Password).
		SetConnectRetry(true).
		SetConnectRetryInterval(100 * time.Millisecond).
		SetCustomOpenConnectionFn(func(server *url.URL, _ mqtt.ClientOptions) (net.Conn, error) {
			return central.DialContext(ctx, "tcp", server.Host)
		}).
		SetOnConnectHandler(func(client mqtt.Client) {
			client.SubscribeMultiple(map[string]byte{"wireguard-worker/#": 1, "wireguard-metrics/#": 1}, o.hear)
		})
	o.client = mqtt.NewClient(options)
	// Its end is not waited for: it comes with the first message, or not at all.
	o.client.Connect()
	return o
}

// disconnectWithin is how long stop waits for what is still being sent.
const disconnectWithin = 100 * time.Millisecond

func (o *offers) stop() { o.client.Disconnect(uint(disconnectWithin.Milliseconds())) }

// hear notes whether a message is a part of an offer.
func (o *offers) hear(_ mqtt.Client, message mqtt.Message) {
	topic, err := topics.Parse(message.Topic())
	if err != nil {
		return
	}
	good := false
	switch topic.Kind {
	case topics.Status:
		good, err = report.ParseStatus(message.Payload())
	case topics.Data:
		_, err = report.ParseData(message.Payload())
		good = true
	case topics.ConnectedPeers:
		var peers int
		peers, err = report.ParsePeers(message.Payload())
		good = peers != report.Leaving
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.heard[topic] = good && err == nil
}

// missing names what a worker has not published that it takes to offer a domain.
func (o *offers) missing(workers, domains []string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, worker := range workers {
		parts := []topics.Topic{{Kind: topics.Status, Worker: worker}}
		for _, domain := range domains {
			parts = append(parts,
				topics.Topic{Kind: topics.Data, Worker: worker, Domain: domain},
				topics.Topic{Kind: topics.ConnectedPeers, Worker: worker, Domain: domain})
		}
		for _, part := range parts {
			if !o.heard[part] {
				return fmt.Errorf("worker %s has not sent the %v of an offer (domain %q)", worker, part.Kind, part.Domain)
			}
		}
	}
	return nil
}
