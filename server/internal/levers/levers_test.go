package levers_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"wgsteer/internal/logtest"
	"wgsteer/internal/peer"
	"wgsteer/internal/report"
	"wgsteer/internal/steering"
	"wgsteer/server/internal/levers"
)

// mesh is workers and nodes that do what they are told, around a real table.
type mesh struct {
	*steering.Table
	t testing.TB

	mu sync.Mutex
	// at is where each node has its tunnel.
	at map[peer.Key]string
	// told is when a worker was told to let go of a node.
	told []time.Time
	// broken makes PublishEvict fail.
	broken bool
}

func node(n int) (k peer.Key) { binary.BigEndian.PutUint32(k[:], uint32(n)+1); return k }

func newMesh(t testing.TB, workers ...string) *mesh {
	m := &mesh{t: t, at: make(map[peer.Key]string)}
	m.Table = steering.New(steering.Settings{
		Domains: []string{"a"}, Settle: 15 * time.Second, RetryWindow: 10 * time.Minute, StickyTolerance: 0.1, Memory: 24 * time.Hour,
	})
	for _, w := range workers {
		m.SetStatus(w, true, time.Now())
		m.SetData(w, "a", report.Data{ExternalAddress: w, Port: 1, PublicKey: peer.Key{9, w[len(w)-1]}, LinkAddress: netip.MustParseAddr("fe80::1")})
		m.SetPeers(w, "a", 0, time.Now())
		m.Seen(w, "a", nil, time.Now())
	}
	return m
}

// connect gives so many nodes a tunnel to the worker.
func (m *mesh) connect(worker string, from, to int) {
	m.mu.Lock()
	for n := from; n < to; n++ {
		m.at[node(n)] = worker
		m.Seen(worker, "a", []report.Handshake{{Key: node(n)}}, time.Now())
	}
	m.mu.Unlock()
	m.report()
}

// count is how many nodes each worker has.
func (m *mesh) count() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := make(map[string]int)
	for _, worker := range m.at {
		counts[worker]++
	}
	return counts
}

// report has every worker report its peers.
func (m *mesh) report() {
	counts := m.count()
	for _, s := range m.States() {
		m.SetPeers(s.Worker, "a", counts[s.Worker], time.Now())
	}
}

// PublishEvict is how the levers tell a worker, which does as it is told and reports that.
// The node notices after ten seconds.
func (m *mesh) PublishEvict(worker, domain string, keys []peer.Key) error {
	if m.broken {
		return errors.New("no")
	}
	for _, key := range keys {
		m.mu.Lock()
		if domain != "a" || m.at[key] != worker {
			m.t.Errorf("worker %s is told to let go of %v in %q, but that is at %q", worker, key, domain, m.at[key])
		}
		delete(m.at, key)
		m.told = append(m.told, time.Now())
		m.mu.Unlock()
		m.SetPeers(worker, "a", m.count()[worker], time.Now())
		m.Seen(worker, "a", []report.Handshake{{Key: key, Gone: true}}, time.Now())
		time.AfterFunc(10*time.Second, func() { m.ask(key) })
	}
	return nil
}

// ask is what a node does that has no tunnel. The worker counts it in its next report.
func (m *mesh) ask(key peer.Key) {
	a, ok := m.Assign(steering.Ask{Domain: "a", Key: key}, time.Now())
	if !ok {
		return
	}
	m.mu.Lock()
	m.at[key] = a.Worker
	m.mu.Unlock()
	m.Seen(a.Worker, "a", []report.Handshake{{Key: key}}, time.Now())
}

// paces returns the times between what workers were told.
func (m *mesh) paces() map[time.Duration]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	paces := make(map[time.Duration]int)
	for i := 1; i < len(m.told); i++ {
		paces[m.told[i].Sub(m.told[i-1]).Round(time.Millisecond)]++
	}
	return paces
}

// memory is where drains survive.
type memory struct {
	mu     sync.Mutex
	drains map[string]int
	fault  error
}

func (m *memory) SaveDrains(evict map[string]int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault == nil {
		m.drains = maps.Clone(evict)
	}
	return m.fault
}

func (m *memory) Drains() (map[string]int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.fault != nil {
		return map[string]int{}, nil // as a file that cannot be read
	}
	return maps.Clone(m.drains), nil
}

func (m *memory) all() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.drains
}

// operator works the levers of a mesh.
type operator struct {
	*levers.Levers
	log      *logtest.Buffer
	registry *prometheus.Registry
	stop     func()
}

// run runs levers. It is to be called in a bubble, and stopped there.
func run(t testing.TB, m *mesh, settings levers.Settings, kept levers.Memory) *operator {
	o := &operator{log: &logtest.Buffer{}, registry: prometheus.NewPedanticRegistry()}
	o.Levers = levers.New(settings, m, m, kept, slog.New(slog.NewTextHandler(o.log, nil)), o.registry)
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- o.Run(ctx) }()
	o.stop = func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}
	return o
}

// wait lets time pass, and what is to happen in it.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func expect(t testing.TB, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestADrainedWorkerIsEmptiedEvenlyAndStaysEmpty(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "gw1", "gw2")
		m.connect("gw1", 0, 10)
		o := run(t, m, levers.Settings{}, &memory{})
		defer o.stop()
		if note, err := o.Drain("gw1", 12, false); err != nil || note != "" {
			t.Fatal(note, err)
		}
		wait(70 * time.Second)
		expect(t, "nodes", map[string]int{"gw2": 10}, m.count())
		expect(t, "times between evictions", map[time.Duration]int{5 * time.Second: 9}, m.paces())
		expect(t, "drains", map[string]levers.Drain{"gw1": {Evict: 12, Evicted: 10, Stuck: true}}, o.Drains())

		m.connect("gw1", 20, 21) // it kept another answer
		wait(20 * time.Second)
		expect(t, "nodes", map[string]int{"gw2": 11}, m.count())
		const want = `# HELP wgsteer_evictions_total Nodes that were taken away from a drained worker.
# TYPE wgsteer_evictions_total counter
wgsteer_evictions_total{worker="gw1"} 11
`
		if err := testutil.GatherAndCompare(o.registry, strings.NewReader(want), "wgsteer_evictions_total"); err != nil {
			t.Error(err)
		}
	})
}

func TestADrainWithoutEvictionsMovesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "gw1", "gw2")
		m.connect("gw1", 0, 3)
		o := run(t, m, levers.Settings{}, &memory{})
		defer o.stop()
		if _, err := o.Drain("gw1", 0, false); err != nil {
			t.Fatal(err)
		}
		for n := 10; n < 20; n++ {
			m.ask(node(n))
		}
		wait(time.Hour)
		expect(t, "nodes", map[string]int{"gw1": 3, "gw2": 10}, m.count())
	})
}

func TestTheLastWorkerOfADomainKeepsItsNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "gw1")
		m.connect("gw1", 0, 3)
		o := run(t, m, levers.Settings{}, &memory{})
		defer o.stop()
		if _, err := o.Drain("gw1", 60, false); err != nil {
			t.Fatal(err)
		}
		wait(time.Minute)
		expect(t, "nodes", map[string]int{"gw1": 3}, m.count())
		expect(t, "drains", map[string]levers.Drain{"gw1": {Evict: 60, Stuck: true}}, o.Drains())
	})
}

func TestAnUndrainEndsEvictionsAndLetsNodesIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "gw1", "gw2")
		m.connect("gw1", 0, 10)
		kept := &memory{}
		o := run(t, m, levers.Settings{}, kept)
		defer o.stop()
		if _, err := o.Drain("gw1", 12, false); err != nil {
			t.Fatal(err)
		}
		wait(12 * time.Second) // at 0, 5 and 10 seconds
		changed, note, err := o.Undrain("gw1")
		if !changed || note != "" || err != nil {
			t.Error(changed, note, err)
		}
		wait(time.Minute)
		expect(t, "evictions", map[time.Duration]int{5 * time.Second: 2}, m.paces())
		expect(t, "saved drains", map[string]int{}, kept.all())
		if s := m.States()[0]; s.Drained {
			t.Errorf("the worker is still drained: %+v", s)
		}
		if changed, _, err := o.Undrain("gw1"); changed || err != nil {
			t.Errorf("a second time: %v, %v", changed, err)
		}
	})
}

func TestDrainsSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "gw1", "gw2", "gw3")
		kept := &memory{}
		o := run(t, m, levers.Settings{}, kept)
		for worker, evict := range map[string]int{"gw1": 60, "gw3": 0} {
			if _, err := o.Drain(worker, evict, false); err != nil {
				t.Fatal(err)
			}
		}
		o.stop()

		m = newMesh(t, "gw1", "gw2")
		m.connect("gw1", 0, 10)
		o = run(t, m, levers.Settings{}, kept)
		defer o.stop()
		wait(30 * time.Second)
		expect(t, "nodes", map[string]int{"gw2": 10}, m.count())
		drains := o.Drains()
		expect(t, "drains", map[string]levers.Drain{"gw1": {Evict: 60, Evicted: 10, Stuck: true}, "gw3": {}}, drains)
	})
}

func TestWithoutAMemoryADrainSaysThatItWillNotSurvive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "gw1")
		o := run(t, m, levers.Settings{}, nil)
		defer o.stop()
		if note, err := o.Drain("gw1", 0, false); err != nil || !strings.Contains(note, "server.state_dir is not set") {
			t.Errorf("note %q, error %v", note, err)
		}
		if _, note, err := o.Undrain("gw1"); err != nil || note == "" {
			t.Errorf("undrain: note %q, error %v", note, err)
		}
	})
}

func TestADiskThatFailsKeepsNobodyFromTheLevers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "gw1", "gw2", "gw3", "gw4")
		// What is there, but cannot be read yet.
		kept := &memory{drains: map[string]int{"gw2": 5, "gw3": 6}, fault: errors.New("no space left")}
		o := run(t, m, levers.Settings{}, kept)
		defer o.stop()
		if note, err := o.Drain("gw1", 7, false); err != nil || !strings.Contains(note, "no space left") {
			t.Errorf("note %q, error %v", note, err)
		}
		if _, _, err := o.Undrain("gw2"); err != nil {
			t.Error(err)
		}
		kept.mu.Lock()
		kept.fault = nil
		kept.mu.Unlock()
		o.DiskRestored()
		synctest.Wait()
		want := map[string]int{"gw1": 7, "gw3": 6}
		expect(t, "saved drains", want, kept.all())
		for _, s := range m.States() {
			if _, drained := want[s.Worker]; s.Drained != drained {
				t.Errorf("worker %s is drained: %v", s.Worker, s.Drained)
			}
		}
	})
}

func TestWhoDrainsTheLastWorkerIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "gw1", "gw2")
		o := run(t, m, levers.Settings{}, nil)
		defer o.stop()
		const memory = "this will not survive a restart of the server: server.state_dir is not set"
		for _, tt := range []struct{ worker, want string }{
			{"gw1", memory},
			{"gw2", "no other worker is left for a: nodes are sent to it as before; " + memory},
		} {
			note, err := o.Drain(tt.worker, 0, false)
			if err != nil {
				t.Fatal(err)
			}
			expect(t, "note on "+tt.worker, tt.want, note)
		}
	})
}

func TestATrustedWorkerIsNoLongerSuspect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "gw1", "gw2")
		m.connect("gw1", 0, 50)
		m.SetPeers("gw2", "a", 0, time.Now())
		o := run(t, m, levers.Settings{}, nil)
		defer o.stop()
		for n := range 8 { // which gw2 does not see
			m.Assign(steering.Ask{Domain: "a", Key: node(100 + n)}, time.Now())
		}
		wait(time.Minute)
		m.Suspicions(time.Now())
		for i, want := range []bool{true, false} {
			if changed, err := o.Trust("gw2"); changed != want || err != nil {
				t.Errorf("time %d: changed %v, error %v", i+1, changed, err)
			}
		}
		if _, err := o.Trust("gw3"); !errors.Is(err, levers.ErrUnknownWorker) {
			t.Errorf("of a worker that is not known: error %v", err)
		}
	})
}

func TestATypingErrorDrainsNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "gw1", "gw2")
		o := run(t, m, levers.Settings{}, &memory{})
		defer o.stop()
		for what, err := range map[string]error{
			"drain":   second(o.Drain("gw3", 0, false)),
			"undrain": third(o.Undrain("gw3")),
		} {
			if !errors.Is(err, levers.ErrUnknownWorker) || !strings.Contains(err.Error(), "gw1, gw2") {
				t.Errorf("%s: error %v, want one that lists the workers", what, err)
			}
		}
		if err := second(o.Drain("gw1", -1, false)); !errors.Is(err, levers.ErrRate) {
			t.Errorf("a negative rate: error %v", err)
		}
		if err := second(o.Drain("gw/3", 0, true)); err == nil {
			t.Error("what can be no worker's name is drained by force")
		}
		expect(t, "drains", map[string]levers.Drain{}, o.Drains())
		if err := second(o.Drain("gw3", 0, true)); err != nil {
			t.Errorf("by force: %v", err)
		}
	})
}

func second[A any](_ A, err error) error      { return err }
func third[A, B any](_ A, _ B, e error) error { return e }

func TestARebalancingGivesEveryWorkerItsShareEvenly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "gw1", "gw2")
		m.connect("gw1", 0, 20)
		o := run(t, m, levers.Settings{}, nil)
		defer o.stop()
		j, err := o.StartRebalance(12)
		if err != nil {
			t.Fatal(err)
		}
		moves := j.Left
		if moves < 8 || moves > 10 {
			t.Errorf("%d moves are to be made, want about ten", moves)
		}
		wait(5 * time.Second)
		if _, err := o.StartRebalance(12); !errors.Is(err, levers.ErrRunning) || !strings.Contains(err.Error(), "moved: 2") {
			t.Errorf("a second one: error %v", err)
		}
		wait(time.Minute)
		expect(t, "nodes", map[string]int{"gw1": 20 - moves, "gw2": moves}, m.count())
		expect(t, "times between moves", map[time.Duration]int{5 * time.Second: moves - 1}, m.paces())
		j, _ = o.Rebalancing()
		if j.Running || j.Failed || j.Moved != moves || j.Left != 0 {
			t.Errorf("at the end: %+v", j)
		}
		if got := testutil.ToFloat64(counter(t, o)); got != float64(moves) {
			t.Errorf("%v moves are counted, want %d", got, moves)
		}
	})
}

// counter is the counter of moves.
func counter(t testing.TB, o *operator) prometheus.Collector {
	t.Helper()
	families, err := o.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "wgsteer_moves_total" {
			c := prometheus.NewCounter(prometheus.CounterOpts{Name: "moves"})
			c.Add(f.GetMetric()[0].GetCounter().GetValue())
			return c
		}
	}
	t.Fatal("no counter of moves")
	return nil
}

func TestARebalancingStops(t *testing.T) {
	for name, tt := range map[string]struct {
		stop func(m *mesh, o *operator)
		want string
	}{
		"when it is told to":         {func(_ *mesh, o *operator) { o.StopRebalance() }, "stopped by an operator"},
		"when a worker goes offline": {func(m *mesh, _ *operator) { m.SetStatus("gw2", false, time.Now()) }, "stopped: worker gw2 went offline"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMesh(t, "gw1", "gw2", "gw3")
				m.connect("gw1", 0, 30)
				o := run(t, m, levers.Settings{}, nil)
				defer o.stop()
				if _, err := o.StartRebalance(60); err != nil {
					t.Fatal(err)
				}
				wait(2500 * time.Millisecond)
				tt.stop(m, o)
				wait(time.Minute)
				j, _ := o.Rebalancing()
				if j.Running || !j.Failed || j.Moved != 3 || j.Result != tt.want {
					t.Errorf("at the end: %+v", j)
				}
				if _, ok := o.StopRebalance(); ok {
					t.Error("one that has ended can be stopped")
				}
				if _, err := o.StartRebalance(60); err != nil {
					t.Errorf("the next one: %v", err)
				}
			})
		})
	}
}

func TestARateMustBeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := run(t, newMesh(t, "gw1"), levers.Settings{}, nil)
		defer o.stop()
		for _, rate := range []int{-1, 0, 6001} {
			if _, err := o.StartRebalance(rate); !errors.Is(err, levers.ErrRate) {
				t.Errorf("rate %d: error %v", rate, err)
			}
		}
	})
}

func TestNodesAreMovedByThemselvesWhenTheBalanceIsWrongForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "gw1", "gw2")
		m.connect("gw1", 0, 20)
		o := run(t, m, levers.Settings{}, nil)
		defer o.stop()
		stay := map[string]int{"gw1": 20}
		wait(time.Hour)
		expect(t, "nodes, when it is not set", stay, m.count())

		// It is counted from when it is set.
		m.connect("gw1", 0, 20) // workers repeat it every hour
		o.Configure(levers.Settings{AutoRebalance: 60})
		wait(9 * time.Minute)
		expect(t, "nodes after nine minutes", stay, m.count())

		// A break begins the ten minutes anew.
		m.connect("gw2", 20, 40)
		wait(20 * time.Second)
		m.Seen("gw2", "a", nil, time.Now())
		m.mu.Lock()
		for n := 20; n < 40; n++ {
			delete(m.at, node(n))
		}
		m.mu.Unlock()
		m.report()
		wait(9 * time.Minute)
		expect(t, "nodes nine minutes after a break", stay, m.count())
		wait(2 * time.Minute)
		j, _ := o.Rebalancing()
		if counts := m.count(); counts["gw2"] < 8 || !j.Auto || j.Running || j.Failed || j.Moved != counts["gw2"] {
			t.Errorf("at the end the nodes are at %v: %+v", counts, j)
		}
		for _, event := range []string{"rebalancing begins", "rebalancing ended"} {
			if n := o.log.Count(event); n != 1 {
				t.Errorf("%q is logged %d times", event, n)
			}
		}
	})
}

func TestAWorkerThatCannotBeToldIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMesh(t, "gw1", "gw2")
		m.connect("gw1", 0, 20)
		m.broken = true
		o := run(t, m, levers.Settings{}, nil)
		defer o.stop()
		if _, err := o.StartRebalance(1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := o.log.Count("cannot be told"); n != 1 {
			t.Errorf("said %d times:\n%v", n, fmt.Sprint(o.log))
		}
	})
}
