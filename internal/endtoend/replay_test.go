package endtoend_test

import (
	"path/filepath"
	"testing"
	"time"
)

// BenchmarkReplayIntoTheKernel has a server that was restarted send 20,000 keys to a
// gateway that comes back, and waits until each has its peer, its route and its FDB entry.
// That is looked at once a second, and is part of what is measured. It is the test of the
// gateway that comes back with four times as many keys: without the race detector,
// userspace WireGuard may have as many goroutines as it likes.
func BenchmarkReplayIntoTheKernel(b *testing.B) {
	const count = 20_000
	m := newPlainMesh(b)
	m.state = filepath.Join(m.central.Folder(), "state")
	server := m.startServer()
	m.eventually(func() error { _, _, err := m.get("/healthz"); return err })
	keys := newKeys(count)
	m.post("v1", welt, keys)
	check(b, server.Kill())
	m.startServer()
	gw1 := m.gateway("gw1", welt)
	segment := gw1.segments[welt.name]

	var took time.Duration
	for b.Loop() {
		check(b, segment.Stop(m.ctx))
		check(b, segment.Start(m.ctx))
		began := time.Now()
		agent := gw1.startAgent()
		m.within(timeout, everySecond(b, gw1.applied(welt, keys...)))
		took += time.Since(began)
		check(b, agent.Stop(m.ctx))
	}
	b.ReportMetric(took.Seconds()/float64(b.N), "s")
	b.ReportMetric(count*float64(b.N)/took.Seconds(), "keys/s")
	b.ReportMetric(0, "ns/op") // with what comes before each: says nothing
}
