package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"
)

// drawDuplicate draws a client that connects with an agent's client id: once, or again
// and again for a while; with a will on the agent's status, or without; and it leaves
// with a good-bye or by dropping its connection.
func drawDuplicate(rng *rand.Rand) fault {
	d := duplicate{
		gateway: rng.IntN(gatewayCount), will: rng.IntN(2) == 0, rude: rng.IntN(2) == 0,
		stays: between(rng, 0, 2*time.Second),
	}
	if rng.IntN(2) == 0 {
		d.fights = between(rng, time.Second, 6*time.Second)
	}
	return fault{
		params: fmt.Sprintf("%s, will: %v, stays %v, fights for %v, drops: %v", gatewayName(d.gateway), d.will, d.stays, d.fights, d.rude),
		inject: d.run,
	}
}

type duplicate struct {
	gateway       int
	will, rude    bool
	stays, fights time.Duration
}

func (d duplicate) run(ctx context.Context, m *mesh) error {
	end := time.Now().Add(d.fights)
	for {
		if err := d.session(ctx, m); err != nil {
			return err
		}
		if time.Now().After(end) {
			return nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

// session is one connection, until the agent takes it over or the duplicate leaves.
func (d duplicate) session(ctx context.Context, m *mesh) error {
	var conn net.Conn
	lost := make(chan struct{})
	options := m.mqttOptions(ctx, m.outside, gatewayName(d.gateway)).
		SetCustomOpenConnectionFn(func(server *url.URL, _ mqtt.ClientOptions) (opened net.Conn, err error) {
			conn, err = m.outside.DialContext(ctx, "tcp", server.Host)
			return conn, err
		}).
		SetConnectionLostHandler(func(mqtt.Client, error) { close(lost) })
	if d.will {
		options.SetWill("wireguard-worker/"+gatewayName(d.gateway)+"/status", "0", 1, true)
	}
	client := mqtt.NewClient(options)
	token := client.Connect()
	token.Wait()
	if token.Error() != nil {
		return nil // the agent took it over before it was there
	}
	select {
	case <-ctx.Done():
	case <-lost:
	case <-time.After(d.stays):
		if d.rude {
			conn.Close()
		}
	}
	client.Disconnect(0)
	return ctx.Err()
}
