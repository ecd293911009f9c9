package endtoend_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"wgsteer/internal/lab"
)

// household is a node that looks after its tunnel, as the firmware does but sooner: when
// the tunnel is dead it asks, and connects to where it is sent.
type household struct {
	*lab.Node
	mesh   *mesh
	domain domain

	mu    sync.Mutex
	alive bool
	// tries are the gateways that it was sent to since it last had a tunnel, in order.
	tries []string
	most  int // that it needed
}

const (
	// looksEvery is the time between two looks at the tunnel, of which deadAfter have to
	// fail for it to be dead.
	looksEvery = 500 * time.Millisecond
	deadAfter  = 3
	// connectsWithin is how long a new tunnel may take: longer than it takes WireGuard to
	// repeat a handshake, and than the server repeats an answer.
	connectsWithin = 7 * time.Second
)

// household makes a node that looks after its tunnel until the test ends.
func (m *mesh) household(name string, d domain) *household {
	m.t.Helper()
	h := &household{Node: m.node(name), mesh: m, domain: d}
	ctx, stop := context.WithCancel(m.ctx)
	var living sync.WaitGroup
	living.Go(func() { h.live(ctx) })
	m.t.Cleanup(func() {
		stop()
		living.Wait()
	})
	return h
}

func (h *household) live(ctx context.Context) {
	for ctx.Err() == nil {
		to, err := h.ask(ctx)
		if err != nil {
			if ctx.Err() == nil {
				h.mesh.t.Errorf("%s: %v", h.Name(), err)
			}
			return
		}
		within, cancel := context.WithTimeout(ctx, connectsWithin)
		_, err = h.AwaitPing(within, to.segments[h.domain.name].Inner())
		cancel()
		if err == nil {
			h.set(true)
			h.watch(ctx, to)
			h.set(false)
		}
	}
}

// ask makes an exchange and configures the tunnel that the answer says.
func (h *household) ask(ctx context.Context) (*gateway, error) {
	status, body, err := h.Post(ctx, h.mesh.url(), "v2", h.domain.name)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("the exchange answers %d %s", status, body)
	}
	if err != nil {
		return nil, err
	}
	name, err := h.mesh.named(h.domain, string(body))
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	h.tries = append(h.tries, name)
	h.mu.Unlock()
	i := slices.IndexFunc(h.mesh.gateways, func(g *gateway) bool { return g.Name() == name })
	to := h.mesh.gateways[i]
	return to, h.Connect(ctx, to.segments[h.domain.name].Endpoint(), h.domain.VNI)
}

// watch returns when the tunnel is dead.
func (h *household) watch(ctx context.Context, to *gateway) {
	tick := time.NewTicker(looksEvery)
	defer tick.Stop()
	for failed := 0; failed < deadAfter; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if _, err := h.Ping(ctx, to.segments[h.domain.name].Inner()); err != nil {
			failed++
		} else {
			failed = 0
		}
	}
}

func (h *household) set(alive bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.alive = alive; alive {
		h.most = max(h.most, len(h.tries))
		h.tries = h.tries[len(h.tries)-1:]
		return
	}
	h.tries = nil
}

// where is the gateway that it has a tunnel to, empty when it has none.
func (h *household) where() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.alive {
		return ""
	}
	return h.tries[0]
}

// live returns an attempt that succeeds when all have tunnels, so many to each gateway.
func live(all []*household, want map[string]int) func() error {
	return func() error {
		got := make(map[string]int)
		for _, h := range all {
			got[h.where()]++
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("tunnels to %v, want %v", got, want)
		}
		return nil
	}
}

// neighbourhood makes a server, two gateways of weights 20 and 10, and six households.
func neighbourhood(t *testing.T) (*mesh, []*household) {
	m := newMesh(t, "nft")
	m.agent = "  report_interval: 1s\n"
	m.serving = "  settle: 2s\n  retry_window: 20s\n"
	gw1, gw2 := m.gateway("gw1", welt), m.gateway("gw2", welt)
	m.startServer()
	gw1.startAgent()
	gw2.startAgent()
	ear := m.listen()
	m.eventually(all(ear.offers(gw1), ear.offers(gw2)))
	var households []*household
	for i := range 6 {
		households = append(households, m.household(fmt.Sprintf("node%d", i+1), welt))
	}
	m.within(time.Minute, live(households, map[string]int{"gw1": 4, "gw2": 2}))
	return m, households
}

func TestAGatewayWhosePortIsBlockedLosesItsNodesAndGetsThemBack(t *testing.T) {
	t.Parallel()
	m, households := neighbourhood(t)
	gw1 := m.gateways[0]
	port := gw1.segments[welt.name].Endpoint().Port
	m.run(gw1.Host, "nft", "table inet blocked { chain in { type filter hook input priority 0; udp dport "+port+" drop; }; }")
	m.within(time.Minute, live(households, map[string]int{"gw2": 6}))
	for _, h := range households {
		if h.most > 3 {
			t.Errorf("%s needed %d tries", h.Name(), h.most)
		}
	}
	m.run(gw1.Host, "nft", "delete", "table", "inet", "blocked")
	// Nodes that had no luck with it are not moved there for a while.
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	m.within(2*time.Minute, func() error {
		<-tick.C
		m.succeeds("rebalance", "--rate", "120")
		return live(households, map[string]int{"gw1": 3, "gw2": 3})()
	})
}

func TestADrainWithEvictionEmptiesAGateway(t *testing.T) {
	t.Parallel()
	m, households := neighbourhood(t)
	m.succeeds("drain", "gw1", "--evict", "60")
	m.within(time.Minute, live(households, map[string]int{"gw2": 6}))
	m.eventually(m.retained("wireguard-metrics/ffmuc_welt/gw1/connected_peers", "0"))
	for _, h := range households {
		if h.most > 1 {
			t.Errorf("%s needed %d tries", h.Name(), h.most)
		}
	}
	m.succeeds("undrain", "gw1")
	m.succeeds("rebalance", "--rate", "120")
	m.within(time.Minute, live(households, map[string]int{"gw1": 3, "gw2": 3}))
}

// succeeds runs a command of wgsteer-server, which has to end well.
func (m *mesh) succeeds(args ...string) {
	m.t.Helper()
	got := m.operate(args...)
	m.t.Logf("%v: %s%s", args, got.stdout, got.stderr)
	if got.exit != 0 {
		m.t.Fatalf("%v ends with %d", args, got.exit)
	}
}
