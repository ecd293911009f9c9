package main

import (
	"math"
	"time"
)

const (
	// sampleInterval is the time between two looks at where the nodes really are.
	sampleInterval = 10 * time.Second
	// settledFor is the end of a scenario, by when everything should have settled.
	settledFor = 10 * time.Minute
	// near is how close a gateway is meant to be soon to what is due, as a part of that, and
	// allowed how far above its target it may be in the end. It may be one peer in any case.
	near, allowed = 0.05, 0.02
)

// sample is where the nodes really are at a time.
type sample struct {
	at time.Duration
	// gateways are in the order of their names; those that come later are missing before.
	gateways []load
	// without is how many nodes want a tunnel and have none.
	without int
}

// load is what a gateway carries.
type load struct {
	// works tells whether nodes can use it.
	works   bool
	tunnels int
	// target is its share, by weight, of the tunnels of all gateways that work, and due that
	// of all nodes that want a tunnel.
	target, due float64
}

// above is how far it is above its target, in peers.
func (l load) above() float64 { return float64(l.tunnels) - l.target }

// beyond tells whether it is further above its target than a part of it, and one peer.
func (l load) beyond(part float64) bool { return l.above() > max(1, part*l.target) }

// near tells whether it has about as many tunnels as are due.
func (l load) near() bool { return math.Abs(float64(l.tunnels)-l.due) <= max(1, near*l.due) }

// meter takes samples.
type meter struct{ samples []sample }

func (m *meter) sample(w *world) {
	s := sample{at: w.now}
	var weights uint32
	tunnels := 0
	for _, g := range w.gateways {
		s.gateways = append(s.gateways, load{works: g.works(), tunnels: g.tunnels})
		if g.works() {
			weights += w.weights[g.name]
			tunnels += g.tunnels
		}
	}
	wanted := 0
	for _, n := range w.nodes {
		if n.up {
			wanted++
		}
		if n.dead() {
			s.without++
		}
	}
	for i, g := range w.gateways {
		if l := &s.gateways[i]; l.works {
			share := float64(w.weights[g.name]) / float64(weights)
			l.target, l.due = share*float64(tunnels), share*float64(wanted)
		}
	}
	m.samples = append(m.samples, s)
}

// result is how a scenario went.
type result struct {
	scenario scenario
	samples  []sample
	nodes    int
	// moves are those that nodes made although their gateway worked for them, forcedMoves
	// the others. mostMoves and mostForced are the most that one node made.
	moves, forcedMoves    int
	mostMoves, mostForced int
	// mostTogether is the most of both that one node made.
	mostTogether int
}

func (w *world) result() result {
	r := result{scenario: w.scenario, samples: w.meter.samples, nodes: len(w.nodes)}
	for _, n := range w.nodes {
		r.moves += n.moves
		r.forcedMoves += n.forcedMoves
		r.mostMoves = max(r.mostMoves, n.moves)
		r.mostForced = max(r.mostForced, n.forcedMoves)
		r.mostTogether = max(r.mostTogether, n.moves+n.forcedMoves)
	}
	return r
}

// since are the samples from a time on.
func (r result) since(from time.Duration) []sample {
	return r.samples[min(int((from+sampleInterval-1)/sampleInterval), len(r.samples)):]
}

// worst is the load of the gateway that was furthest above its target, from a time on.
func (r result) worst(from time.Duration) load {
	var worst load
	for _, s := range r.since(from) {
		for _, l := range s.gateways {
			if l.works && l.above() > worst.above() {
				worst = l
			}
		}
	}
	return worst
}

// settledFrom is from when on everything should have settled.
func (r result) settledFrom() time.Duration { return r.scenario.length - settledFor }

// overloaded tells whether a gateway was further above its target than allowed when
// everything should have settled.
func (r result) overloaded() bool {
	for _, s := range r.since(r.settledFrom()) {
		for _, l := range s.gateways {
			if l.works && l.beyond(allowed) {
				return true
			}
		}
	}
	return false
}

// nearAfter is how long after the event all gateways that work were near what is due, and
// stayed so. ok is false when they were not at the end.
func (r result) nearAfter() (d time.Duration, ok bool) {
	ok = true
	for _, s := range r.since(r.scenario.event) {
		ok = true
		for _, l := range s.gateways {
			if l.works && !l.near() {
				d, ok = s.at-r.scenario.event+sampleInterval, false
			}
		}
	}
	return d, ok
}

// without is how many nodes had no tunnel so long after the event, and mostWithout the
// most from then on.
func (r result) without(after time.Duration) int {
	return r.since(r.scenario.event + after)[0].without
}

func (r result) mostWithout(after time.Duration) int {
	most := 0
	for _, s := range r.since(r.scenario.event + after) {
		most = max(most, s.without)
	}
	return most
}
