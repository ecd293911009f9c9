package steering_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"wgsteer/internal/report"
	"wgsteer/internal/steering"
)

// connected brings a worker with nodes that are connected to it, from one number on.
func (s *site) connected(worker string, n, from, count int) {
	s.bring(worker, n, map[string]int{"a": count})
	for node := from; node < from+count; node++ {
		s.seen(worker, node)
	}
}

func (s *site) gone(worker string, key steering.Move) {
	s.Seen(worker, "a", []report.Handshake{{Key: key.Key, Gone: true}}, s.now)
}

func TestEvictingEmptiesAWorker(t *testing.T) {
	s := newSite(t, nil)
	s.connected("gw1", 1, 0, 3)
	s.connected("gw2", 2, 100, 50)
	s.Drain("gw1", true)
	keys := map[string]bool{}
	for range 3 {
		m, ok := s.Evict("gw1", s.now)
		if !ok || m.From != "gw1" || m.Domain != "a" {
			t.Fatalf("%+v, %v", m, ok)
		}
		keys[m.Key.String()] = true
	}
	if len(keys) != 3 {
		t.Errorf("%d different nodes", len(keys))
	}
	if m, ok := s.Evict("gw1", s.now); ok {
		t.Errorf("evicted %+v from an empty worker", m)
	}
	if got := s.candidate("gw1", 9); got.InFlight != -3 {
		t.Errorf("in flight: %d, want -3", got.InFlight)
	}
	for node := range 3 {
		s.sends("a", node, "gw2") // and not back
	}
	s.later(15 * time.Second)
	s.report("gw1", "a", 0)
	if got := s.candidate("gw1", 9); got.InFlight != 0 {
		t.Errorf("in flight: %d, want 0", got.InFlight)
	}
}

func TestANodeThatCannotGoElsewhereIsNotEvicted(t *testing.T) {
	for name, prepare := range map[string]func(*site){
		"no other":    func(*site) {},
		"one offline": func(s *site) { s.connected("gw2", 2, 100, 5); s.SetStatus("gw2", false, s.now) },
		"one drained": func(s *site) { s.connected("gw2", 2, 100, 5); s.Drain("gw2", true) },
		"one that serves another domain": func(s *site) {
			s.bring("gw2", 2, map[string]int{"b": 5})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, nil)
			s.connected("gw1", 1, 0, 3)
			prepare(s)
			if m, ok := s.Evict("gw1", s.now); ok {
				t.Errorf("evicted %+v", m)
			}
		})
	}
}

func TestOneThatIsStillConnectedIsEvictedAgain(t *testing.T) {
	s := newSite(t, nil)
	s.connected("gw1", 1, 0, 1)
	s.connected("gw2", 2, 100, 5)
	s.Drain("gw1", true)
	first, _ := s.Evict("gw1", s.now)
	s.later(20 * time.Second)
	s.seen("gw1", 0) // the agent lost the message, or has restarted
	second, ok := s.Evict("gw1", s.now)
	if !ok || second != first {
		t.Errorf("%+v, %v, want %+v again", second, ok, first)
	}
}

func TestWhoeverDepartedIsNotEvicted(t *testing.T) {
	s := newSite(t, nil)
	s.connected("gw1", 1, 0, 1)
	s.connected("gw2", 2, 100, 5)
	s.Seen("gw1", "a", []report.Handshake{{Key: nodeKey(0), Gone: true}}, s.now)
	if m, ok := s.Evict("gw1", s.now); ok {
		t.Errorf("evicted %+v", m)
	}
	s.seen("gw1", 0)
	s.later(71 * time.Minute) // and has not been heard of since
	if m, ok := s.Evict("gw1", s.now); ok {
		t.Errorf("evicted %+v after an hour without a word", m)
	}
}

func TestTheImbalanceIsJustWhatIsNeeded(t *testing.T) {
	for name, tt := range map[string]struct {
		weights map[string]uint32
		peers   []int // of gw1, gw2, …
		want    map[string]int
	}{
		"none":                    {nil, []int{50, 50}, map[string]int{}},
		"one peer":                {nil, []int{3, 5}, map[string]int{}},
		"two percent":             {nil, []int{1020, 980}, map[string]int{}},
		"more than one":           {nil, []int{2, 6}, map[string]int{"gw2>gw1": 1}},
		"more than two percent":   {nil, []int{1030, 970}, map[string]int{"gw1>gw2": 10}},
		"an empty one":            {nil, []int{100, 100, 0}, map[string]int{"gw1>gw3": 33, "gw2>gw3": 33}},
		"weights":                 {map[string]uint32{"gw1": 3}, []int{20, 20}, map[string]int{"gw2>gw1": 9}},
		"at the bound, rounded":   {map[string]uint32{"gw2": 10, "gw3": 10}, []int{0, 38, 102}, map[string]int{"gw3>gw1": 6, "gw3>gw2": 28}},
		"weight 0 gets rid of it": {map[string]uint32{"gw2": 0}, []int{10, 10}, map[string]int{"gw2>gw1": 9}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, tt.weights)
			for i, count := range tt.peers {
				s.connected(fmt.Sprintf("gw%d", i+1), i, 10_000*i, count)
			}
			got := map[string]int{}
			for _, m := range s.Imbalance(steering.Balanced, s.now) {
				got[m.From+">"+m.To]++
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("moves (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRebalancingMovesAsManyAsPlanned(t *testing.T) {
	s := newSite(t, nil)
	s.connected("gw1", 1, 0, 40)
	s.connected("gw2", 2, 100, 40)
	s.connected("gw3", 3, 200, 0)
	plan := len(s.Imbalance(steering.Balanced, s.now))
	moved, count := map[string]string{}, map[string]int{"gw1": 40, "gw2": 40}
	var late []steering.Move
	arrive := func(m steering.Move) {
		a, _ := s.Assign(steering.Ask{Domain: "a", Key: m.Key}, s.now)
		if a.Worker != "gw3" {
			t.Fatalf("the node asks and is sent to %s", a.Worker)
		}
		s.Seen("gw3", "a", []report.Handshake{{Key: m.Key}}, s.now)
	}
	for {
		m, left, ok := s.Rebalance(steering.Balanced, s.now)
		if !ok && left > 0 && len(late) > 0 {
			for _, m := range late {
				arrive(m)
			}
			late = nil
			continue
		}
		if !ok {
			break
		}
		if _, twice := moved[m.Key.String()]; twice {
			t.Fatalf("%v is moved twice", m.Key)
		}
		moved[m.Key.String()] = m.To
		if want := plan - len(moved); left != want {
			t.Fatalf("%d left after %d of %d", left, len(moved), plan)
		}
		s.later(time.Second)
		s.gone(m.From, m)
		if count[m.From]--; len(moved)%5 == 0 { // counts come later
			for worker, peers := range count {
				s.report(worker, "a", peers)
			}
		}
		if len(moved)%3 == 0 { // some ask at once, some later
			arrive(m)
		} else {
			late = append(late, m)
		}
	}
	if len(moved) != plan || plan != 26 {
		t.Errorf("%d moved, %d planned", len(moved), plan)
	}
}

func TestFewNodesAreMovedToAWorkerBeforeTheyAreSeenThere(t *testing.T) {
	s := newSite(t, nil)
	s.connected("gw1", 1, 0, 200)
	s.connected("gw2", 2, 1000, 0)
	s.seen("gw2", 5000)
	s.report("gw2", "a", 1)
	plan := len(s.Imbalance(steering.Balanced, s.now))
	group := func(want int) (moved []steering.Move) {
		t.Helper()
		for {
			m, left, ok := s.Rebalance(steering.Balanced, s.now)
			if !ok {
				if len(moved) != want || left != plan {
					t.Fatalf("%d are moved and %d left, want %d and %d", len(moved), left, want, plan)
				}
				return moved
			}
			plan--
			moved = append(moved, m)
			s.gone("gw1", m)
		}
	}
	ask := func(moved []steering.Move) {
		for _, m := range moved {
			s.Assign(steering.Ask{Domain: "a", Key: m.Key}, s.now)
		}
	}
	seen := func(moved []steering.Move) {
		for _, m := range moved {
			s.Seen("gw2", "a", []report.Handshake{{Key: m.Key}}, s.now)
		}
	}
	first := group(5)
	ask(first)
	group(0)
	seen(first)
	second := group(10)
	ask(second)
	seen(second[:4])
	third := group(8) // of 14 places, for those that were seen, six are taken
	ask(third)
	s.later(time.Minute)
	// Those that are sent back have left, and say nothing for gw2.
	for _, m := range third {
		if a, _ := s.Assign(steering.Ask{Domain: "a", Key: m.Key}, s.now); a.Worker != "gw1" {
			t.Fatalf("a node that gw2 did not see is sent to %s", a.Worker)
		}
	}
}

func TestEvenIsCloserThanBalanced(t *testing.T) {
	s := newSite(t, nil)
	s.connected("gw1", 1, 0, 1030)
	s.connected("gw2", 2, 10_000, 970)
	if moves := s.Imbalance(steering.Even, s.now); len(moves) != 25 {
		t.Errorf("%d moves, want those that bring both within five of 1,000", len(moves))
	}
	s.report("gw1", "a", 1020)
	s.report("gw2", "a", 980)
	if moves := s.Imbalance(steering.Balanced, s.now); len(moves) != 0 {
		t.Errorf("%d moves although both are within 20 of 1,000", len(moves))
	}
}

func TestOneThatDoesNotAskIsNotExpectedForEver(t *testing.T) {
	s := newSite(t, nil)
	s.connected("gw1", 1, 0, 6)
	s.connected("gw2", 2, 100, 2)
	if _, _, ok := s.Rebalance(steering.Balanced, s.now); !ok {
		t.Fatal("nothing is moved")
	}
	if got := s.candidate("gw2", 9).InFlight; got != 1 {
		t.Fatalf("%d in flight, want the one that is expected", got)
	}
	s.later(9 * time.Minute)
	s.report("gw2", "a", 2)
	if got := s.candidate("gw2", 9).InFlight; got != 1 {
		t.Errorf("%d in flight after nine minutes, want 1", got)
	}
	s.later(time.Minute)
	s.report("gw2", "a", 2)
	if got := s.candidate("gw2", 9).InFlight; got != 0 {
		t.Errorf("%d in flight after ten minutes, want 0", got)
	}
}

func TestNobodyIsMovedToWhereItCannotBe(t *testing.T) {
	s := newSite(t, nil)
	s.connected("gw1", 1, 10, 0)
	s.bring("gw2", 2, map[string]int{"a": 50})
	s.sends("a", 1, "gw1")
	s.later(time.Minute)
	s.sends("a", 1, "gw2") // had no luck with gw1
	s.later(time.Second)
	s.seen("gw2", 1)
	if moves := s.Imbalance(steering.Balanced, s.now); len(moves) != 0 {
		t.Errorf("%+v", moves)
	}

	set := settings(nil)
	set.Workers = map[string]steering.Worker{"gw3": {Weight: 1, Location: "MUC"}, "gw4": {Weight: 1, Location: "Vienna"}}
	other := newSite(t, nil)
	other.Configure(set)
	other.bring("gw3", 3, map[string]int{"a": 50})
	other.bring("gw4", 4, map[string]int{"a": 0})
	for node := range 3 {
		if a, _ := other.Assign(steering.Ask{Domain: "a", Key: nodeKey(node), Location: "MUC"}, other.now); a.Worker != "gw3" {
			t.Fatalf("sent to %s", a.Worker)
		}
		other.seen("gw3", node)
	}
	if moves := other.Imbalance(steering.Balanced, other.now); len(moves) != 0 {
		t.Errorf("out of their location: %+v", moves)
	}
}

func TestSuspectDrainedAndAbsentWorkersAreLeftAlone(t *testing.T) {
	for name, prepare := range map[string]func(*site){
		"drained": func(s *site) { s.Drain("gw2", true) },
		"offline": func(s *site) { s.SetStatus("gw2", false, s.now) },
		"leaving": func(s *site) { s.report("gw2", "a", report.Leaving) },
		"suspect": func(s *site) {
			s.vain(500, 8)
			s.Suspicions(s.now)
			s.later(time.Minute)
			s.report("gw2", "a", 0)
			s.isSuspect("gw2")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t, nil)
			s.connected("gw1", 1, 0, 50)
			s.connected("gw2", 2, 100, 0)
			s.seen("gw2", 999)
			prepare(s)
			if moves := s.Imbalance(steering.Balanced, s.now); len(moves) != 0 {
				t.Errorf("%+v", moves)
			}
		})
	}
}

// After the moves, everybody is as close to the target as is demanded, and with one move
// fewer somebody is not.
func TestTheImbalanceIsEnoughAndNoMore(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights, count, total := map[string]uint32{}, map[string]int{}, 0
		n := rapid.IntRange(2, 5).Draw(t, "workers")
		for i := range n {
			name := fmt.Sprintf("gw%d", i)
			weights[name] = rapid.Uint32Range(1, 10).Draw(t, "weight")
			count[name] = rapid.IntRange(0, 150).Draw(t, "peers")
			total += count[name]
		}
		s := newSite(t, weights)
		for i := range n {
			name := fmt.Sprintf("gw%d", i)
			s.connected(name, i, 1000*i, count[name])
		}
		moves := s.Imbalance(steering.Balanced, s.now)
		off := func() string {
			sum := uint32(0)
			for _, w := range weights {
				sum += w
			}
			for name, w := range weights {
				target := float64(total) * float64(w) / float64(sum)
				if diff := float64(count[name]) - target; max(diff, -diff) > max(1, 0.02*target)+1e-9 {
					return fmt.Sprintf("%s has %d peers, target %g", name, count[name], target)
				}
			}
			return ""
		}
		for i, m := range moves {
			if i == len(moves)-1 && off() == "" {
				t.Fatalf("the last of %d moves is not needed", len(moves))
			}
			count[m.From]--
			count[m.To]++
		}
		// Whole peers may not fit between the bounds of all.
		if why := off(); why != "" && len(moves) == 0 {
			t.Fatalf("no moves, but %s", why)
		} else if why != "" {
			t.Fatalf("after %d moves %s", len(moves), why)
		}
	})
}
