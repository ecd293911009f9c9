package chaos

import (
	"fmt"
	"strings"
	"text/tabwriter"
	"time"
)

// summary is what a run has shown.
type summary struct {
	rounds, pings, broken, lost int
	kinds                       map[string]*kindSummary
}

type kindSummary struct {
	rounds, pings int
	slowest, took time.Duration
}

func newSummary() *summary { return &summary{kinds: make(map[string]*kindSummary)} }

func (s *summary) add(f fault, r result) {
	k := s.kinds[f.kind]
	if k == nil {
		k = &kindSummary{}
		s.kinds[f.kind] = k
	}
	s.rounds++
	s.pings += r.pings
	s.broken += r.broken
	s.lost += r.lost
	k.rounds++
	k.pings += r.pings
	k.took += r.took
	k.slowest = max(k.slowest, r.took)
}

// report is the summary as text, for a reader.
func (s *summary) report(m *mesh, took time.Duration) string {
	var b strings.Builder
	m.client.mu.Lock()
	counters := m.client.counters
	m.client.mu.Unlock()
	fmt.Fprintf(&b, "%d rounds in %v; %d keys; exchanges: %d answered with 200, %d with 503, %d failed\n",
		s.rounds, took.Round(time.Second), m.client.answered(), counters.ok, counters.unserved, counters.failed)
	fmt.Fprintf(&b, "pings: %d in tunnels that had to work (one that is lost ends the run); %d in tunnels that a fault had broken, %d of them lost\n", s.pings, s.broken, s.lost)
	fmt.Fprintf(&b, "full disks that kept the server from writing: %d\n", m.fullNoticed)
	fmt.Fprintf(&b, "slowest answer of a server after its start: %v\n", m.slowestStart.Round(time.Millisecond))
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "FAULT\tROUNDS\tMEAN\tSLOWEST\tPINGS")
	for _, kind := range kinds() {
		if k := s.kinds[kind.name]; k != nil {
			fmt.Fprintf(table, "%s\t%d\t%.2fs\t%.2fs\t%d\n", kind.name, k.rounds, (k.took / time.Duration(k.rounds)).Seconds(), k.slowest.Seconds(), k.pings)
		}
	}
	table.Flush()
	return b.String()
}
