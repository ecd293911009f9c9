package uplink

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"

	"wgsteer/agent/internal/gateway"
	"wgsteer/internal/report"
)

const (
	// connectTimeout bounds an attempt to connect, handshakes included.
	connectTimeout = 5 * time.Second
	// writeTimeout bounds a write to a connection that takes no more.
	writeTimeout = time.Second
	// minKeepalive is the shortest keepalive that works: with one second, the client's
	// signs of life come later than a server waits that rounds 1½ seconds down.
	minKeepalive = 2 * time.Second
	// goodbyeTimeout bounds the wait for the server to acknowledge our last words,
	// hangUpTimeout that for the connection to close after it.
	goodbyeTimeout = time.Second
	hangUpTimeout  = 250 * time.Millisecond
)

// errSubscribe says that the server did not accept our subscriptions.
var errSubscribe = errors.New("subscribe to keys")

// session is one connection. Whatever it published is published again by the next one:
// nothing is remembered from one to the other, by us or the server.
type session struct {
	*Uplink
	client mqtt.Client
	lost   chan error
	// told are the reports as they were last published, by domain.
	told map[string]gateway.Report
}

// session connects and stays connected until the connection is lost or ctx is done. It
// tells whether it was connected, and returns the error that ended it or kept it from that.
func (u *Uplink) session(ctx context.Context) (connected bool, err error) {
	s := &session{Uplink: u, lost: make(chan error, 1), told: make(map[string]gateway.Report)}
	if err := s.connect(ctx); err != nil {
		return false, err
	}
	// The client may still be stopping when a session ends by itself.
	defer s.client.Disconnect(uint(hangUpTimeout.Milliseconds()))
	if err := s.introduce(ctx); err != nil {
		s.goodbye()
		return false, err
	}
	u.log.Info("connected to the MQTT server", "server", u.server())
	for {
		select {
		case <-ctx.Done():
			s.goodbye()
			return true, nil
		case err := <-s.lost:
			return true, err
		case <-u.gateway.Changed():
			s.publishChanges()
		}
	}
}

// connect opens the connection.
//
// The client's own reconnecting is not used: it has no jitter at the first attempt,
// and it keeps messages that are outdated when they are sent at last.
func (s *session) connect(ctx context.Context) error {
	opened := func() bool { return true }
	options := mqtt.NewClientOptions().
		AddBroker("tcp://"+net.JoinHostPort(s.mqtt.Host, strconv.Itoa(int(s.mqtt.Port)))).
		SetClientID(s.worker).
		SetUsername(s.mqtt.Username).
		SetPassword(s.mqtt.Password).
		SetProtocolVersion(4). // 3.1.1: without it, a refusal is asked for again in 3.1
		SetCleanSession(true).
		SetAutoReconnect(false).
		SetConnectRetry(false).
		SetConnectTimeout(connectTimeout).
		SetWriteTimeout(writeTimeout).
		SetKeepAlive(max(s.mqtt.Keepalive, minKeepalive)).
		// The client looks at its timers every quarter of the keepalive: it asks for a
		// sign of life after at most 1¼ keepalives, and gives up at the next look.
		SetPingTimeout(max(s.mqtt.Keepalive, minKeepalive)/5).
		SetWill(s.status, report.Offline, 1, true).
		SetDefaultPublishHandler(s.receive).
		SetConnectionLostHandler(func(_ mqtt.Client, err error) { s.lost <- err }).
		SetCustomOpenConnectionFn(func(*url.URL, mqtt.ClientOptions) (net.Conn, error) {
			conn, err := s.dial(ctx)
			if err == nil {
				opened = context.AfterFunc(ctx, func() { conn.Close() })
			}
			return conn, err
		})
	s.client = mqtt.NewClient(options)
	token := s.client.Connect()
	<-token.Done() // at the end of ctx, or of connectTimeout, at the latest
	if err := token.Error(); err != nil {
		return err
	}
	opened() // from now on the end of ctx does not close the connection: goodbye does
	return nil
}

// dial opens the network connection.
func (s *session) dial(ctx context.Context) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if s.mqtt.TLS {
		dialer := tls.Dialer{Config: &tls.Config{ServerName: s.mqtt.Host, MinVersion: tls.VersionTLS12}}
		return dialer.DialContext(ctx, "tcp", s.server())
	}
	return new(net.Dialer).DialContext(ctx, "tcp", s.server())
}

// introduce subscribes and publishes everything.
//
// The status comes last, and only after the server has confirmed the subscriptions: a
// worker is given nodes from its status on, and must by then hear of every key.
func (s *session) introduce(ctx context.Context) error {
	s.gateway.BeginSession() // from the subscriptions on, keys arrive
	for some := range slices.Chunk(s.domains, subscribeAtOnce) {
		if err := s.subscribe(ctx, some); err != nil {
			return err
		}
	}
	s.publishChanges()
	s.client.Publish(s.status, 1, true, report.Online)
	return nil
}

// subscribeAtOnce is for how many domains one packet subscribes: far below the 64
// kilobytes that the server takes, however long the names.
const subscribeAtOnce = 30

// subscribe subscribes to the keys and evictions of domains, and returns when the server has confirmed it.
func (s *session) subscribe(ctx context.Context, domains []domainTopics) error {
	filters := make(map[string]byte, 3*len(domains))
	for _, d := range domains {
		filters[d.allKeys], filters[d.myKeys], filters[d.evict] = 1, 1, 1
	}
	token := s.client.SubscribeMultiple(filters, nil).(*mqtt.SubscribeToken)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-s.lost:
		return fmt.Errorf("%w: %w", errSubscribe, err)
	case <-time.After(connectTimeout):
		return fmt.Errorf("%w: no answer within %v", errSubscribe, connectTimeout)
	case <-token.Done():
	}
	if err := token.Error(); err != nil {
		return fmt.Errorf("%w: %w", errSubscribe, err)
	}
	for filter, granted := range token.Result() {
		if granted > 2 { // 0x80: failure (MQTT 3.1.1, section 3.9.3)
			return fmt.Errorf("%w: the server refuses %s", errSubscribe, filter)
		}
	}
	return nil
}

// publishChanges publishes what has not been published as it is now.
func (s *session) publishChanges() {
	for _, d := range s.domains {
		now := s.gateway.Report(d.name)
		// The server takes a count to be one of those that it was told of before.
		for some := range slices.Chunk(s.gateway.Handshakes(d.name), report.MaxHandshakes) {
			s.client.Publish(d.handshakes, 1, false, report.FormatHandshakes(some))
		}
		before, told := s.told[d.name]
		s.told[d.name] = now
		if now.Offered {
			s.offer(d, before, now)
		} else if before.Offered || !told {
			// At the start of a session, too: an earlier agent may have left an offer that
			// the server still has.
			s.leave(d)
		}
	}
}

// offer publishes what is new in the report of a domain that is offered.
func (s *session) offer(d domainTopics, before, now gateway.Report) {
	if now.Data != before.Data || !before.Offered {
		data, err := now.Data.Format()
		if err != nil {
			s.log.Error("data cannot be published", "domain", d.name, "error", err)
			return
		}
		s.client.Publish(d.data, 1, true, data)
	}
	if !now.Counted.Equal(before.Counted) || !before.Offered {
		s.client.Publish(d.peers, 0, true, report.FormatPeers(now.Connected))
	}
}

// leave tells the server to send no more nodes of the domain here.
func (s *session) leave(d domainTopics) mqtt.Token {
	return s.client.Publish(d.peers, 1, true, report.FormatPeers(report.Leaving))
}

// goodbye takes the worker offline and disconnects, which keeps the server from
// publishing the will.
func (s *session) goodbye() {
	end := time.Now().Add(goodbyeTimeout)
	var tokens []mqtt.Token
	for _, d := range s.domains {
		if s.told[d.name].Offered && time.Now().Before(end) {
			tokens = append(tokens, s.leave(d))
		}
	}
	tokens = append(tokens, s.client.Publish(s.status, 1, true, report.Offline))
	for _, token := range tokens {
		token.WaitTimeout(max(0, time.Until(end)))
	}
	s.client.Disconnect(uint(hangUpTimeout.Milliseconds()))
}
