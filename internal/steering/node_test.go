package steering_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"wgsteer/internal/report"
	"wgsteer/internal/steering"
)

func TestWhoAsksAgainWithin5sGetsTheSameAnswer(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0})
	s.bring("gw2", 2, map[string]int{"a": 5})
	s.sends("a", 1, "gw1")
	s.report("gw1", "a", 50)
	s.later(4900 * time.Millisecond)
	s.sends("a", 1, "gw1")
	s.later(100 * time.Millisecond)
	s.sends("a", 1, "gw2")
	s.SetStatus("gw2", false, s.now)
	s.sends("a", 1, "gw1") // the same answer would be none
}

func TestAnAnswerThatIsRepeatedDoesNotLastLonger(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0})
	s.bring("gw2", 2, map[string]int{"a": 5})
	s.sends("a", 1, "gw1")
	s.later(4 * time.Second)
	s.sends("a", 1, "gw1")
	s.later(4 * time.Second)
	s.sends("a", 1, "gw2")
}

func TestANodeIsNotSentToWhereItHadNoLuck(t *testing.T) {
	s := newSite(t, nil)
	for n, worker := range []string{"gw1", "gw2", "gw3"} {
		s.bring(worker, n, map[string]int{"a": 100 * n})
	}
	s.sends("a", 1, "gw1")
	s.later(time.Minute)
	s.sends("a", 1, "gw2")
	s.sends("a", 2, "gw1") // others are
	s.later(time.Minute)
	s.sends("a", 1, "gw3")
	s.later(time.Minute)
	s.sends("a", 1, "gw1") // all are avoided: the oldest avoidance falls
	s.later(time.Minute)
	s.sends("a", 1, "gw2")
	s.later(11 * time.Minute)
	s.sends("a", 1, "gw1") // that was long ago
}

func TestANodeThatAsksAfterTheWindowMayHaveHadATunnel(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0})
	s.bring("gw2", 2, map[string]int{"a": 100})
	s.sends("a", 1, "gw1")
	s.later(10*time.Minute - time.Second)
	s.sends("a", 1, "gw2")
	s.sends("a", 2, "gw1")
	s.later(10 * time.Minute)
	s.sends("a", 2, "gw1")
}

func TestAHandshakeEndsAnAvoidance(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0})
	s.bring("gw2", 2, map[string]int{"a": 100})
	s.sends("a", 1, "gw1")
	s.later(time.Minute)
	s.sends("a", 1, "gw2")
	s.later(10 * time.Second)
	s.seen("gw1", 1) // the answer came late, but came
	s.later(2 * time.Minute)
	s.sends("a", 1, "gw1")
}

func TestANodeGoesBackToWhereItHadItsTunnel(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 100})
	s.bring("gw2", 2, map[string]int{"a": 101})
	s.sends("a", 1, "gw1")
	s.later(5 * time.Second)
	s.seen("gw1", 1)
	s.report("gw2", "a", 80)
	s.later(time.Hour)
	// Without the node, the target is 90: gw1 is 10 above it, and may be 9.
	s.report("gw1", "a", 101)
	s.report("gw2", "a", 80)
	s.sends("a", 2, "gw2")
	s.later(20 * time.Second)
	s.report("gw2", "a", 80)
	if got := s.candidate("gw1", 1); got.Diff != 10 {
		t.Fatalf("gw1 is %g above its target", got.Diff)
	}
	s.sends("a", 1, "gw2")

	s.later(20 * time.Second)
	s.seen("gw2", 1)
	s.report("gw1", "a", 100)
	s.report("gw2", "a", 118) // 9 above it, and may be 10.8
	s.later(time.Minute)
	s.sends("a", 3, "gw1")
	s.sends("a", 1, "gw2")
}

func TestOnePeerAboveItsTargetAWorkerTakesItsNodesBack(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0})
	s.bring("gw2", 2, map[string]int{"a": 0})
	s.sends("a", 1, "gw1")
	s.seen("gw1", 1)
	s.later(time.Minute)
	s.report("gw1", "a", 2) // one of them the node itself
	s.sends("a", 1, "gw1")
	s.seen("gw1", 1)
	s.later(time.Minute)
	s.report("gw1", "a", 4)
	s.sends("a", 1, "gw2")
}

// Its worker goes on to count it for three minutes.
func TestANodeThatWentElsewhereIsNotCountedWhereItWas(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0})
	s.bring("gw2", 2, map[string]int{"a": 0})
	count := func(when string, want1, want2 int) {
		t.Helper()
		one, two := s.candidate("gw1", 9), s.candidate("gw2", 9)
		if got1, got2 := one.Reported+one.InFlight, two.Reported+two.InFlight; got1 != want1 || got2 != want2 {
			t.Errorf("%s: %d and %d peers, want %d and %d", when, got1, got2, want1, want2)
		}
	}
	s.sends("a", 1, "gw1")
	s.seen("gw1", 1)
	s.later(20 * time.Second)
	s.report("gw1", "a", 1)
	s.sends("a", 1, "gw1")
	count("asking again", 1, 0)
	s.seen("gw1", 1)
	count("back", 1, 0)
	s.report("gw1", "a", 1)
	count("with the next report", 1, 0)
	s.SetStatus("gw1", false, s.now)
	s.sends("a", 1, "gw2")
	s.seen("gw2", 1)
	s.SetStatus("gw1", true, s.now)
	s.seen("gw1", 1) // that was before; it is told everything again
	s.report("gw1", "a", 1)
	s.seen("gw2", 1)
	s.report("gw2", "a", 1)
	count("counted in both", 0, 1)
	s.later(time.Minute)
	s.report("gw1", "a", 1)
	count("a minute later", 0, 1)
	s.Seen("gw1", "a", []report.Handshake{{Key: nodeKey(1), Gone: true}}, s.now)
	s.report("gw1", "a", 0)
	count("when it is gone", 0, 1)
}

func TestADepartureDoesNotMakeANodeForgetWhereItWas(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 10})
	s.bring("gw2", 2, map[string]int{"a": 10})
	s.sends("a", 1, "gw1")
	s.seen("gw1", 1)
	s.later(time.Minute)
	s.report("gw1", "a", 11)
	s.Seen("gw1", "a", []report.Handshake{{Key: nodeKey(1), Gone: true}}, s.now)
	s.sends("a", 2, "gw2")
	s.sends("a", 1, "gw1")
}

func TestNodesOfALocationStayThere(t *testing.T) {
	s := newSite(t, nil)
	set := settings(nil)
	set.Workers = map[string]steering.Worker{"gw1": {Weight: 1, Location: "MUC"}, "gw2": {Weight: 1, Location: "MUC"}, "gw3": {Weight: 1, Location: "Vienna"}}
	s.Configure(set)
	s.bring("gw1", 1, map[string]int{"a": 500})
	s.bring("gw2", 2, map[string]int{"a": 600})
	s.bring("gw3", 3, map[string]int{"a": 0})
	s.bring("gw4", 4, map[string]int{"a": 9})
	ask := func(node int, location, want string) {
		t.Helper()
		a, _ := s.Assign(steering.Ask{Domain: "a", Key: nodeKey(node), Location: location}, s.now)
		if a.Worker != want {
			t.Errorf("node %d of %q is sent to %s, want %s", node, location, a.Worker, want)
		}
	}
	ask(1, "", "gw3")
	ask(2, "MUC", "gw1")
	ask(3, "Vienna", "gw3")
	ask(4, "nowhere", "gw3")
	s.later(time.Minute)
	ask(2, "MUC", "gw2") // had no luck with gw1
	s.later(time.Minute)
	s.report("gw4", "a", 0)
	ask(2, "MUC", "gw4") // nor with gw2
	s.SetStatus("gw3", false, s.now)
	ask(5, "Vienna", "gw4")
}

func TestADrainedWorkerGetsNodesOnlyWhenItIsTheOnlyOne(t *testing.T) {
	s := newSite(t, nil)
	if !s.Drain("gw1", true) || s.Drain("gw1", true) { // before it is known
		t.Error("Drain does not tell news from repetition")
	}
	s.bring("gw1", 1, map[string]int{"a": 0, "b": 0})
	s.bring("gw2", 2, map[string]int{"a": 100})
	s.sends("a", 1, "gw2")
	s.sends("b", 2, "gw1")
	s.seen("gw1", 2)
	s.later(time.Minute)
	s.sends("a", 1, "gw2") // it had no luck there, but is not sent to gw1
	s.SetStatus("gw2", false, s.now)
	if e, _ := s.Explain(steering.Ask{Domain: "a"}, s.now); e.Reason != "the only one left; all are drained, so that is passed over" {
		t.Errorf("explained with %q", e.Reason)
	}
	s.sends("a", 3, "gw1")
	s.SetStatus("gw2", true, s.now)
	if !s.Drain("gw1", false) {
		t.Error("the end of a drain is no news")
	}
	s.sends("a", 4, "gw1")
}

func TestWeightsAndDomainsCanChange(t *testing.T) {
	s := newSite(t, map[string]uint32{"gw1": 1, "gw2": 1})
	s.bring("gw1", 1, map[string]int{"a": 10})
	s.bring("gw2", 2, map[string]int{"a": 12})
	s.sends("a", 1, "gw1")
	set := settings(map[string]uint32{"gw1": 1, "gw2": 5})
	set.Domains = []string{"b", "c"}
	s.Configure(set)
	s.sends("a", 2, "gw2")
	if !s.Knows("c") || !s.Knows("a") {
		t.Error("a domain was not added, or one was taken out")
	}
	s.bring("gw2", 2, map[string]int{"c": 0})
	s.sends("c", 3, "gw2")
}

func TestWhatIsRememberedOfANodeCounts(t *testing.T) {
	s := newSite(t, nil)
	remember := func(node int, worker string, ago, handshake time.Duration) {
		s.Remember(steering.Memory{Domain: "a", Key: nodeKey(node), Worker: worker, Sent: s.now.Add(-ago), Handshake: s.now.Add(-handshake)}, s.now)
	}
	remember(1, "gw2", time.Hour, time.Minute)
	remember(2, "gw1", time.Minute, time.Hour)
	remember(3, "gw2", 3*time.Second, time.Hour)
	s.bring("gw1", 1, map[string]int{"a": 10})
	s.bring("gw2", 2, map[string]int{"a": 10})
	if got := s.candidate("gw2", 9).InFlight; got != 1 {
		t.Errorf("%d in flight to gw2, want the one that was sent 3 s ago", got)
	}
	s.sends("a", 4, "gw1")
	s.sends("a", 1, "gw2") // had its tunnel there
	s.sends("a", 2, "gw2") // had no luck with gw1
}

func TestANodeThatWasNotHeardOfIsForgotten(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 10})
	s.bring("gw2", 2, map[string]int{"a": 10})
	s.sends("a", 1, "gw1")
	s.seen("gw1", 1)
	for range 25 {
		s.later(time.Hour)
		s.report("gw1", "a", 11)
		s.report("gw2", "a", 10)
		s.Suspicions(s.now)
	}
	s.sends("a", 1, "gw2")
}

// However reports, nodes and outages are mixed: a node counts at most once in each domain.
func TestNobodyCountsTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSite(t, map[string]uint32{"gw1": 2})
		workers := []string{"gw1", "gw2", "gw3"}
		for n, w := range workers {
			s.bring(w, n, map[string]int{"a": 0, "b": 0})
		}
		type id struct {
			domain string
			node   int
		}
		sent := make(map[id]struct{})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			s.later(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
			w, node := rapid.SampledFrom(workers).Draw(t, "worker"), rapid.IntRange(0, 9).Draw(t, "node")
			domain := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "domain")
			switch rapid.IntRange(0, 6).Draw(t, "what") {
			case 0, 1:
				if _, ok := s.Assign(steering.Ask{Domain: domain, Key: nodeKey(node)}, s.now); ok {
					sent[id{domain, node}] = struct{}{}
				}
			case 2:
				s.report(w, domain, rapid.IntRange(0, 9).Draw(t, "peers"))
			case 3:
				s.Seen(w, domain, []report.Handshake{{Key: nodeKey(node)}}, s.now)
			case 4:
				s.Seen(w, domain, []report.Handshake{{Key: nodeKey(node), Gone: true}}, s.now)
			case 5:
				s.SetStatus(w, rapid.Bool().Draw(t, "online"), s.now)
			case 6:
				if m, _, ok := s.Rebalance(steering.Balanced, s.now); ok {
					for n := range 10 {
						if nodeKey(n) == m.Key {
							sent[id{m.Domain, n}] = struct{}{} // expected, as if it had asked
						}
					}
				}
			}
			inFlight, connected := 0, 0
			for _, state := range s.States() {
				inFlight += state.InFlight
				connected += state.Connected
			}
			if inFlight > len(sent) {
				t.Fatalf("%d in flight of %d nodes", inFlight, len(sent))
			}
			if connected > 20 {
				t.Fatalf("%d connected of ten nodes in two domains", connected)
			}
		}
	})
}

func TestTheExplanationIsWhatHappens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSite(t, map[string]uint32{"gw1": 3, "gw3": 0})
		workers := []string{"gw1", "gw2", "gw3", "gw4"}
		for n, w := range workers {
			s.bring(w, n, map[string]int{"a": rapid.IntRange(0, 20).Draw(t, "peers")})
			s.seen(w, 100+n)
			s.Drain(w, rapid.IntRange(0, 4).Draw(t, "drained") == 0)
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			s.later(time.Duration(rapid.IntRange(0, 90).Draw(t, "seconds")) * time.Second)
			node := rapid.IntRange(0, 7).Draw(t, "node")
			ask := steering.Ask{Domain: "a", Key: nodeKey(node)}
			s.Suspicions(s.now)
			first, _ := s.Explain(ask, s.now)
			again, _ := s.Explain(ask, s.now)
			if diff := cmp.Diff(first, again); diff != "" {
				t.Fatalf("explaining changes something:\n%s", diff)
			}
			// The failure that the question itself is can make a worker suspect.
			before := s.States()
			a, _ := s.Assign(ask, s.now)
			if cmp.Equal(suspects(before), suspects(s.States())) && a.Worker != first.Chosen {
				t.Fatalf("sent to %s: %+v", a.Worker, first)
			}
			if rapid.Bool().Draw(t, "seen") && a.Worker != "gw2" {
				s.seen(a.Worker, node)
			}
		}
	})
}

func suspects(states []steering.State) (names []string) {
	for _, s := range states {
		if s.Suspect {
			names = append(names, s.Worker)
		}
	}
	return names
}

func TestWhoeverWasSeenIsInTheNextCount(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0})
	s.bring("gw2", 2, map[string]int{"a": 100})
	for node := range 3 {
		s.sends("a", node, "gw1")
	}
	s.later(5 * time.Second)
	s.seen("gw1", 0, 1)
	if got := s.candidate("gw1", 9).InFlight; got != 3 {
		t.Errorf("%d in flight before the count, want 3", got)
	}
	s.report("gw1", "a", 2)
	if got := s.candidate("gw1", 9).InFlight; got != 1 {
		t.Errorf("%d in flight after the count, want the one that was not seen", got)
	}
}

func TestWhoHadNoLuckElsewhereGoesBackToWhereItHadItsTunnel(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0})
	s.bring("gw2", 2, map[string]int{"a": 100})
	s.bring("gw3", 3, map[string]int{"a": 300})
	s.sends("a", 1, "gw1")
	s.seen("gw1", 1)
	s.report("gw1", "a", 105)
	s.report("gw3", "a", 100)
	s.later(time.Hour)
	s.SetStatus("gw1", false, s.now)
	s.sends("a", 1, "gw2")
	s.SetStatus("gw1", true, s.now)
	s.later(time.Minute)
	s.sends("a", 1, "gw1") // by weight it would be gw3
}
