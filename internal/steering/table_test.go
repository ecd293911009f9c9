package steering_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"wgsteer/internal/peer"
	"wgsteer/internal/report"
	"wgsteer/internal/steering"
)

// nodeKey and workerKey make keys that differ for every n, and from each other.
func nodeKey(n int) (k peer.Key)   { binary.BigEndian.PutUint32(k[:], uint32(n)+1); return k }
func workerKey(n int) (k peer.Key) { k = nodeKey(n); k[31] = 1; return k }

func data(n int) report.Data {
	return report.Data{
		ExternalAddress: fmt.Sprintf("gw%d.example.org", n), Port: 40000, PublicKey: workerKey(n),
		LinkAddress: netip.MustParseAddr("fe80::1"),
	}
}

// site is a table and what time it is.
type site struct {
	*steering.Table
	t   rapid.TB
	now time.Time
}

// settings are those of these tests: two domains, workers of the given weights (1 if
// none).
func settings(weights map[string]uint32) steering.Settings {
	workers := make(map[string]steering.Worker)
	for name, weight := range weights {
		workers[name] = steering.Worker{Weight: weight}
	}
	return steering.Settings{
		Domains: []string{"a", "b"}, Workers: workers,
		SilentAfter: 3 * time.Minute, Settle: 15 * time.Second, RetryWindow: 10 * time.Minute,
		StickyTolerance: 0.1, Memory: 24 * time.Hour,
	}
}

func newSite(t rapid.TB, weights map[string]uint32) *site {
	return &site{steering.New(settings(weights)), t, time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)}
}

// later lets time pass.
func (s *site) later(d time.Duration) { s.now = s.now.Add(d) }

// bring makes a worker offer domains with the given counts of peers.
func (s *site) bring(worker string, n int, peers map[string]int) {
	s.SetStatus(worker, true, s.now)
	for domain, count := range peers {
		s.SetData(worker, domain, data(n))
		s.report(worker, domain, count)
	}
}

func (s *site) report(worker, domain string, peers int) { s.SetPeers(worker, domain, peers, s.now) }

// send sends the node to a worker of the domain and returns the worker's name.
func (s *site) send(domain string, node int) string {
	s.t.Helper()
	a, ok := s.Assign(steering.Ask{Domain: domain, Key: nodeKey(node)}, s.now)
	if !ok {
		s.t.Fatalf("no worker for domain %s", domain)
	}
	return a.Worker
}

// sends fails the test unless the node is sent to this worker.
func (s *site) sends(domain string, node int, want string) {
	s.t.Helper()
	if got := s.send(domain, node); got != want {
		s.t.Fatalf("node %d is sent to %s, want %s", node, got, want)
	}
}

// seen has a worker report handshakes of nodes in domain a.
func (s *site) seen(worker string, nodes ...int) {
	var list []report.Handshake
	for _, n := range nodes {
		list = append(list, report.Handshake{Key: nodeKey(n)})
	}
	s.Seen(worker, "a", list, s.now)
}

// candidate returns how a worker stands for a node in domain a.
func (s *site) candidate(worker string, node int) steering.Candidate {
	s.t.Helper()
	e, _ := s.Explain(steering.Ask{Domain: "a", Key: nodeKey(node)}, s.now)
	for _, c := range e.Candidates {
		if c.Worker == worker {
			return c
		}
	}
	s.t.Fatalf("no candidate %s", worker)
	return steering.Candidate{}
}

func TestAWorkerOffersADomainWhenItIsOnlineAndSentDataAndPeers(t *testing.T) {
	all := map[string]func(*site){
		"status": func(t *site) { t.SetStatus("gw1", true, t.now) },
		"data":   func(t *site) { t.SetData("gw1", "a", data(1)) },
		"peers":  func(t *site) { t.report("gw1", "a", 0) },
	}
	for missing := range all {
		s := newSite(t, nil)
		for name, report := range all {
			if name != missing {
				report(s)
			}
		}
		if a, ok := s.Assign(steering.Ask{Domain: "a", Key: nodeKey(1)}, s.now); ok {
			t.Errorf("without %s: sent to %+v, want nowhere", missing, a)
		}
		all[missing](s)
		a, ok := s.Assign(steering.Ask{Domain: "a", Key: nodeKey(1)}, s.now)
		if want := (steering.Assignment{Worker: "gw1", Data: data(1)}); !ok || a != want {
			t.Errorf("with %s at last: sent to %+v, %v, want %+v", missing, a, ok, want)
		}
		if a, ok := s.Assign(steering.Ask{Domain: "b", Key: nodeKey(1)}, s.now); ok {
			t.Errorf("domain b, which nobody offers: sent to %+v", a)
		}
	}
}

func TestLeavingADomainLeavesTheOthers(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 3, "b": 4})
	s.report("gw1", "a", report.Leaving)
	if diff := cmp.Diff([]string{"a"}, s.Unserved()); diff != "" {
		t.Errorf("unserved (-want +got):\n%s", diff)
	}
	s.report("gw1", "a", 0)
	if diff := cmp.Diff([]string{}, s.Unserved()); diff != "" {
		t.Errorf("unserved after it came back (-want +got):\n%s", diff)
	}
}

func TestAnOfflineWorkerIsNotChosenAndComesBackWithItsReports(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0})
	s.bring("gw2", 2, map[string]int{"a": 100})
	if !s.SetStatus("gw1", false, s.now) || s.SetStatus("gw1", false, s.now) {
		t.Error("SetStatus does not tell news from repetition")
	}
	if got := s.send("a", 1); got != "gw2" {
		t.Errorf("sent to %s, want gw2", got)
	}
	s.SetStatus("gw1", true, s.now)
	if got := s.send("a", 2); got != "gw1" {
		t.Errorf("sent to %s, want gw1", got)
	}
}

func TestPeersAreSummedOverAllDomainsOfTheWorker(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 10, "b": 50})
	s.bring("gw2", 2, map[string]int{"a": 40, "b": report.Leaving})
	if got := s.send("a", 1); got != "gw2" {
		t.Errorf("sent to %s, want gw2: it has 40 peers, gw1 60", got)
	}
}

func TestThoseWhoDoNotServeTheDomainDoNotCount(t *testing.T) {
	// With gw3's weight in the sum, gw1 and gw2 would both be far above their targets,
	// and gw2, the smaller one, would win.
	s := newSite(t, map[string]uint32{"gw1": 20, "gw2": 10, "gw3": 1000})
	s.bring("gw1", 1, map[string]int{"a": 20})
	s.bring("gw2", 2, map[string]int{"a": 12})
	s.bring("gw3", 3, map[string]int{"b": 0})
	s.SetData("gw4", "a", data(4)) // and one that was never online
	s.report("gw4", "a", 500)
	if got := s.send("a", 1); got != "gw1" {
		t.Errorf("sent to %s, want gw1", got)
	}
}

func TestTheNextExchangeSeesThePeerThatTheLastOneAdded(t *testing.T) {
	s := newSite(t, map[string]uint32{"gw1": 3, "gw2": 1})
	s.bring("gw1", 1, map[string]int{"a": 0})
	s.bring("gw2", 2, map[string]int{"a": 0})
	sent := map[string]int{}
	for node := range 40 {
		sent[s.send("a", node)]++
	}
	if diff := cmp.Diff(map[string]int{"gw1": 30, "gw2": 10}, sent); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

func TestAnAssignmentCountsUntilAReportThatCanContainIt(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0})
	for node := range 3 {
		s.send("a", node)
	}
	inFlight := func(reported, want int) {
		t.Helper()
		s.report("gw1", "a", reported)
		if got := s.candidate("gw1", 9); got.Reported != reported || got.InFlight != want {
			t.Errorf("%v: %d reported and %d in flight, want %d and %d", s.now, got.Reported, got.InFlight, reported, want)
		}
	}
	s.later(10 * time.Second)
	inFlight(1, 3)
	s.send("a", 3)
	s.later(4900 * time.Millisecond)
	inFlight(2, 4)
	s.later(100 * time.Millisecond)
	inFlight(3, 1)
	s.later(10 * time.Second)
	inFlight(3, 0) // one never came
}

func TestAReportForOneDomainKeepsWhatWasAssignedInAnother(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0, "b": 0})
	s.send("a", 1)
	s.send("a", 2)
	s.report("gw1", "b", 0)
	s.bring("gw2", 2, map[string]int{"b": 1})
	if got := s.send("b", 3); got != "gw2" {
		t.Errorf("sent to %s, want gw2: gw1 was sent two nodes", got)
	}
}

func TestAKeyCountsOnceHoweverOftenItAsks(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0})
	s.bring("gw2", 2, map[string]int{"a": 5})
	for range 20 {
		s.later(7 * time.Second)
		s.send("a", 1)
		if total := s.candidate("gw1", 2).InFlight + s.candidate("gw2", 2).InFlight; total != 1 {
			t.Fatalf("it counts %d times", total)
		}
	}
}

func TestAKeyThatMovesLeavesNothingBehind(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0, "b": 0})
	s.bring("gw0", 2, map[string]int{"a": 1})
	if got := s.send("a", 1); got != "gw1" {
		t.Fatalf("sent to %s, want gw1", got)
	}
	s.report("gw1", "b", 50)
	s.later(time.Hour)
	if got := s.send("a", 1); got != "gw0" {
		t.Fatalf("sent to %s, want gw0", got)
	}
	s.report("gw1", "b", 1)
	if got := s.send("a", 2); got != "gw1" {
		t.Errorf("sent to %s, want gw1: it has one peer, gw0 two", got)
	}
}

func TestAssignmentsOfAWorkerThatWentOfflineAreDropped(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0})
	for node := range 5 {
		s.send("a", node)
	}
	s.SetStatus("gw1", false, s.now)
	s.SetStatus("gw1", true, s.now)
	s.bring("gw2", 2, map[string]int{"a": 1})
	if got := s.send("a", 9); got != "gw1" {
		t.Errorf("sent to %s, want gw1, which has no peer", got)
	}
}

func TestAWorkerThatDoesNotReportIsNotChosenUntilItDoes(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0})
	s.bring("gw2", 2, map[string]int{"a": 100})
	later := s.now.Add(3 * time.Minute)
	s.SetPeers("gw2", "a", 100, later)
	if diff := cmp.Diff([]steering.Hearing(nil), s.Listen(later.Add(-time.Second))); diff != "" {
		t.Errorf("a second too early (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]steering.Hearing{{Worker: "gw1", Silent: true, Heard: s.now}}, s.Listen(later)); diff != "" {
		t.Errorf("after three minutes (-want +got):\n%s", diff)
	}
	if got := s.send("a", 1); got != "gw2" {
		t.Errorf("sent to %s, want gw2", got)
	}
	if diff := cmp.Diff([]steering.Hearing(nil), s.Listen(later)); diff != "" {
		t.Errorf("said twice (-want +got):\n%s", diff)
	}
	s.SetPeers("gw1", "a", 0, later)
	if got := s.send("a", 2); got != "gw1" {
		t.Errorf("with its next report: sent to %s, want gw1", got)
	}
	if diff := cmp.Diff([]steering.Hearing{{Worker: "gw1", Heard: later}}, s.Listen(later)); diff != "" {
		t.Errorf("heard again (-want +got):\n%s", diff)
	}
}

func TestAWorkerThatIsOfflineIsNotSilent(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0})
	s.SetStatus("gw1", false, s.now)
	if got := s.Listen(s.now.Add(time.Hour)); len(got) != 0 {
		t.Errorf("%v, want nothing", got)
	}
}

// Its agent waits for an interface: there is nothing to count.
func TestAWorkerThatOffersNothingIsNotSilent(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": report.Leaving})
	if got := s.Listen(s.now.Add(time.Hour)); len(got) != 0 {
		t.Errorf("%v, want nothing", got)
	}
	if got := s.States()[0].Health; got != "offers no domain: its agent's log says why" {
		t.Errorf("its health is %q", got)
	}
}

func TestWorkersThatAreOnlyConfiguredAreKnown(t *testing.T) {
	s := newSite(t, map[string]uint32{"gw1": 7, "gw2": 0})
	s.bring("gw1", 1, map[string]int{"a": 3})
	s.Drain("gw2", true)
	want := []steering.State{
		{Worker: "gw1", Weight: 7, Online: true, Reported: 3, Domains: []string{"a"}, Health: "ok"},
		{Worker: "gw2", Drained: true, Health: "never heard of"},
	}
	if diff := cmp.Diff(want, s.States()); diff != "" {
		t.Errorf("states (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"a": 1, "b": 0}, s.Offering()); diff != "" {
		t.Errorf("offering (-want +got):\n%s", diff)
	}
}

func TestUnservedListsConfiguredDomains(t *testing.T) {
	s := newSite(t, nil)
	if diff := cmp.Diff([]string{"a", "b"}, s.Unserved()); diff != "" {
		t.Errorf("without workers (-want +got):\n%s", diff)
	}
	s.bring("gw1", 1, map[string]int{"b": 0, "no such domain": 0})
	if diff := cmp.Diff([]string{"a"}, s.Unserved()); diff != "" {
		t.Errorf("with one (-want +got):\n%s", diff)
	}
}

func TestIsWorkerKey(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0, "b": 0})
	if !s.IsWorkerKey(workerKey(1)) || s.IsWorkerKey(nodeKey(1)) {
		t.Error("a worker's key is not told from a node's")
	}
	s.SetData("gw1", "a", data(2))
	if !s.IsWorkerKey(workerKey(1)) || !s.IsWorkerKey(workerKey(2)) {
		t.Error("a key that the worker still has in another domain is forgotten")
	}
	s.SetData("gw1", "b", data(2))
	if s.IsWorkerKey(workerKey(1)) {
		t.Error("a key that no worker has any more is remembered")
	}
}

// What the table says must not depend on the order in which reports of different
// workers came in.
func TestTheOrderOfReportsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var reports []func(*site)
		for n := range rapid.IntRange(1, 5).Draw(t, "workers") {
			name, count := fmt.Sprintf("gw%d", n), rapid.IntRange(-1, 5).Draw(t, "peers")
			reports = append(reports,
				func(t *site) { t.SetStatus(name, true, t.now) },
				func(t *site) { t.SetData(name, "a", data(n)) },
				func(t *site) { t.report(name, "a", count) })
		}
		one, other := newSite(t, nil), newSite(t, nil)
		for _, report := range reports {
			report(one)
		}
		for _, report := range rapid.Permutation(reports).Draw(t, "order") {
			report(other)
		}
		for node := range 6 {
			a, okA := one.Assign(steering.Ask{Domain: "a", Key: nodeKey(node)}, one.now)
			b, okB := other.Assign(steering.Ask{Domain: "a", Key: nodeKey(node)}, other.now)
			if a != b || okA != okB {
				t.Fatalf("node %d: sent to %+v, in the other order to %+v", node, a, b)
			}
		}
	})
}

func TestConcurrentUse(t *testing.T) {
	s := newSite(t, nil)
	s.bring("gw1", 1, map[string]int{"a": 0})
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			name := fmt.Sprintf("gw%d", n)
			for i := range 200 {
				s.bring(name, n, map[string]int{"a": i, "b": i})
				s.Assign(steering.Ask{Domain: "a", Key: nodeKey(n*1000 + i)}, s.now)
				s.IsWorkerKey(workerKey(n))
				s.Unserved()
				s.SetStatus(name, i%2 == 0 || n == 1, s.now)
			}
		})
	}
	all.Wait()
	s.bring("gw1", 1, map[string]int{"a": 0})
	if _, ok := s.Assign(steering.Ask{Domain: "a", Key: nodeKey(0)}, s.now); !ok {
		t.Error("no worker is left")
	}
}
