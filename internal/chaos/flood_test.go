package chaos

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"strings"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
	"golang.org/x/sync/errgroup"
)

// drawMQTTFlood draws messages without sense on the topics of the mesh, and connections
// on which no MQTT is spoken.
func drawMQTTFlood(rng *rand.Rand) fault {
	messages, connections, choice := 1000+rng.IntN(4000), 10+rng.IntN(40), rng.Uint64()
	return fault{
		params: fmt.Sprintf("%d messages, %d connections", messages, connections),
		inject: func(ctx context.Context, m *mesh) error {
			rng := rand.New(rand.NewPCG(choice, 0))
			if err := m.floodMQTT(ctx, messages, rng); err != nil {
				return err
			}
			return m.talkNonsense(ctx, m.mqttAddress(), connections, rng)
		},
	}
}

func (m *mesh) floodMQTT(ctx context.Context, messages int, rng *rand.Rand) error {
	client := mqtt.NewClient(m.mqttOptions(ctx, m.outside, "flood"))
	token := client.Connect()
	token.Wait()
	if err := token.Error(); err != nil {
		return fmt.Errorf("connect to flood: %w", err)
	}
	defer client.Disconnect(0)
	var last mqtt.Token
	for range messages {
		topic, payload := malformed(rng)
		last = client.Publish(topic, byte(rng.IntN(2)), rng.IntN(2) == 0, payload)
	}
	if !last.WaitTimeout(30 * time.Second) {
		return fmt.Errorf("the server takes no more messages")
	}
	return last.Error()
}

// malformed draws a topic of the mesh with a payload that it cannot have.
func malformed(rng *rand.Rand) (topic string, payload []byte) {
	noise := make([]byte, rng.IntN(2000))
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	domain, worker := domainName(rng.IntN(len(segments()))), gatewayName(rng.IntN(gatewayCount))
	topics := []string{
		"wireguard/" + domain + "/all", "wireguard/" + domain + "/" + worker,
		"wireguard-metrics/" + domain + "/" + worker + "/connected_peers",
		"wireguard-worker/" + worker + "/status",
		"wireguard-worker/" + worker + "/" + domain + "/data",
		"wgsteer/" + domain + "/" + worker + "/handshakes", "wgsteer/" + domain + "/" + worker + "/evict",
		"wireguard-worker/" + worker + "/chaos_nowhere/data",
		"wireguard-metrics/chaos_nowhere/" + worker + "/connected_peers",
		"wireguard//all", "wireguard-worker//status", "wireguard/" + domain + "/all/more",
	}
	payloads := []string{
		string(noise), "", " 1", "-2", "99999999999999999999", "1.5", "NaN", "null", "[]", `{"ExternalAddress":1}`,
		`{"ExternalAddress":"x","Port":0,"PublicKey":"","LinkAddress":"fe80::1"}`, `{"Port":40011}{`,
		strings.Repeat("A", 43) + "=", strings.Repeat("A", 44), strings.Repeat("{", 5000),
	}
	return topics[rng.IntN(len(topics))], []byte(payloads[rng.IntN(len(payloads))])
}

// drawHTTPFlood draws requests without sense, and connections on which no HTTP is spoken.
func drawHTTPFlood(rng *rand.Rand) fault {
	requests, connections, choice := 300+rng.IntN(1000), 10+rng.IntN(40), rng.Uint64()
	return fault{
		params: fmt.Sprintf("%d requests, %d connections", requests, connections),
		inject: func(ctx context.Context, m *mesh) error {
			rng := rand.New(rand.NewPCG(choice, 0))
			if err := m.floodHTTP(ctx, requests, rng); err != nil {
				return err
			}
			return m.talkNonsense(ctx, netip.AddrPortFrom(m.central.Addr(), 5000).String(), connections, rng)
		},
	}
}

// floodAtOnce is how many requests are under way at the same time.
const floodAtOnce = 8

func (m *mesh) floodHTTP(ctx context.Context, requests int, rng *rand.Rand) error {
	client := m.outside.Client()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(floodAtOnce)
	for range requests {
		method, path, body := m.malformedRequest(rng)
		group.Go(func() error {
			request, err := http.NewRequestWithContext(ctx, method, m.client.base+path, bytes.NewReader(body))
			if err != nil {
				return err
			}
			response, err := client.Do(request)
			if err != nil {
				return fmt.Errorf("%s %s: %w", method, path, err)
			}
			defer response.Body.Close()
			answer, err := io.ReadAll(response.Body)
			if err == nil && (response.StatusCode < 400 || response.StatusCode >= 500) {
				err = fmt.Errorf("%s %s with %.100q was answered with %d: %s", method, path, body, response.StatusCode, answer)
			}
			return err
		})
	}
	return group.Wait()
}

// malformedRequest draws a request that has to be refused.
func (m *mesh) malformedRequest(rng *rand.Rand) (method, path string, body []byte) {
	path = fmt.Sprintf("/api/v%d/wg/key/exchange", 1+rng.IntN(2))
	domain := rng.IntN(len(segments()))
	request := func(domain, key string) string {
		return fmt.Sprintf(`{"domain": %q, "public_key": %q}`, domain, key)
	}
	good := randomKey(rng).String()
	bodies := []string{
		"", "{", "null", "[]", "1", `"text"`, `{"domain": 1, "public_key": 2}`, `{"public_key": "` + good + `"}`,
		request("chaos_nowhere", good), request(domainName(domain), ""), request(domainName(domain), good[:43]),
		request(domainName(domain), strings.Repeat("A", 43)+"="), request(domainName(domain), good[:42]+"_="),
		request(domainName(domain), m.gateways[rng.IntN(gatewayCount)].segments[domain].WireGuard().Key().String()),
		request(domainName(domain), strings.Repeat(good, 200)), strings.Repeat("[", 4000), "\x00\xff\xfe",
	}
	body = []byte(bodies[rng.IntN(len(bodies))])
	switch rng.IntN(10) {
	case 0:
		return []string{http.MethodGet, http.MethodPut, http.MethodDelete}[rng.IntN(3)], path, body
	case 1:
		return http.MethodPost, path + "/more", body
	}
	return http.MethodPost, path, body
}

// talkNonsense opens connections, writes to them and drops them.
func (m *mesh) talkNonsense(ctx context.Context, address string, connections int, rng *rand.Rand) error {
	for range connections {
		noise := make([]byte, rng.IntN(4000))
		for i := range noise {
			noise[i] = byte(rng.Uint32())
		}
		conn, err := m.outside.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		_, _ = conn.Write(noise) // the server may hang up first
		conn.Close()
	}
	return nil
}
