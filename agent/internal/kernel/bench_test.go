package kernel_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"wgsteer/agent/internal/gateway"
	"wgsteer/agent/internal/kernel"
	"wgsteer/internal/config"
	"wgsteer/internal/lab"
	"wgsteer/internal/peer"
)

const (
	// applyKeys, in the environment, makes the test binary a gateway that applies
	// benchKeys keys and says how many nanoseconds that took.
	applyKeys = "KERNEL_TEST_APPLY"
	benchKeys = 2000
	// benchRounds is how often each way is measured.
	benchRounds = 7
)

var benchSegment = lab.Segment{WireGuard: "wg-bench", VXLAN: "vx-bench", VNI: 7}

// BenchmarkPeersIntoTheKernel brings keys into the kernel, each with peer, route and FDB
// entry, by the agent's own code and by a script of wg, ip and bridge in batch mode, in
// turns and each time into new interfaces. x-script is the agent's speed relative to the
// script's. With a userspace WireGuard most of both is its time: routes and FDB entries
// alone take the agent less than half of what they take the script.
func BenchmarkPeersIntoTheKernel(b *testing.B) {
	l := lab.ForTest(b)
	ctx := b.Context()
	h, err := l.Host(ctx, "gw1")
	if err != nil {
		b.Fatal(err)
	}
	g, err := h.Gateway(ctx, benchSegment)
	if err != nil {
		b.Fatal(err)
	}
	script, err := writeScript(h.Folder())
	if err != nil {
		b.Fatal(err)
	}
	renew := func() {
		if err := errors.Join(g.Stop(ctx), g.Start(ctx)); err != nil {
			b.Fatal(err)
		}
	}
	// The fastest round of each counts: whatever else the machine does only adds to it.
	ours, theirs := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for b.Loop() {
		for range benchRounds {
			renew()
			ours = min(ours, applyOn(b, h))
			renew()
			theirs = min(theirs, scriptOn(b, h, script))
		}
	}
	b.ReportMetric(benchKeys/ours.Seconds(), "peers/s")
	b.ReportMetric(benchKeys/theirs.Seconds(), "script-peers/s")
	b.ReportMetric(theirs.Seconds()/ours.Seconds(), "x-script")
	b.ReportMetric(0, "ns/op") // both and the renewing together: says nothing
}

// applyOn measures the agent's code in a process on the host.
func applyOn(b *testing.B, h *lab.Host) time.Duration {
	b.Helper()
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := h.Command(b.Context(), self)
	cmd.Env = append(os.Environ(), applyKeys+"=1")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		b.Fatal(err)
	}
	var nanoseconds int64
	if _, err := fmt.Sscan(string(out), &nanoseconds); err != nil {
		b.Fatalf("%v in %q", err, out)
	}
	countAll(b, h)
	return time.Duration(nanoseconds)
}

func scriptOn(b *testing.B, h *lab.Host, script string) time.Duration {
	b.Helper()
	began := time.Now()
	if _, err := h.Run(b.Context(), "sh", script); err != nil {
		b.Fatal(err)
	}
	took := time.Since(began)
	countAll(b, h)
	return took
}

// countAll checks that all keys are complete.
func countAll(b *testing.B, h *lab.Host) {
	b.Helper()
	for _, command := range []string{
		"wg show wg-bench allowed-ips", "ip -6 route show dev wg-bench", "bridge fdb show dev vx-bench",
	} {
		words := strings.Fields(command)
		out, err := h.Run(b.Context(), words[0], words[1:]...)
		if err != nil {
			b.Fatal(err)
		}
		found := 0
		for line := range strings.Lines(out) {
			if strings.Contains(line, "fe80::2") {
				found++
			}
		}
		if found < benchKeys {
			b.Fatalf("%s: %d of %d", command, found, benchKeys)
		}
	}
}

// writeScript writes the script and its files, and returns its path.
func writeScript(folder string) (string, error) {
	var peers, routes, entries strings.Builder
	for i := range benchKeys {
		key := testKey(i)
		address := peer.WGKex.LinkAddress(key)
		fmt.Fprintf(&peers, "[Peer]\nPublicKey = %v\nAllowedIPs = %v/128\n", key, address)
		fmt.Fprintf(&routes, "route add %v/128 dev wg-bench proto 119\n", address)
		fmt.Fprintf(&entries, "fdb append 00:00:00:00:00:00 dev vx-bench dst %v via wg-bench\n", address)
	}
	var errs error
	for name, text := range map[string]string{
		"peers": peers.String(), "routes": routes.String(), "entries": entries.String(),
		"script": fmt.Sprintf("set -e; cd %s; wg addconf wg-bench peers; ip -6 -batch routes; bridge -batch entries\n", folder),
	} {
		errs = errors.Join(errs, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	return filepath.Join(folder, "script"), errs
}

// counting is the kernel, and tells when all changes are made.
type counting struct {
	kernel.Kernel
	left atomic.Int64
	done chan struct{}
}

func (c *counting) SetPeers(wireGuard string, peers []gateway.NewPeer) []error {
	return c.count(len(peers), c.Kernel.SetPeers(wireGuard, peers))
}

func (c *counting) AddRoutes(link int, to []netip.Addr) []error {
	return c.count(len(to), c.Kernel.AddRoutes(link, to))
}

func (c *counting) AddEntries(vxlan int, entries []gateway.Entry) []error {
	return c.count(len(entries), c.Kernel.AddEntries(vxlan, entries))
}

func (c *counting) count(made int, errs []error) []error {
	if c.left.Add(-int64(made)) == 0 {
		close(c.done)
	}
	return errs
}

// applyInside applies the keys as they arrive from the uplink, and prints how long it
// took from the first one's arrival until the last one was complete.
func applyInside() error {
	const domain = "ff_bench"
	cfg := &config.Config{
		Domains: []config.Domain{{Name: domain, WireGuard: benchSegment.WireGuard, VXLAN: benchSegment.VXLAN}},
		Agent: config.Agent{
			ExternalName: "gw", ReportInterval: time.Minute, SweepInterval: time.Hour,
			StaleAfter: 3 * time.Hour, UnusedAfter: 10 * time.Minute,
		},
	}
	k := &counting{done: make(chan struct{})}
	k.left.Store(3 * benchKeys) // peer, route and FDB entry of each
	g := gateway.New(cfg, k, slog.New(slog.NewTextHandler(io.Discard, nil)))
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	<-g.Changed()
	if !g.Report(domain).Offered {
		return errors.New("the domain is not offered")
	}
	keys := make([]peer.Key, benchKeys)
	for i := range keys {
		keys[i] = testKey(i)
	}
	began := time.Now()
	for _, key := range keys {
		g.Add(domain, key, gateway.FromReplay)
	}
	<-k.done
	took := time.Since(began)
	cancel()
	out := bufio.NewWriter(os.Stdout)
	fmt.Fprintln(out, took.Nanoseconds())
	return errors.Join(out.Flush(), <-ended)
}
