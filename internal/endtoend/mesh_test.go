// Package endtoend_test tests the whole path through the real thing: the built programs
// run on the hosts of a lab, with real MQTT, HTTP, routes, forwarding databases and
// WireGuard handshakes. What they did is looked at with the tools of an operator (wg,
// ip, bridge, mosquitto_sub), not with code of theirs.
package endtoend_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"wgsteer/internal/lab"
	"wgsteer/internal/peer"
)

// programs are the paths of the programs under test.
type programs struct{ server, agent string }

// build builds them with the race detector, buildPlain without it, each once for all
// tests.
var build, buildPlain func() (programs, error)

func TestMain(m *testing.M) {
	lab.Main()
	// A program built with -race sleeps for a second before it exits, unless told not to.
	os.Setenv("GORACE", "atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	folder, err := os.MkdirTemp("", "wgsteer-endtoend-")
	if err == nil {
		err = os.Chmod(folder, 0o755) // some tests run them as another user
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	build = builder(folder, true)
	buildPlain = builder(filepath.Join(folder, "plain"), false)
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		os.RemoveAll(folder)
		os.Exit(code)
	}))
}

func builder(folder string, race bool) func() (programs, error) {
	return sync.OnceValues(func() (p programs, err error) {
		p.server, p.agent, err = lab.Build(context.Background(), folder, race)
		return p, err
	})
}

const (
	// patience is how long a test waits for what should happen, for machines that are
	// busy. It is enough for a handshake whose first message was lost: WireGuard repeats
	// it after five seconds.
	patience = 20 * time.Second
	// promptly is far below every keepalive: it bounds what must not wait for one.
	promptly = 3 * time.Second
	// timeout bounds a test.
	timeout = 4 * time.Minute
)

// domain is a mesh segment.
type domain struct {
	name string
	lab.Segment
}

var (
	welt = domain{"ffmuc_welt", lab.Segment{WireGuard: "wg-welt", VXLAN: "vx-welt", VNI: 7}}
	city = domain{"ffmuc_city", lab.Segment{WireGuard: "wg-city", VXLAN: "vx-city", VNI: 8}}
)

// mesh is a lab with a central host, where the server or another MQTT server runs, and
// gateways.
type mesh struct {
	programs
	t        testing.TB
	ctx      context.Context
	lab      *lab.Lab
	central  *lab.Host
	gateways []*gateway

	// What the config files say. A test may change it before it starts a program.
	keepalive int
	password  string
	scheme    peer.Scheme
	agent     string // more lines of the section "agent"
	state     string // the folder of the server's state
	serving   string // more lines of the section "server"
}

const username = "mesh"

// newMesh makes a mesh of a central host, for a test that also needs some tools.
func newMesh(t testing.TB, tools ...string) *mesh {
	t.Helper()
	return newMeshOf(t, build, append(tools, "mosquitto_sub", "stdbuf")...)
}

// newPlainMesh is newMesh for what is about how much programs take, of time or memory,
// and for a test with many of them: they are built without the race detector. It needs
// nothing but the lab's tools.
func newPlainMesh(t testing.TB) *mesh {
	t.Helper()
	return newMeshOf(t, buildPlain)
}

func newMeshOf(t testing.TB, build func() (programs, error), tools ...string) *mesh {
	t.Helper()
	l := lab.ForTest(t, tools...)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return &mesh{
		programs: must(build())(t), t: t, ctx: ctx, lab: l, central: must(l.Host(ctx, "central"))(t),
		keepalive: 5, password: "not-a-secret",
	}
}

// config writes the config file of a host, as its operator would, and returns its path.
func (m *mesh) config(h *lab.Host) string {
	m.t.Helper()
	text := fmt.Sprintf(`# One file for all hosts, but for the name that nodes reach a gateway by.
domains: [%s, %s]
domain_prefixes: [ffmuc_]
workers:
  gw1: {weight: 20}
  gw2: {weight: 10}
  py1: {weight: 10}
externalName: %v
mqtt:
  broker_url: %v
  username: %s
  password: %s
  keepalive: %d
server:
  state_dir: %s
%sagent:
  link_address: %v
%s`, welt.name, city.name, h.Addr(), m.central.Addr(), username, m.password, m.keepalive, m.state, m.serving, m.scheme, m.agent)
	path := filepath.Join(h.Folder(), "wgsteer.yaml")
	check(m.t, os.WriteFile(path, []byte(text), 0o644))
	return path
}

func (m *mesh) startServer(flags ...string) *lab.Program {
	m.t.Helper()
	return m.start(m.central, m.programs.server, append(flags, "--config", m.config(m.central))...)
}

// start starts a program on a host.
func (m *mesh) start(h *lab.Host, name string, args ...string) *lab.Program {
	m.t.Helper()
	return must(h.Start(m.ctx, name, args...))(m.t)
}

// startUntilKilled is start for a tool that does not end by itself, and whose end says nothing.
func (m *mesh) startUntilKilled(h *lab.Host, name string, args ...string) *lab.Program {
	m.t.Helper()
	p := m.start(h, name, args...)
	m.t.Cleanup(func() { check(m.t, p.Kill()) })
	return p
}

// run runs a command on a host and returns what it writes.
func (m *mesh) run(h *lab.Host, name string, args ...string) string {
	m.t.Helper()
	return must(h.Run(m.ctx, name, args...))(m.t)
}

// gateway is a gateway host.
type gateway struct {
	*lab.Host
	mesh *mesh
	// segments are the gateway's interfaces by domain.
	segments map[string]*lab.Gateway
}

// gateway makes a gateway host with the interfaces of some domains.
func (m *mesh) gateway(name string, domains ...domain) *gateway {
	m.t.Helper()
	g := &gateway{Host: must(m.lab.Host(m.ctx, name))(m.t), mesh: m, segments: make(map[string]*lab.Gateway)}
	for _, d := range domains {
		g.addSegment(d)
	}
	m.gateways = append(m.gateways, g)
	return g
}

func (g *gateway) addSegment(d domain) *lab.Gateway {
	g.mesh.t.Helper()
	d.Scheme = g.mesh.scheme
	segment := must(g.Gateway(g.mesh.ctx, d.Segment))(g.mesh.t)
	g.segments[d.name] = segment
	return segment
}

func (g *gateway) startAgent(flags ...string) *lab.Program {
	g.mesh.t.Helper()
	return g.mesh.start(g.Host, g.mesh.programs.agent, append(flags, "--config", g.mesh.config(g.Host))...)
}

// node makes a host that is a node.
func (m *mesh) node(name string) *lab.Node {
	m.t.Helper()
	return must(must(m.lab.Host(m.ctx, name))(m.t).Node(m.ctx, m.scheme))(m.t)
}

// connect gives the node a tunnel to the gateway, and returns when a ping has gone
// through it.
func (m *mesh) connect(n *lab.Node, g *gateway, d domain) {
	m.t.Helper()
	check(m.t, m.tryConnect(n, g, d))
}

// tryConnect is connect for goroutines other than the test's.
func (m *mesh) tryConnect(n *lab.Node, g *gateway, d domain) error {
	ctx, cancel := context.WithTimeout(m.ctx, patience)
	defer cancel()
	segment := g.segments[d.name]
	if err := n.Connect(ctx, segment.Endpoint(), d.VNI); err != nil {
		return err
	}
	if err := n.AwaitHandshake(ctx, segment.WireGuard().Key()); err != nil {
		return err
	}
	_, err := n.AwaitPing(ctx, segment.Inner())
	return err
}

// eventually fails the test when attempt does not return nil in time.
func (m *mesh) eventually(attempt func() error) {
	m.t.Helper()
	m.within(patience, attempt)
}

// within is eventually for what has to be quick.
func (m *mesh) within(limit time.Duration, attempt func() error) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.ctx, limit)
	defer cancel()
	check(m.t, lab.Eventually(ctx, attempt))
}

// all returns an attempt that succeeds when all of them do at once.
func all(attempts ...func() error) func() error {
	return func() error {
		for _, attempt := range attempts {
			if err := attempt(); err != nil {
				return err
			}
		}
		return nil
	}
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

// newKeys returns n of them.
func newKeys(n int) []peer.Key {
	keys := make([]peer.Key, n)
	for i := range keys {
		keys[i] = newKey()
	}
	return keys
}
