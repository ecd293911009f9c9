package main

import "time"

// scenario is what happens to a mesh.
type scenario struct {
	name, title string
	// about says what happens, for the page.
	about string
	// event is when it begins to happen, and length when the simulation ends.
	event, length time.Duration
	// weights are those of the gateways that are there from the start.
	weights map[string]uint32
	// settled tells whether all nodes have a tunnel at the start, every gateway being at
	// its target.
	settled bool
	// auto tells whether wgsteer has auto_rebalance on.
	auto bool
	// lostCounts is the share of reported counts that get lost. Messages about handshakes
	// are confirmed (QoS 1), and come late at worst.
	lostCounts float64
	script     func(*world)
}

// weights are those of a mesh of two large and two small gateways.
func weights() map[string]uint32 {
	return map[string]uint32{"gw1": 30, "gw2": 30, "gw3": 20, "gw4": 20}
}

// scenarios are all there are.
func scenarios() []scenario {
	return []scenario{
		coldStart(), rollingReboot(), blackHole(), barredNodes(), flappingNodes(), newGateway(), newWeights(), lostReports(),
	}
}

func coldStart() scenario {
	return scenario{
		name: "cold-start", title: "Cold start",
		about:   "Every node comes up at once, after one minute, and asks within the minute that follows.",
		weights: weights(),
		event:   time.Minute, length: 20 * time.Minute,
		script: func(w *world) {
			w.at(time.Minute, func() {
				for _, n := range w.nodes {
					n.powerUp()
				}
			})
		},
	}
}

func rollingReboot() scenario {
	return scenario{
		name: "rolling-reboot", title: "Rolling reboot of all gateways",
		about:   "From the fifth minute on the gateways reboot, one every twelve minutes, and are away for two minutes each.",
		weights: weights(), settled: true, auto: true,
		event: 5 * time.Minute, length: 90 * time.Minute,
		script: func(w *world) {
			for i, g := range w.gateways {
				begin := 5*time.Minute + time.Duration(i)*12*time.Minute
				w.at(begin, g.halt)
				w.at(begin+2*time.Minute, g.boot)
			}
		},
	}
}

func blackHole() scenario {
	return scenario{
		name: "black-hole", title: "A black-hole gateway",
		about:   "From the fifth minute on nothing comes through to the tunnel port of gw1, which goes on reporting that it is well.",
		weights: weights(), settled: true,
		event: 5 * time.Minute, length: 40 * time.Minute,
		script: func(w *world) { w.at(5*time.Minute, w.gateways[0].block) },
	}
}

func barredNodes() scenario {
	return scenario{
		name: "barred-nodes", title: "1 % of the nodes cannot use one gateway",
		about:   "From the fifth minute on one node in a hundred cannot reach gw1: something on its way there drops its packets.",
		weights: weights(), settled: true,
		event: 5 * time.Minute, length: 40 * time.Minute,
		script: func(w *world) {
			w.at(5*time.Minute, func() {
				g := w.gateways[0]
				for _, n := range w.share(0.01) {
					n.barred = g
					if n.gateway == g {
						n.lose(true)
					}
				}
			})
		},
	}
}

func flappingNodes() scenario {
	return scenario{
		name: "flapping-nodes", title: "Flapping nodes",
		about:   "From the fifth minute on one node in ten has a bad line: every two to six minutes its tunnel dies, and it asks again.",
		weights: weights(), settled: true,
		event: 5 * time.Minute, length: 60 * time.Minute,
		script: func(w *world) {
			w.at(5*time.Minute, func() {
				for _, n := range w.share(0.1) {
					n.flap()
				}
			})
		},
	}
}

func newGateway() scenario {
	return scenario{
		name: "new-gateway", title: "A gateway of half the weight is added",
		about:   "After five minutes gw5 comes up for the first time. Its weight is 15, half of that of gw1 and gw2.",
		weights: weights(), settled: true, auto: true,
		event: 5 * time.Minute, length: 60 * time.Minute,
		script: func(w *world) {
			w.at(5*time.Minute, func() {
				more := weights()
				more["gw5"] = 15
				w.weigh(more)
				w.addGateway("gw5").boot()
			})
		},
	}
}

func newWeights() scenario {
	return scenario{
		name: "new-weights", title: "Weights are changed",
		about:   "After five minutes the operator gives gw1 a weight of 15 in place of 30, and gw4 one of 35 in place of 20.",
		weights: weights(), settled: true, auto: true,
		event: 5 * time.Minute, length: 60 * time.Minute,
		script: func(w *world) {
			w.at(5*time.Minute, func() {
				w.weigh(map[string]uint32{"gw1": 15, "gw2": 30, "gw3": 20, "gw4": 35})
			})
		},
	}
}

func lostReports() scenario {
	return scenario{
		name: "lost-reports", title: "Lost reports",
		about: "The nodes come up one after the other, over half an hour, and a fifth of all counts gets lost. The agent of " +
			"gw1 hangs for 105 seconds from minute 4 on, which alone is too short to be called silent, that of gw3 for " +
			"six minutes from minute 10 on.",
		weights: weights(), lostCounts: 0.2,
		event: time.Minute, length: 50 * time.Minute,
		script: func(w *world) {
			for _, n := range w.nodes {
				w.at(time.Minute+w.between(0, 30*time.Minute), n.powerUp)
			}
			w.gateways[0].hang(4*time.Minute, 105*time.Second)
			w.gateways[2].hang(10*time.Minute, 6*time.Minute)
		},
	}
}

// hang has the agent say nothing for a while. What it missed it says after.
func (g *gateway) hang(from, length time.Duration) {
	g.hangs, g.hung = from, from+length
	g.world.at(g.hung, func() { g.look(true) })
}

// flap has the node's tunnel die every two to six minutes, just before it looks at it.
func (n *node) flap() {
	w := n.world
	minutes := 2 + time.Duration(w.rand.IntN(5))
	w.at(n.nextCheck(w.now+minutes*checkInterval)-deadAfter, func() {
		n.lose(false)
		n.flap()
	})
}
