package admin_test

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"wgsteer/internal/config"
	"wgsteer/internal/peer"
	"wgsteer/internal/report"
	"wgsteer/internal/steering"
	"wgsteer/server/internal/admin"
	"wgsteer/server/internal/levers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// deaf are workers that do nothing when they are told.
type deaf struct{}

func (deaf) PublishEvict(string, string, []peer.Key) error { return nil }

// operator asks an admin server of its own.
type operator struct {
	*admin.Client
	table    *steering.Table
	registry *prometheus.Registry
	base     string
}

// key has characters that mean something in URLs.
var key = peer.Key{0xfb, 0xff, 0xbf, 1}

// start starts an admin server for two workers, which is not where gw2 carries what it should.
func start(t *testing.T, listen string) *operator {
	t.Helper()
	now := time.Now()
	table := steering.New(steering.Settings{
		Domains: []string{"ff_a", "ff_b"}, Settle: 15 * time.Second, RetryWindow: 10 * time.Minute, Memory: time.Hour,
		Workers: map[string]steering.Worker{"gw2": {Weight: 1, Location: "Vienna"}},
	})
	for i, name := range []string{"gw1", "gw2"} {
		table.SetStatus(name, true, now)
		table.SetData(name, "ff_a", report.Data{ExternalAddress: name, Port: 1, PublicKey: peer.Key{9, byte(i)}, LinkAddress: netip.MustParseAddr("fe80::1")})
		table.SetPeers(name, "ff_a", []int{10, 2}[i], now)
	}
	var seen []report.Handshake
	for n := range 10 {
		var k peer.Key
		binary.BigEndian.PutUint32(k[:], uint32(n+1))
		seen = append(seen, report.Handshake{Key: k})
	}
	table.Seen("gw1", "ff_a", seen, now)
	o := &operator{table: table, registry: prometheus.NewPedanticRegistry()}
	log := slog.New(slog.DiscardHandler)
	l := levers.New(levers.Settings{}, table, deaf{}, nil, log, prometheus.NewRegistry())
	server, err := admin.New(listen, table, l, log, o.registry)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(listen, config.UnixPrefix) {
		listen = server.Addr().String()
		o.base = "http://" + listen
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
	if o.Client, err = admin.NewClient(listen); err != nil {
		t.Fatal(err)
	}
	return o
}

// at are where an admin server can listen.
func at(t *testing.T) map[string]string {
	return map[string]string{"TCP": "127.0.0.1:0", "a Unix socket": config.UnixPrefix + filepath.Join(t.TempDir(), "admin.sock")}
}

func TestAnExplanationSaysHowTheWorkersStand(t *testing.T) {
	for name, listen := range at(t) {
		t.Run(name, func(t *testing.T) {
			o := start(t, listen)
			got, err := o.Explain(t.Context(), "ff_a", key.String(), "")
			if err != nil {
				t.Fatal(err)
			}
			six, four, less := 6., 4., -4.
			want := admin.Explanation{
				Domain: "ff_a", Chosen: "gw2", Reason: "lowest diff",
				Candidates: []admin.Candidate{
					{Worker: "gw1", Weight: 1, Reported: 10, Target: &six, Diff: &four, Health: "ok"},
					{Worker: "gw2", Location: "Vienna", Weight: 1, Reported: 2, Target: &six, Diff: &less, Health: "ok"},
				},
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAnExplanationIsForTheNodeThatIsAskedFor(t *testing.T) {
	o := start(t, "127.0.0.1:0")
	o.table.Assign(steering.Ask{Domain: "ff_a", Key: key}, time.Now())
	got, err := o.Explain(t.Context(), "ff_a", key.String(), "")
	if err != nil || got.Reason != "the answer of a moment ago, repeated" {
		t.Errorf("for a node that has just asked: %+v, %v", got, err)
	}
	got, err = o.Explain(t.Context(), "ff_a", "", "Vienna")
	if err != nil || got.Chosen != "gw2" || got.Candidates[0].Excluded != "another location" || got.Candidates[0].Target != nil {
		t.Errorf("for a location: %+v, %v", got, err)
	}
	if got, err = o.Explain(t.Context(), "ff_b", "", ""); err != nil || got.Chosen != "" {
		t.Errorf("for a domain without a worker: %+v, %v", got, err)
	}
}

func TestWhatCannotBeAskedIsSaid(t *testing.T) {
	o := start(t, "127.0.0.1:0")
	_, noDomain := o.Explain(t.Context(), "ff/c", "", "")
	_, noKey := o.Explain(t.Context(), "ff_a", "x", "")
	_, noWorker := o.Drain(t.Context(), "gw3", 0, false)
	_, noRate := o.Drain(t.Context(), "gw1", 1_000_000, false)
	_, noJob := o.StopRebalance(t.Context())
	for want, err := range map[string]error{
		`domain "ff/c" is not configured`: noDomain, "key: ": noKey, `no such worker: "gw3"; known are: gw1, gw2`: noWorker,
		"want 0 to 6000": noRate, "no rebalancing is running": noJob,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func TestADrainIsSeenAndUndone(t *testing.T) {
	for name, listen := range at(t) {
		t.Run(name, func(t *testing.T) {
			o := start(t, listen)
			done, err := o.Drain(t.Context(), "gw1", 30, false)
			if err != nil || !done.Changed || !strings.Contains(done.Note, "server.state_dir") {
				t.Errorf("drain: %+v, %v", done, err)
			}
			if _, err := o.Drain(t.Context(), "gw 3?", 0, true); err != nil {
				t.Error(err)
			}
			workers, err := o.Workers(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			want := []admin.Worker{
				{Worker: "gw 3?", Drained: true, Health: "never heard of", Domains: []string{}},
				{Worker: "gw1", Weight: 1, Online: true, Drained: true, Reported: 10, Connected: 10, Domains: []string{"ff_a"}, Tells: true, Health: "drained", Evict: 30},
				{Worker: "gw2", Location: "Vienna", Weight: 1, Online: true, Reported: 2, Domains: []string{"ff_a"}, Health: "ok"},
			}
			if diff := cmp.Diff(want, workers); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			for _, changed := range []bool{true, false} {
				if done, err := o.Undrain(t.Context(), "gw1"); err != nil || done.Changed != changed {
					t.Errorf("undrain: %+v, %v, want changed: %v", done, err, changed)
				}
			}
		})
	}
}

func TestARebalancingIsForeseenStartedOnceAndStopped(t *testing.T) {
	o := start(t, "127.0.0.1:0")
	r, err := o.Rebalancing(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.Last != nil || len(r.Moves) != 1 || r.Moves[0].From != "gw1" || r.Moves[0].To != "gw2" || r.Moves[0].Nodes < 3 {
		t.Errorf("what there is to be moved is %+v, want three or more from gw1 to gw2", r)
	}
	if j, err := o.StartRebalance(t.Context(), 6); err != nil || !j.Running || j.PerMinute != 6 || j.Left != r.Moves[0].Nodes {
		t.Errorf("started: %+v, %v", j, err)
	}
	if _, err := o.StartRebalance(t.Context(), 6); err == nil || !strings.Contains(err.Error(), "is running already, at 6 nodes a minute; moved: 0") {
		t.Errorf("started twice: error %v", err)
	}
	if j, err := o.StopRebalance(t.Context()); err != nil || j.Running {
		t.Errorf("stopped: %+v, %v", j, err)
	}
	if r, err := o.Rebalancing(t.Context()); err != nil || r.Last == nil || r.Last.Result != "stopped by an operator" {
		t.Errorf("afterwards: %+v, %v", r, err)
	}
}

func TestMetricsOfEveryWorker(t *testing.T) {
	o := start(t, "127.0.0.1:0")
	o.table.Drain("gw1", true)
	const want = `
# HELP wgsteer_worker_drained Whether an operator has the worker get no new nodes.
# TYPE wgsteer_worker_drained gauge
wgsteer_worker_drained{worker="gw1"} 1
wgsteer_worker_drained{worker="gw2"} 0
# HELP wgsteer_worker_reported_peers The worker's connected peers, as last reported, over all domains.
# TYPE wgsteer_worker_reported_peers gauge
wgsteer_worker_reported_peers{worker="gw1"} 10
wgsteer_worker_reported_peers{worker="gw2"} 2
`
	if err := testutil.GatherAndCompare(o.registry, strings.NewReader(want), "wgsteer_worker_drained", "wgsteer_worker_reported_peers"); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"online", "weight", "in_flight", "suspect"} {
		if n, err := testutil.GatherAndCount(o.registry, "wgsteer_worker_"+name); err != nil || n != 2 {
			t.Errorf("%s: %d series, %v, want one for each worker", name, n, err)
		}
	}
	response, err := http.Get(o.base + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || !strings.Contains(string(body), "\nwgsteer_worker_weight{worker=\"gw1\"} 1\n") {
		t.Errorf("/metrics says %s, %v", body, err)
	}
}

func TestWhoDoesNotAnswerIsNamed(t *testing.T) {
	o := start(t, "127.0.0.1:0")
	gone := filepath.Join(t.TempDir(), "gone.sock")
	for listen, want := range map[string]string{
		"":                       "server.admin_listen: off",
		config.UnixPrefix + gone: "no answer at unix:" + gone + ": does wgsteer-server run",
	} {
		client, err := admin.NewClient(listen)
		if err == nil {
			_, err = client.Workers(t.Context())
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("admin_listen %q: error %v, want one with %q", listen, err, want)
		}
	}
	// Another program's HTTP server: here, what metrics look like to who wants JSON.
	response, err := http.Get(o.base + "/nowhere")
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || response.StatusCode != 404 || !strings.HasPrefix(string(body), `{"error":{"message":`) {
		t.Errorf("a path that is not there: %s %s, %v", response.Status, body, err)
	}
}
