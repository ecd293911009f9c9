package main_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"wgsteer/internal/lab"
)

const (
	maxBinary = 12 << 20
	maxMemory = 20 << 20
	manyPeers = 2000
)

// releaseBuild are the arguments that the programs are released with.
var releaseBuild = []string{"-trimpath", "-ldflags", "-s -w"}

func TestTheBinaryIsSmall(t *testing.T) {
	info := must(os.Stat(buildAgent(t, releaseBuild...)))(t)
	t.Logf("%.1f MB", float64(info.Size())/(1<<20))
	if info.Size() >= maxBinary {
		t.Errorf("%d bytes, want less than %d", info.Size(), maxBinary)
	}
}

func TestMemoryStaysSmallWithManyPeers(t *testing.T) {
	resident, peak := memoryWithManyPeers(t)
	t.Logf("VmRSS %.1f MB, VmHWM %.1f MB", megabytes(resident), megabytes(peak))
	if resident >= maxMemory || peak >= maxMemory {
		t.Errorf("VmRSS %d, VmHWM %d bytes, want less than %d", resident, peak, maxMemory)
	}
}

func BenchmarkMemoryWithManyPeers(b *testing.B) {
	for b.Loop() {
		resident, peak := memoryWithManyPeers(b)
		b.ReportMetric(megabytes(resident), "MB-VmRSS")
		b.ReportMetric(megabytes(peak), "MB-VmHWM")
	}
}

func megabytes(bytes int) float64 { return float64(bytes) / (1 << 20) }

// memoryWithManyPeers returns, in bytes, the memory that a released agent has after it
// got many keys, and at its largest.
func memoryWithManyPeers(t testing.TB) (resident, peak int) {
	s := newSiteWith(t, buildAgent(t, releaseBuild...))
	must(s.gateway.Gateway(s.ctx, welt))(t)
	s.startBroker()
	o := s.observe()
	agent := must(s.gateway.Start(s.ctx, s.agentBin, "--config", s.config()))(t)
	s.eventually(func() error { return o.says("wireguard-worker/gw1/status", "1") })
	for range manyPeers {
		o.client.Publish("wireguard/ffmuc_welt/all", 1, false, newKey().String())
	}
	counted := func(command string, want int) {
		s.eventually(func() error {
			if got := strings.Count(s.show(command), "\n"); got < want {
				return fmt.Errorf("%s: %d lines, want %d", command, got, want)
			}
			return nil
		})
	}
	counted("wg show wg-welt peers", manyPeers)
	counted("ip -6 route show proto 119", manyPeers)
	counted("bridge fdb show dev vx-welt", manyPeers)
	// Some rounds of reports, with a dump of all peers each, belong to the picture.
	rounds := len(o.history()) + 5
	s.eventually(func() error {
		if got := len(o.history()); got < rounds {
			return fmt.Errorf("%d messages seen, want %d", got, rounds)
		}
		return nil
	})
	return memoryOf(t, agent, "VmRSS"), memoryOf(t, agent, "VmHWM")
}

// memoryOf reads a size from the program's /proc/PID/status, in bytes.
func memoryOf(t testing.TB, p *lab.Program, name string) int {
	t.Helper()
	status := string(must(os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID())))(t))
	_, after, ok := strings.Cut(status, name+":")
	var kilobytes int
	if _, err := fmt.Sscan(after, &kilobytes); err != nil || !ok {
		t.Fatalf("no %s in the status of %v:\n%s", name, p, status)
	}
	return kilobytes << 10
}
