package endtoend_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"wgsteer/internal/lab"
	"wgsteer/internal/peer"
)

// Keys rotate as nodes come and go: those that ask now are always 250, and each of them
// is replaced after 12,500 exchanges. The agent sweeps those that no longer ask, and
// ends with none. The server may forget a key after a minute only, so that in a run that
// is faster it knows all 2,250 at the end. The 1,400 that come between the two looks
// are half a megabyte there, and less than what is allowed; 100 bytes of each exchange
// would be 7 megabytes, and more than that.
func TestMemoryOfBothSidesIsFlatOver100000ExchangesOfRotatingKeys(t *testing.T) {
	const (
		exchanges, warm, few = 100_000, 20_000, 10_000
		asking, perKey       = 250, 50
		growth, slack        = 0.15, 4 << 20 // of what was taken, and bytes
	)
	m := newPlainMesh(t)
	m.state = filepath.Join(m.central.Folder(), "state")
	// A gateway that is late, on a machine that is busy, still gets nodes.
	m.keepalive = 60
	m.serving = "  key_ttl: 1m\n  silent_after: 1m\n"
	m.agent = "  report_interval: 5s\n  sweep_interval: 1s\n  unused_after: 2s\n"
	gw1 := m.gateway("gw1", welt)
	server, agent := m.startServer(), gw1.startAgent()
	m.eventually(m.lacks(city))

	keys := newKeys(exchanges/perKey + asking)
	nodes := make([]peer.Key, exchanges)
	for i := range nodes {
		nodes[i] = keys[i/perKey+i%asking]
	}
	m.post("v2", welt, nodes[:warm])
	before := m.memoryDuring(nodes[warm:warm+few], server, agent)
	m.post("v2", welt, nodes[warm+few:exchanges-few])
	after := m.memoryDuring(nodes[exchanges-few:], server, agent)
	for i, p := range []*lab.Program{server, agent} {
		t.Logf("%v: %.1f MB, then %.1f MB", p, megabytes(before[i]), megabytes(after[i]))
		if most := before[i] + int(growth*float64(before[i])) + slack; after[i] > most {
			t.Errorf("%v has grown from %d to %d bytes in %d exchanges, want at most %d",
				p, before[i], after[i], exchanges-warm-few, most)
		}
	}

	m.eventually(func() error {
		there, err := gw1.lines("wg show " + welt.WireGuard + " peers")
		if err == nil && len(there) > 0 {
			err = fmt.Errorf("%d peers are still there", len(there))
		}
		return err
	})
	swept := slices.DeleteFunc(linesOf(agent.Log()), func(line string) bool { return !strings.Contains(line, "removed stale peers") })
	if last := swept[len(swept)-1]; !strings.HasSuffix(last, " left=0") {
		t.Errorf("all peers are gone, but the agent goes on to look after some: %s", last)
	}
}

// memoryDuring returns how much memory each of the programs takes while the nodes ask: the
// least that was seen, for what is there between two garbage collections is no leak.
func (m *mesh) memoryDuring(nodes []peer.Key, of ...*lab.Program) []int {
	m.t.Helper()
	least := slices.Repeat([]int{math.MaxInt}, len(of))
	for some := range slices.Chunk(nodes, 1000) {
		m.post("v2", welt, some)
		for i, p := range of {
			least[i] = min(least[i], memoryOf(m.t, p))
		}
	}
	return least
}

// memoryOf returns the bytes that are a program's own, without those of its files.
func memoryOf(t testing.TB, p *lab.Program) int {
	t.Helper()
	status := string(must(os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID())))(t))
	_, after, ok := strings.Cut(status, "RssAnon:")
	var kilobytes int
	if _, err := fmt.Sscan(after, &kilobytes); err != nil || !ok {
		t.Fatalf("no RssAnon in the status of %v:\n%s", p, status)
	}
	return kilobytes << 10
}

func megabytes(bytes int) float64 { return float64(bytes) / (1 << 20) }
