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
	"wgsteer/server/internal/steering"
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

// table returns a table of two domains whose workers have the given weights: 1 if none.
func table(weights map[string]uint32) *steering.Table {
	return steering.NewTable([]string{"a", "b"}, func(worker string) uint32 {
		if weight, named := weights[worker]; named {
			return weight
		}
		return 1
	}, 3*time.Minute)
}

// now is when the reports of these tests come in, unless they say otherwise.
var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// bring makes a worker offer domains with the given counts of peers.
func bring(t *steering.Table, worker string, n int, peers map[string]int) {
	t.SetStatus(worker, true)
	for domain, count := range peers {
		t.SetData(worker, domain, data(n))
		t.SetPeers(worker, domain, count, now)
	}
}

// send sends the node to a worker of the domain and returns the worker's name.
func send(t *testing.T, table *steering.Table, domain string, node int) string {
	t.Helper()
	a, ok := table.Assign(domain, nodeKey(node))
	if !ok {
		t.Fatalf("no worker for domain %s", domain)
	}
	return a.Worker
}

func TestAWorkerOffersADomainWhenItIsOnlineAndSentDataAndPeers(t *testing.T) {
	all := map[string]func(*steering.Table){
		"status": func(t *steering.Table) { t.SetStatus("gw1", true) },
		"data":   func(t *steering.Table) { t.SetData("gw1", "a", data(1)) },
		"peers":  func(t *steering.Table) { t.SetPeers("gw1", "a", 0, now) },
	}
	for missing := range all {
		table := table(nil)
		for name, report := range all {
			if name != missing {
				report(table)
			}
		}
		if a, ok := table.Assign("a", nodeKey(1)); ok {
			t.Errorf("without %s: sent to %+v, want nowhere", missing, a)
		}
		all[missing](table)
		a, ok := table.Assign("a", nodeKey(1))
		if want := (steering.Assignment{Worker: "gw1", Data: data(1)}); !ok || a != want {
			t.Errorf("with %s at last: sent to %+v, %v, want %+v", missing, a, ok, want)
		}
		if a, ok := table.Assign("b", nodeKey(1)); ok {
			t.Errorf("domain b, which nobody offers: sent to %+v", a)
		}
	}
}

func TestLeavingADomainLeavesTheOthers(t *testing.T) {
	table := table(nil)
	bring(table, "gw1", 1, map[string]int{"a": 3, "b": 4})
	table.SetPeers("gw1", "a", report.Leaving, now)
	if diff := cmp.Diff([]string{"a"}, table.Unserved()); diff != "" {
		t.Errorf("unserved (-want +got):\n%s", diff)
	}
	table.SetPeers("gw1", "a", 0, now)
	if diff := cmp.Diff([]string{}, table.Unserved()); diff != "" {
		t.Errorf("unserved after it came back (-want +got):\n%s", diff)
	}
}

func TestAnOfflineWorkerIsNotChosenAndComesBackWithItsReports(t *testing.T) {
	table := table(nil)
	bring(table, "gw1", 1, map[string]int{"a": 0})
	bring(table, "gw2", 2, map[string]int{"a": 100})
	if !table.SetStatus("gw1", false) || table.SetStatus("gw1", false) {
		t.Error("SetStatus does not tell news from repetition")
	}
	if got := send(t, table, "a", 1); got != "gw2" {
		t.Errorf("sent to %s, want gw2", got)
	}
	table.SetStatus("gw1", true)
	if got := send(t, table, "a", 1); got != "gw1" {
		t.Errorf("sent to %s, want gw1", got)
	}
}

func TestPeersAreSummedOverAllDomainsOfTheWorker(t *testing.T) {
	table := table(nil)
	bring(table, "gw1", 1, map[string]int{"a": 10, "b": 50})
	bring(table, "gw2", 2, map[string]int{"a": 40, "b": report.Leaving})
	if got := send(t, table, "a", 1); got != "gw2" {
		t.Errorf("sent to %s, want gw2: it has 40 peers, gw1 60", got)
	}
}

func TestThoseWhoDoNotServeTheDomainDoNotCount(t *testing.T) {
	// With gw3's weight in the sum, gw1 and gw2 would both be far above their targets,
	// and gw2, the smaller one, would win.
	table := table(map[string]uint32{"gw1": 20, "gw2": 10, "gw3": 1000})
	bring(table, "gw1", 1, map[string]int{"a": 20})
	bring(table, "gw2", 2, map[string]int{"a": 12})
	bring(table, "gw3", 3, map[string]int{"b": 0})
	table.SetData("gw4", "a", data(4)) // and one that was never online
	table.SetPeers("gw4", "a", 500, now)
	if got := send(t, table, "a", 1); got != "gw1" {
		t.Errorf("sent to %s, want gw1", got)
	}
}

func TestTheNextExchangeSeesThePeerThatTheLastOneAdded(t *testing.T) {
	table := table(map[string]uint32{"gw1": 3, "gw2": 1})
	bring(table, "gw1", 1, map[string]int{"a": 0})
	bring(table, "gw2", 2, map[string]int{"a": 0})
	sent := map[string]int{}
	for node := range 40 {
		sent[send(t, table, "a", node)]++
	}
	if diff := cmp.Diff(map[string]int{"gw1": 30, "gw2": 10}, sent); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

func TestAReportReplacesTheCount(t *testing.T) {
	table := table(nil)
	bring(table, "gw1", 1, map[string]int{"a": 0})
	bring(table, "gw2", 2, map[string]int{"a": 3})
	for node := range 3 {
		send(t, table, "a", node) // all to gw1
	}
	table.SetPeers("gw1", "a", 3, now) // they are there: 3, not 6
	table.SetPeers("gw2", "a", 4, now)
	if got := send(t, table, "a", 9); got != "gw1" {
		t.Errorf("sent to %s, want gw1, which has 3 peers", got)
	}
	table.SetPeers("gw1", "a", 2, now) // one of four left, or never came
	if got := send(t, table, "a", 10); got != "gw1" {
		t.Errorf("sent to %s, want gw1, which has 2 peers", got)
	}
}

func TestAReportForOneDomainKeepsWhatWasAssignedInAnother(t *testing.T) {
	table := table(nil)
	bring(table, "gw1", 1, map[string]int{"a": 0, "b": 0})
	send(t, table, "a", 1)
	send(t, table, "a", 2)
	table.SetPeers("gw1", "b", 0, now)
	bring(table, "gw2", 2, map[string]int{"b": 1})
	if got := send(t, table, "b", 3); got != "gw2" {
		t.Errorf("sent to %s, want gw2: gw1 was sent two nodes", got)
	}
}

func TestAKeyCountsOnceHoweverOftenItAsks(t *testing.T) {
	table := table(nil)
	bring(table, "gw1", 1, map[string]int{"a": 0})
	bring(table, "gw2", 2, map[string]int{"a": 5})
	for range 20 {
		if got := send(t, table, "a", 1); got != "gw1" {
			t.Fatalf("the same node, alone, is sent to %s after gw1", got)
		}
	}
}

func TestAKeyThatMovesLeavesNothingBehind(t *testing.T) {
	table := table(nil)
	bring(table, "gw1", 1, map[string]int{"a": 0, "b": 0})
	bring(table, "gw0", 2, map[string]int{"a": 1})
	if got := send(t, table, "a", 1); got != "gw1" {
		t.Fatalf("sent to %s, want gw1", got)
	}
	table.SetPeers("gw1", "b", 50, now)
	if got := send(t, table, "a", 1); got != "gw0" {
		t.Fatalf("sent to %s, want gw0", got)
	}
	table.SetPeers("gw1", "b", 1, now)
	if got := send(t, table, "a", 2); got != "gw1" {
		t.Errorf("sent to %s, want gw1: it has one peer, gw0 two", got)
	}
}

func TestAssignmentsOfAWorkerThatWentOfflineAreDropped(t *testing.T) {
	table := table(nil)
	bring(table, "gw1", 1, map[string]int{"a": 0})
	for node := range 5 {
		send(t, table, "a", node)
	}
	table.SetStatus("gw1", false)
	table.SetStatus("gw1", true)
	bring(table, "gw2", 2, map[string]int{"a": 1})
	if got := send(t, table, "a", 9); got != "gw1" {
		t.Errorf("sent to %s, want gw1, which has no peer", got)
	}
}

func TestAWorkerThatDoesNotReportIsNotChosenUntilItDoes(t *testing.T) {
	table := table(nil)
	bring(table, "gw1", 1, map[string]int{"a": 0})
	bring(table, "gw2", 2, map[string]int{"a": 100})
	later := now.Add(3 * time.Minute)
	table.SetPeers("gw2", "a", 100, later)
	if diff := cmp.Diff([]steering.Hearing(nil), table.Listen(later.Add(-time.Second))); diff != "" {
		t.Errorf("a second too early (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]steering.Hearing{{Worker: "gw1", Silent: true, Heard: now}}, table.Listen(later)); diff != "" {
		t.Errorf("after three minutes (-want +got):\n%s", diff)
	}
	if got := send(t, table, "a", 1); got != "gw2" {
		t.Errorf("sent to %s, want gw2", got)
	}
	if diff := cmp.Diff([]steering.Hearing(nil), table.Listen(later)); diff != "" {
		t.Errorf("said twice (-want +got):\n%s", diff)
	}
	table.SetPeers("gw1", "a", 0, later)
	if got := send(t, table, "a", 1); got != "gw1" {
		t.Errorf("with its next report: sent to %s, want gw1", got)
	}
	if diff := cmp.Diff([]steering.Hearing{{Worker: "gw1", Heard: later}}, table.Listen(later)); diff != "" {
		t.Errorf("heard again (-want +got):\n%s", diff)
	}
}

func TestAWorkerThatIsOfflineIsNotSilent(t *testing.T) {
	table := table(nil)
	bring(table, "gw1", 1, map[string]int{"a": 0})
	table.SetStatus("gw1", false)
	if got := table.Listen(now.Add(time.Hour)); len(got) != 0 {
		t.Errorf("%v, want nothing", got)
	}
}

func TestUnservedListsConfiguredDomains(t *testing.T) {
	table := table(nil)
	if diff := cmp.Diff([]string{"a", "b"}, table.Unserved()); diff != "" {
		t.Errorf("without workers (-want +got):\n%s", diff)
	}
	bring(table, "gw1", 1, map[string]int{"b": 0, "no such domain": 0})
	if diff := cmp.Diff([]string{"a"}, table.Unserved()); diff != "" {
		t.Errorf("with one (-want +got):\n%s", diff)
	}
}

func TestIsWorkerKey(t *testing.T) {
	table := table(nil)
	bring(table, "gw1", 1, map[string]int{"a": 0, "b": 0})
	if !table.IsWorkerKey(workerKey(1)) || table.IsWorkerKey(nodeKey(1)) {
		t.Error("a worker's key is not told from a node's")
	}
	table.SetData("gw1", "a", data(2))
	if !table.IsWorkerKey(workerKey(1)) || !table.IsWorkerKey(workerKey(2)) {
		t.Error("a key that the worker still has in another domain is forgotten")
	}
	table.SetData("gw1", "b", data(2))
	if table.IsWorkerKey(workerKey(1)) {
		t.Error("a key that no worker has any more is remembered")
	}
}

// What the table says must not depend on the order in which reports of different
// workers came in.
func TestTheOrderOfReportsDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var reports []func(*steering.Table)
		for n := range rapid.IntRange(1, 5).Draw(t, "workers") {
			name, count := fmt.Sprintf("gw%d", n), rapid.IntRange(-1, 5).Draw(t, "peers")
			reports = append(reports,
				func(t *steering.Table) { t.SetStatus(name, true) },
				func(t *steering.Table) { t.SetData(name, "a", data(n)) },
				func(t *steering.Table) { t.SetPeers(name, "a", count, now) })
		}
		one, other := table(nil), table(nil)
		for _, report := range reports {
			report(one)
		}
		for _, report := range rapid.Permutation(reports).Draw(t, "order") {
			report(other)
		}
		for node := range 6 {
			a, okA := one.Assign("a", nodeKey(node))
			b, okB := other.Assign("a", nodeKey(node))
			if a != b || okA != okB {
				t.Fatalf("node %d: sent to %+v, in the other order to %+v", node, a, b)
			}
		}
	})
}

func TestConcurrentUse(t *testing.T) {
	table := table(nil)
	bring(table, "gw1", 1, map[string]int{"a": 0})
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			name := fmt.Sprintf("gw%d", n)
			for i := range 200 {
				bring(table, name, n, map[string]int{"a": i, "b": i})
				table.Assign("a", nodeKey(n*1000+i))
				table.IsWorkerKey(workerKey(n))
				table.Unserved()
				table.SetStatus(name, i%2 == 0 || n == 1)
			}
		})
	}
	all.Wait()
	bring(table, "gw1", 1, map[string]int{"a": 0})
	if _, ok := table.Assign("a", nodeKey(0)); !ok {
		t.Error("no worker is left")
	}
}
