package main_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"

	"wgsteer/internal/lab"
	"wgsteer/internal/peer"
)

// timeout bounds what a test waits for, for machines that are busy.
const timeout = 60 * time.Second

const port = "1883"

// The domains of the tests, and what gateways have for them.
var (
	welt = lab.Segment{WireGuard: "wg-welt", VXLAN: "vx-welt", VNI: 7}
	city = lab.Segment{WireGuard: "wg-city", VXLAN: "vx-city", VNI: 8}
)

// site is a lab with a central host, where an MQTT server can run, and a gateway host,
// where the agent can.
type site struct {
	t        testing.TB
	ctx      context.Context
	lab      *lab.Lab
	central  *lab.Host
	gateway  *lab.Host
	agentBin string
}

func newSite(t testing.TB) *site { return newSiteWith(t, buildAgent(t, "-race")) }

func newSiteWith(t testing.TB, agentBin string) *site {
	l := lab.ForTest(t)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	s := &site{t: t, ctx: ctx, lab: l, agentBin: agentBin}
	s.central = must(l.Host(ctx, "central"))(t)
	s.gateway = must(l.Host(ctx, "gw1"))(t)
	return s
}

// buildAgent builds the agent as `go build` with these arguments does.
func buildAgent(t testing.TB, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "wgsteer-agent")
	cmd := exec.CommandContext(t.Context(), "go", slices.Concat([]string{"build", "-o", path}, args, []string{"wgsteer/agent"})...)
	if !slices.Contains(args, "-race") {
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return path
}

// broker is the address of the MQTT server.
func (s *site) broker() string { return net.JoinHostPort(s.central.Addr().String(), port) }

func (s *site) startBroker() *lab.Program {
	s.t.Helper()
	self := must(os.Executable())(s.t)
	return must(s.central.Start(s.ctx, "env", serveMQTT+"="+s.broker(), self))(s.t)
}

// config is the agent's config file: with more, lines for its end.
func (s *site) config(more ...string) string {
	s.t.Helper()
	text := fmt.Sprintf(`domains: [ffmuc_welt, ffmuc_city]
domain_prefixes: [ffmuc_]
externalName: gw04.ext.ffmuc.net
mqtt: {broker_url: %v, broker_port: %s, keepalive: 1}
agent:
  worker: gw1
  report_interval: 1s
`, s.central.Addr(), port)
	for _, line := range more {
		text += "  " + line + "\n"
	}
	path := filepath.Join(s.gateway.Folder(), "wgsteer.yaml")
	check(s.t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func (s *site) startAgent(more ...string) *lab.Program {
	s.t.Helper()
	// A program built with -race sleeps for a second before it exits, unless told not to.
	return must(s.gateway.Start(s.ctx, "env", "GORACE=atexit_sleep_ms=0",
		s.agentBin, "--log-level", "debug", "--config", s.config(more...)))(s.t)
}

// eventually fails the test when attempt does not return nil in time.
func (s *site) eventually(attempt func() error) {
	s.t.Helper()
	check(s.t, lab.Eventually(s.ctx, attempt))
}

// within is eventually for what has to be quick.
func (s *site) within(limit time.Duration, attempt func() error) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, limit)
	defer cancel()
	check(s.t, lab.Eventually(ctx, attempt))
}

// show runs a command on the gateway.
func (s *site) show(command string) string {
	s.t.Helper()
	words := strings.Fields(command)
	return must(s.gateway.Run(s.ctx, words[0], words[1:]...))(s.t)
}

// hasAll returns an error unless the key is completely there in the segment.
func (s *site) hasAll(in lab.Segment, key peer.Key) error {
	address := in.Scheme.LinkAddress(key)
	for command, want := range map[string]string{
		"wg show " + in.WireGuard + " allowed-ips":       fmt.Sprintf("%v\t%v/128\n", key, address),
		"ip -6 route show proto 119 dev " + in.WireGuard: fmt.Sprintf("%v ", address),
		"bridge fdb show dev " + in.VXLAN:                fmt.Sprintf("00:00:00:00:00:00 dst %v via %s self permanent", address, in.WireGuard),
	} {
		words := strings.Fields(command)
		got, err := s.gateway.Run(s.ctx, words[0], words[1:]...)
		if err != nil {
			return err
		}
		if !strings.Contains(got, want) {
			return fmt.Errorf("%s: want %q in:\n%s", command, want, got)
		}
	}
	return nil
}

// mentions returns an error when anything on the segment's interfaces is about the address.
func (s *site) mentions(in lab.Segment, address netip.Addr) error {
	for _, command := range []string{
		"wg show " + in.WireGuard + " allowed-ips",
		"ip -6 route show dev " + in.WireGuard,
		"bridge fdb show dev " + in.VXLAN,
	} {
		if got := s.show(command); strings.Contains(got, address.String()) {
			return fmt.Errorf("%s: %v is still in:\n%s", command, address, got)
		}
	}
	return nil
}

// observer is an MQTT client that sees everything and can publish.
type observer struct {
	s      *site
	client mqtt.Client

	mu   sync.Mutex
	last map[string]string
	seen []string // "topic payload", in order
}

// observe connects an observer, as soon as the server is there.
func (s *site) observe() *observer {
	s.t.Helper()
	o := &observer{s: s, last: make(map[string]string)}
	s.eventually(func() error {
		options := mqtt.NewClientOptions().AddBroker("tcp://" + s.broker()).SetClientID("observer").SetAutoReconnect(false).
			SetCustomOpenConnectionFn(func(*url.URL, mqtt.ClientOptions) (net.Conn, error) {
				return s.central.DialContext(s.ctx, "tcp", s.broker())
			})
		o.client = mqtt.NewClient(options)
		token := o.client.Connect()
		token.Wait()
		return token.Error()
	})
	token := o.client.Subscribe("#", 1, func(_ mqtt.Client, m mqtt.Message) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.last[m.Topic()] = string(m.Payload())
		o.seen = append(o.seen, m.Topic()+" "+string(m.Payload()))
	})
	token.Wait()
	check(s.t, token.Error())
	s.t.Cleanup(func() { o.client.Disconnect(100) })
	return o
}

// says returns an error unless the last payload on the topic is this.
func (o *observer) says(topic, payload string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if got, ok := o.last[topic]; !ok || got != payload {
		return fmt.Errorf("%s says %q (%v), want %q", topic, got, ok, payload)
	}
	return nil
}

// history returns what was seen so far.
func (o *observer) history() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.seen)
}

func (o *observer) publish(topic, payload string) {
	o.s.t.Helper()
	token := o.client.Publish(topic, 1, false, payload)
	token.Wait()
	check(o.s.t, token.Error())
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		check(t, err)
		return v
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newKey returns a key that nobody has the private half of.
func newKey() peer.Key {
	var key peer.Key
	_, _ = rand.Read(key[:]) // never fails
	return key
}
