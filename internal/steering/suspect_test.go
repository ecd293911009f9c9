package steering_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"wgsteer/internal/steering"
)

// holes returns a site with two workers that report handshakes, of which gw2 has no peer.
func holes(t *testing.T) *site {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 1000, "b": 0})
	s.bring("gw2", 2, map[string]int{"a": 0, "b": 0})
	s.seen("gw1", 1001)
	s.seen("gw2", 1002)
	return s
}

// vain sends nodes to gw2, in vain, from one number on.
func (s *site) vain(from, n int) {
	s.t.Helper()
	for node := from; node < from+n; node++ {
		s.sends("a", node, "gw2")
	}
	s.later(time.Minute)
}

func (s *site) isSuspect(want ...string) {
	s.t.Helper()
	if diff := cmp.Diff(want, suspects(s.States())); diff != "" {
		s.t.Fatalf("suspects (-want +got):\n%s", diff)
	}
}

func TestAWorkerWhoseNodesAreNotSeenIsSuspect(t *testing.T) {
	s := holes(t)
	s.vain(0, 7)
	s.Suspicions(s.now)
	s.isSuspect()
	s.vain(7, 1)
	if diff := cmp.Diff([]steering.Suspicion{{Worker: "gw2", Suspect: true, Failed: 8, Of: 8, Nodes: 8}}, s.Suspicions(s.now)); diff != "" {
		t.Errorf("news (-want +got):\n%s", diff)
	}
	s.isSuspect("gw2")
	if diff := cmp.Diff([]steering.Suspicion(nil), s.Suspicions(s.now)); diff != "" {
		t.Errorf("said twice:\n%s", diff)
	}
	s.sends("a", 20, "gw1")
	s.sends("b", 21, "gw1") // it is the worker that is suspect, in all its domains
}

func TestNodesThatAreSeenWithinAMinuteSpeakForAWorker(t *testing.T) {
	s := holes(t)
	for node := range 30 {
		s.sends("a", node, "gw2")
		if node%10 < 3 {
			s.later(59 * time.Second)
			s.seen("gw2", node)
		}
		s.later(time.Minute)
		s.Suspicions(s.now)
	}
	s.isSuspect()
}

func TestFewNodesDoNotMakeAWorkerSuspect(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0})
	s.seen("gw1", 1000)
	for try := range 50 {
		s.sends("a", try%4, "gw1")
		s.later(20 * time.Second)
	}
	s.isSuspect()
	for try := range 16 {
		s.sends("a", try%5, "gw1")
		s.later(20 * time.Second)
	}
	s.isSuspect("gw1")
}

// Asking again is the sooner sign: a node asks only when it has no tunnel.
func TestANodeThatAsksAgainHadNoTunnel(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 1000})
	s.bring("gw2", 2, map[string]int{"a": 0})
	s.seen("gw2", 1000)
	for node := range 8 {
		s.sends("a", node, "gw2")
	}
	s.later(10 * time.Second)
	for node := range 7 {
		s.sends("a", node, "gw1")
	}
	s.isSuspect()
	s.sends("a", 7, "gw1")
	s.isSuspect("gw2")
}

func TestANodeThatFailsEverywhereSaysNothingOfAWorker(t *testing.T) {
	s := newSite(t, nil)
	for n := range 3 {
		worker := fmt.Sprintf("gw%d", n)
		s.bring(worker, n, map[string]int{"a": 0})
		s.seen(worker, 1000+n)
	}
	for range 60 {
		for node := range 6 {
			s.send("a", node)
		}
		s.later(time.Minute)
	}
	s.isSuspect()
}

func TestASuspectWorkerGetsOneNodeAMinuteAndIsTrustedAfterThree(t *testing.T) {
	s := holes(t)
	s.vain(0, 8)
	s.Suspicions(s.now)
	node := 100
	others := func() {
		t.Helper()
		node++
		s.sends("a", node, "gw1")
	}
	probe := func(seen bool) {
		t.Helper()
		others()
		s.later(time.Second)
		node++
		s.sends("a", node, "gw2")
		if seen {
			s.seen("gw2", node)
		}
		s.later(59 * time.Second)
	}
	s.later(59 * time.Second)
	probe(true)
	probe(true)
	probe(false)
	probe(true)
	probe(true)
	s.isSuspect("gw2")
	probe(true)
	s.isSuspect()
	if diff := cmp.Diff([]steering.Suspicion{{Worker: "gw2"}}, s.Suspicions(s.now)); diff != "" {
		t.Errorf("news (-want +got):\n%s", diff)
	}
	s.sends("a", 700, "gw2")
	s.sends("a", 701, "gw2")
}

func TestANodeThatHadNoLuckIsNoProbe(t *testing.T) {
	s := holes(t)
	s.vain(0, 8)
	s.sends("a", 3, "gw1") // was sent to gw2
	s.later(time.Minute)
	s.sends("a", 3, "gw1") // has no luck anywhere
	s.sends("a", 50, "gw2")
}

func TestWhenAllAreSuspectWeightsDecide(t *testing.T) {
	s := newSite(t, map[string]uint32{"gw2": 3})
	s.bring("gw1", 1, map[string]int{"a": 0})
	s.bring("gw2", 2, map[string]int{"a": 0})
	s.seen("gw1", 1000)
	s.seen("gw2", 1001)
	for node := range 40 {
		s.send("a", node)
	}
	s.later(time.Minute)
	s.Suspicions(s.now)
	s.isSuspect("gw1", "gw2")
	s.report("gw1", "a", 0)
	s.report("gw2", "a", 0)
	got := map[string]int{}
	for node := range 40 {
		got[s.send("a", 100+node)]++
	}
	if diff := cmp.Diff(map[string]int{"gw1": 10, "gw2": 30}, got); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
	for node := range 40 {
		s.seen("gw1", 100+node)
		s.seen("gw2", 100+node)
	}
	s.isSuspect() // they were the probes
}

func TestASuspectWorkerThatRestartsStaysSuspect(t *testing.T) {
	s := holes(t)
	s.vain(0, 8)
	s.Suspicions(s.now)
	s.SetStatus("gw2", false, s.now)
	s.SetStatus("gw2", true, s.now)
	s.Suspicions(s.now)
	s.isSuspect("gw2")
}

func TestWhatIsInFlightToAWorkerThatGoesOfflineSaysNothingOfIt(t *testing.T) {
	s := holes(t)
	for node := range 20 {
		s.sends("a", node, "gw2")
	}
	s.SetStatus("gw2", false, s.now)
	s.later(time.Minute)
	s.Suspicions(s.now)
	s.isSuspect()
}

// Python workers do not report handshakes.
func TestAWorkerThatDoesNotReportHandshakesIsJudgedByItsCount(t *testing.T) {
	for name, tt := range map[string]struct {
		counts  []int // a report a minute
		suspect bool
	}{
		"no rise from nothing": {[]int{0, 0, 0}, true},
		"no rise from few":     {[]int{6, 6, 5}, true},
		"a rise":               {[]int{0, 5, 9}, false},
		"in a large mesh":      {[]int{500, 500, 499}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, nil)
			s.bring("gw1", 1, map[string]int{"a": 1000})
			s.bring("py1", 2, map[string]int{"a": tt.counts[0]})
			for node := range 8 {
				s.sends("a", node, "py1")
			}
			for _, count := range tt.counts[1:] {
				s.later(30 * time.Second)
				s.report("py1", "a", count)
				s.later(30 * time.Second)
			}
			s.report("py1", "a", tt.counts[len(tt.counts)-1])
			s.Suspicions(s.now)
			if tt.suspect {
				s.isSuspect("py1")
			} else {
				s.isSuspect()
			}
		})
	}
}

func TestProbesOfAWorkerThatDoesNotReportHandshakesAreJudgedByItsCount(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 1000})
	s.bring("py1", 2, map[string]int{"a": 0})
	for node := range 8 {
		s.sends("a", node, "py1")
	}
	s.later(time.Minute)
	s.report("py1", "a", 0)
	s.isSuspect("py1")
	for probe := range 3 {
		s.later(time.Minute)
		s.sends("a", 100+probe, "py1")
		s.later(time.Minute)
		s.report("py1", "a", probe+1)
	}
	s.isSuspect()
}

func TestAnOperatorCanTrustAWorkerAgain(t *testing.T) {
	s := holes(t)
	s.vain(0, 8)
	s.Suspicions(s.now)
	if s.Trust("gw1") || s.Trust("gw9") || !s.Trust("gw2") || s.Trust("gw2") {
		t.Error("Trust does not tell news from repetition")
	}
	s.isSuspect()
	s.sends("a", 20, "gw2")
	s.vain(21, 6)
	s.Suspicions(s.now)
	s.isSuspect() // what was before is forgotten
}
