package chaos

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"

	"wgsteer/internal/lab"
)

// mqttAddress is where the MQTT server listens.
func (m *mesh) mqttAddress() string { return netip.AddrPortFrom(m.central.Addr(), 1883).String() }

// mqttOptions are the options of a client on a host that does not reconnect.
func (m *mesh) mqttOptions(ctx context.Context, host *lab.Host, id string) *mqtt.ClientOptions {
	return mqtt.NewClientOptions().AddBroker("tcp://" + m.mqttAddress()).
		SetClientID(id).SetUsername(username).SetPassword(password).
		SetProtocolVersion(4).SetAutoReconnect(false).SetConnectTimeout(2 * time.Second).
		SetCustomOpenConnectionFn(func(server *url.URL, _ mqtt.ClientOptions) (net.Conn, error) {
			return host.DialContext(ctx, "tcp", server.Host)
		})
}

// offered returns an error unless, as any MQTT client sees it, every worker is online
// and offers every domain.
func (m *mesh) offered(ctx context.Context) error {
	var mu sync.Mutex
	said := make(map[string]string)
	wanted := 0
	options := m.mqttOptions(ctx, m.outside, "looker")
	heard := make(chan struct{}, 1)
	options.SetDefaultPublishHandler(func(_ mqtt.Client, message mqtt.Message) {
		mu.Lock()
		defer mu.Unlock()
		said[message.Topic()] = string(message.Payload())
		if len(said) == wanted {
			select {
			case heard <- struct{}{}:
			default:
			}
		}
	})
	filters := make(map[string]byte)
	for g := range m.gateways {
		filters[fmt.Sprintf("wireguard-worker/%s/status", gatewayName(g))] = 1
		for d := range segments() {
			filters[fmt.Sprintf("wireguard-metrics/%s/%s/connected_peers", domainName(d), gatewayName(g))] = 1
		}
	}
	wanted = len(filters)
	client := mqtt.NewClient(options)
	token := client.Connect()
	token.Wait()
	if err := token.Error(); err != nil {
		return fmt.Errorf("look at the offers: %w", err)
	}
	defer client.Disconnect(0)
	client.SubscribeMultiple(filters, nil)
	select {
	case <-heard:
	case <-time.After(time.Second):
	}
	mu.Lock()
	defer mu.Unlock()
	for topic := range filters {
		payload, there := said[topic]
		if !there || payload == "-1" || payload == "0" && strings.HasSuffix(topic, "/status") {
			return fmt.Errorf("%s says %q", topic, payload)
		}
	}
	return nil
}
