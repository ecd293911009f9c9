package main

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gonum.org/v1/plot/plotter"
	"pgregory.net/rapid"
)

const (
	page  = "../../docs/steering.md"
	plots = "../../docs/steering"
)

// mesh is what a run is drawn from.
type mesh struct {
	seed  uint64
	nodes int
}

// The page has the first of the meshes. What is promised must not hang on one seed, nor on
// one size.
var meshes = []mesh{{1, 5000}, {2, 2000}, {3, 2000}, {4, 2000}}

var (
	ran   = make(map[string]func() pair)
	ranMu sync.Mutex
)

// simulated returns how a scenario goes. It runs once for all tests.
func simulated(sc scenario, m mesh) pair {
	ranMu.Lock()
	id := fmt.Sprint(sc.name, m)
	if ran[id] == nil {
		ran[id] = sync.OnceValue(func() pair { return both(sc, m.seed, m.nodes, slog.New(slog.DiscardHandler)) })
	}
	run := ran[id]
	ranMu.Unlock()
	return run()
}

// forAll checks every scenario with every seed.
func forAll(t *testing.T, check func(*testing.T, pair)) {
	for _, sc := range scenarios() {
		t.Run(sc.name, func(t *testing.T) {
			for _, m := range meshes {
				check(t, simulated(sc, m))
			}
		})
	}
}

func TestNoGatewayIsOverloadedOnceThingsHaveSettled(t *testing.T) {
	forAll(t, func(t *testing.T, p pair) {
		if p.ours.overloaded() {
			t.Errorf("one is %s above its target", p.ours.worst(p.ours.settledFrom()).overload())
		}
	})
}

func TestAHealthyNodeMovesOnceAtMost(t *testing.T) {
	forAll(t, func(t *testing.T, p pair) {
		if p.ours.mostMoves > 1 {
			t.Errorf("one moved %d times although its gateway worked", p.ours.mostMoves)
		}
		// Where gateways fail one after the other, a node can be on each of them.
		most := 1
		if p.scenario.name == "rolling-reboot" {
			most = 1 + len(p.scenario.weights)
		}
		if p.ours.mostTogether > most {
			t.Errorf("one moved %d times in all, want %d at most", p.ours.mostTogether, most)
		}
	})
}

func TestABlackHoleKeepsFewNodes(t *testing.T) {
	for _, m := range meshes {
		p := simulated(blackHole(), m)
		if stuck := p.ours.mostWithout(3 * time.Minute); stuck >= m.nodes/100 {
			t.Errorf("%v: %d nodes have no tunnel after three minutes or later", m, stuck)
		}
	}
}

// But for those that lost theirs a moment ago, which flapping nodes do all the time.
func TestEveryNodeHasATunnelOnceThingsHaveSettled(t *testing.T) {
	forAll(t, func(t *testing.T, p pair) {
		n := p.ours.mostWithout(p.ours.settledFrom() - p.scenario.event)
		if n >= p.ours.nodes/100 && p.scenario.name != "flapping-nodes" {
			t.Errorf("%d have none", n)
		}
		if _, ok := p.ours.nearAfter(); !ok {
			t.Error("some gateway does not get near its share")
		}
	})
}

// If the simulation could not tell a bad algorithm from a good one, it would prove nothing.
func TestThePlainAlgorithmFailsWhereItMust(t *testing.T) {
	for _, m := range meshes {
		if p := simulated(blackHole(), m); p.plain.mostWithout(30*time.Minute) < m.nodes/20 {
			t.Errorf("%v: a black hole holds only %d nodes", m, p.plain.mostWithout(30*time.Minute))
		}
		if p := simulated(flappingNodes(), m); p.plain.mostMoves < 5 {
			t.Errorf("%v: flapping nodes move only %d times", m, p.plain.mostMoves)
		}
		for _, sc := range []scenario{rollingReboot(), newGateway(), newWeights()} {
			if p := simulated(sc, m); !p.plain.overloaded() {
				t.Errorf("%v: %s leaves no overload", m, sc.name)
			}
		}
		if p := simulated(coldStart(), m); p.plain.worst(time.Minute).above() <= p.ours.worst(time.Minute).above() {
			t.Errorf("%v: a cold start overloads no gateway more than with wgsteer", m)
		}
	}
}

// `make simulate` writes them.
func TestThePageAndThePlotsAreFresh(t *testing.T) {
	var pairs []pair
	want := make(map[string]bool)
	for _, sc := range scenarios() {
		p := simulated(sc, meshes[0])
		pairs = append(pairs, p)
		svg, err := p.svg()
		if err != nil {
			t.Fatal(err)
		}
		if len(svg) > 100_000 {
			t.Errorf("the plot of %s has %d bytes", sc.name, len(svg))
		}
		name := sc.name + ".svg"
		want[name] = true
		if there, err := os.ReadFile(filepath.Join(plots, name)); err != nil || string(there) != string(svg) {
			t.Errorf("%s is not what `make simulate` makes (%v)", name, err)
		}
	}
	there, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	fresh, err := splice(there, section(pairs))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(fresh), "\n"), strings.Split(string(there), "\n")); diff != "" {
		t.Errorf("%s is not what `make simulate` makes (-want +got):\n%s", page, diff)
	}
	files, err := os.ReadDir(plots)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if !want[file.Name()] {
			t.Errorf("%s is of no scenario", file.Name())
		}
	}
}

func TestTheSameSeedGivesTheSameRun(t *testing.T) {
	run := func(seed uint64) []sample {
		return runOurs(lostReports(), seed, 500, slog.New(slog.DiscardHandler)).samples
	}
	opts := cmp.AllowUnexported(sample{}, load{})
	if diff := cmp.Diff(run(7), run(7), opts); diff != "" {
		t.Errorf("two runs differ:\n%s", diff)
	}
	if cmp.Equal(run(7), run(8), opts) {
		t.Error("another seed gives the same run")
	}
}

// quiet is a mesh in which nothing happens but that a node loses its power now and then.
func quiet(length time.Duration) scenario {
	return scenario{name: "quiet", weights: weights(), settled: true, auto: true, length: length, script: func(*world) {}}
}

func TestAQuietMeshStaysAsItIs(t *testing.T) {
	r := runOurs(quiet(3*time.Hour), 1, 1000, slog.New(slog.DiscardHandler))
	if r.moves+r.forcedMoves != 0 {
		t.Errorf("%d moves", r.moves+r.forcedMoves)
	}
}

// smallWorld is a quiet mesh of ten nodes, five of them on gw1, without its power cuts.
func smallWorld() (*world, *gateway) {
	sc := quiet(time.Hour)
	sc.weights = map[string]uint32{"gw1": 1, "gw2": 1}
	w := newWorld(sc, 1, 10, func(weights map[string]uint32) server { return newPlain(weights) })
	return w, w.gateways[0]
}

func TestADepartedNodeIsCountedUntilItsHandshakeIsThreeMinutesOld(t *testing.T) {
	w, g := smallWorld()
	w.run(10 * time.Minute)
	var n *node
	for _, n = range w.nodes {
		if n.gateway == g {
			break
		}
	}
	last := g.peers[n.id].lastHandshake(w.now)
	n.powerCut(time.Hour)
	if age := w.now - last; age < 0 || age >= rekeyAfter {
		t.Fatalf("the last handshake was %v ago", age)
	}
	w.run(last + 3*time.Minute - time.Second)
	if g.count() != 5 || g.tunnels != 4 {
		t.Errorf("%d counted and %d there, want 5 and 4", g.count(), g.tunnels)
	}
	w.run(last + 3*time.Minute)
	if g.count() != 4 {
		t.Errorf("%d counted after three minutes, want 4", g.count())
	}
}

func TestWhoIsEvictedAsksWithin80Seconds(t *testing.T) {
	w, g := smallWorld()
	w.run(10 * time.Minute)
	var evicted []*node
	for _, n := range w.nodes {
		if n.gateway == g {
			g.evict(n)
			evicted = append(evicted, n)
		}
	}
	if g.count() != 0 {
		t.Errorf("%d are still counted", g.count())
	}
	w.run(w.now + deadAfter - time.Second)
	for _, n := range evicted {
		if n.tunnel {
			t.Error("one has a tunnel already")
		}
	}
	w.run(w.now + 66*time.Second)
	for _, n := range evicted {
		if !n.tunnel {
			t.Error("one has no tunnel yet")
		}
	}
}

func TestWhoWaitsForAGatewayThatRebootsComesBackByItself(t *testing.T) {
	w, g := smallWorld()
	w.run(10 * time.Minute)
	g.halt()
	g.boot() // within no time: nobody has asked elsewhere
	w.run(w.now + replayTime + 6*time.Second)
	if g.tunnels != 5 {
		t.Errorf("%d tunnels, want 5", g.tunnels)
	}
}

func TestThinLinesAreCloseToTheWholeOnes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var points plotter.XYs
		for x, y := range rapid.SliceOfN(rapid.IntRange(0, 20), 1, 60).Draw(t, "values") {
			points = append(points, plotter.XY{X: float64(x), Y: float64(y)})
		}
		const off = 3
		kept := thin(points, off)
		for _, p := range points {
			i := 1
			for i < len(kept)-1 && kept[i].X < p.X {
				i++
			}
			if len(kept) == 1 {
				return
			}
			a, b := kept[i-1], kept[i]
			if y := a.Y + (b.Y-a.Y)*(p.X-a.X)/(b.X-a.X); max(y-p.Y, p.Y-y) > off+1e-9 {
				t.Fatalf("at %v the line is at %v: %v", p, y, kept)
			}
		}
	})
}

func TestAPageWithoutMarksIsRefused(t *testing.T) {
	for _, page := range []string{"", "# Page\n", sectionBegin, sectionEnd + sectionBegin} {
		if _, err := splice([]byte(page), "table"); err == nil {
			t.Errorf("%q is taken", page)
		}
	}
}
