package steering_test

import (
	"fmt"
	"testing"
	"time"

	"wgsteer/internal/peer"
	"wgsteer/internal/steering"
)

// BenchmarkAssign sends nodes of 5,000 to ten workers that serve fifty domains.
func BenchmarkAssign(b *testing.B) {
	set := settings(nil)
	set.Domains = nil
	for d := range 50 {
		set.Domains = append(set.Domains, fmt.Sprintf("domain%d", d))
	}
	table := steering.New(set)
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for w := range 10 {
		name := fmt.Sprintf("gw%d", w)
		table.SetStatus(name, true, now)
		for _, d := range set.Domains {
			table.SetData(name, d, data(w))
			table.SetPeers(name, d, 10, now)
		}
	}
	keys := make([]peer.Key, 5000)
	for n := range keys {
		keys[n] = nodeKey(n)
	}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		now = now.Add(10 * time.Millisecond)
		table.Assign(steering.Ask{Domain: set.Domains[n%50], Key: keys[n%len(keys)]}, now)
		n++
	}
}
