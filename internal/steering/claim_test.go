package steering_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"wgsteer/internal/report"
	"wgsteer/internal/steering"
)

// goneFrom has a worker say that nodes of domain a are gone.
func (s *site) goneFrom(worker string, nodes ...int) {
	var list []report.Handshake
	for _, n := range nodes {
		list = append(list, report.Handshake{Key: nodeKey(n), Gone: true})
	}
	s.Seen(worker, "a", list, s.now)
}

// carries fails the test unless the workers have these peers, in all and as those that they
// say are connected.
func (s *site) carries(when string, peers, connected map[string]int) {
	s.t.Helper()
	gotPeers, gotConnected := map[string]int{}, map[string]int{}
	for _, state := range s.States() {
		gotPeers[state.Worker], gotConnected[state.Worker] = state.Reported+state.InFlight, state.Connected
	}
	if diff := cmp.Diff(peers, gotPeers); diff != "" {
		s.t.Errorf("%s: peers (-want +got):\n%s", when, diff)
	}
	if diff := cmp.Diff(connected, gotConnected); diff != "" {
		s.t.Errorf("%s: connected (-want +got):\n%s", when, diff)
	}
}

// A gateway that was cut off comes back before the handshakes of its nodes, which are
// elsewhere by now, are old: it tells of them as connected.
func TestAGatewayThatComesBackDoesNotTakeNodesFromWhereTheyAre(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0})
	s.bring("gw2", 2, map[string]int{"a": 50})
	for node := range 4 {
		s.sends("a", node, "gw1")
	}
	s.seen("gw1", 0, 1, 2, 3)
	s.report("gw1", "a", 4)
	s.later(20 * time.Second)
	s.SetStatus("gw1", false, s.now)
	for node := range 4 {
		s.sends("a", node, "gw2")
	}
	s.seen("gw2", 0, 1, 2, 3)
	s.report("gw2", "a", 54)
	s.later(30 * time.Second)
	s.seen("gw1", 0, 1, 2, 3)
	s.report("gw1", "a", 4)
	s.SetStatus("gw1", true, s.now)
	s.carries("back", map[string]int{"gw1": 0, "gw2": 54}, map[string]int{"gw1": 0, "gw2": 4})
	if got := len(s.Imbalance(steering.Balanced, s.now)); got != 4 {
		t.Errorf("%d moves, want all four that are known", got)
	}
	s.later(2 * time.Minute)
	s.goneFrom("gw1", 0, 1, 2, 3)
	s.report("gw1", "a", 0)
	s.carries("noticed", map[string]int{"gw1": 0, "gw2": 54}, map[string]int{"gw1": 0, "gw2": 4})
}

func TestAfterARestartTheOrderInWhichGatewaysComeBackDoesNotMatter(t *testing.T) {
	for _, order := range [][]string{{"gw1", "gw2"}, {"gw2", "gw1"}} {
		s := newSite(t, nil)
		s.Remember(steering.Memory{Domain: "a", Key: nodeKey(1), Worker: "gw2", Sent: s.now.Add(-time.Minute), Handshake: s.now.Add(-30 * time.Second)}, s.now)
		s.bring("gw1", 1, map[string]int{"a": 1}) // still
		s.bring("gw2", 2, map[string]int{"a": 1})
		for _, worker := range order {
			s.seen(worker, 1)
		}
		s.carries(order[0]+" first", map[string]int{"gw1": 0, "gw2": 1}, map[string]int{"gw1": 0, "gw2": 1})
	}
}

// Old nodes choose their gateway themselves.
func TestANodeThatMovesByItselfIsFoundWhereItIs(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0})
	s.bring("gw2", 2, map[string]int{"a": 0})
	s.seen("gw1", 1)
	s.report("gw1", "a", 1)
	s.later(time.Hour)
	s.seen("gw2", 1)
	s.report("gw2", "a", 1)
	s.later(3 * time.Minute)
	s.goneFrom("gw1", 1)
	s.report("gw1", "a", 0)
	s.carries("settled", map[string]int{"gw1": 0, "gw2": 1}, map[string]int{"gw1": 0, "gw2": 1})
	s.report("gw1", "a", 50)
	s.report("gw2", "a", 50)
	s.sends("a", 1, "gw2") // where it had its tunnel
}

func TestTunnelsInTwoDomainsAreTwo(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0, "b": 0})
	s.sends("a", 1, "gw1")
	s.sends("b", 1, "gw1")
	for _, domain := range []string{"a", "b"} {
		s.Seen("gw1", domain, []report.Handshake{{Key: nodeKey(1)}}, s.now)
		s.report("gw1", domain, 1)
	}
	s.carries("both", map[string]int{"gw1": 2}, map[string]int{"gw1": 2})
}

// After a restart of the server it is not known what location a node has asked for.
func TestANodeThatMayHaveAskedForItsLocationStaysThere(t *testing.T) {
	s := newSite(t, nil)
	set := settings(nil)
	set.Workers = map[string]steering.Worker{
		"gw1": {Weight: 1, Location: "MUC"}, "gw2": {Weight: 1, Location: "MUC"}, "gw3": {Weight: 1, Location: "Vienna"},
	}
	s.Configure(set)
	s.connected("gw1", 1, 0, 30)
	s.connected("gw2", 2, 100, 10)
	s.connected("gw3", 3, 200, 0)
	to := map[string]int{}
	for _, m := range s.Imbalance(steering.Balanced, s.now) {
		to[m.To]++
	}
	if to["gw3"] != 0 || to["gw2"] == 0 {
		t.Errorf("moves to %v, want some to gw2 alone", to)
	}
}

func TestWhoCouldNotBeElsewhereIsEvictedLast(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 50})
	s.bring("gw2", 2, map[string]int{"a": 0})
	s.seen("gw1", 2)
	s.sends("a", 1, "gw2")
	s.later(time.Minute)
	s.sends("a", 1, "gw1") // had no luck with gw2
	s.seen("gw1", 1)
	s.Drain("gw1", true)
	for _, want := range []int{2, 1} {
		if m, ok := s.Evict("gw1", s.now); !ok || m.Key != nodeKey(want) {
			t.Errorf("evicted %+v, want node %d", m, want)
		}
	}
}
