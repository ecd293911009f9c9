package main

import (
	"time"

	"wgsteer/internal/peer"
)

const (
	// checkInterval is the time between two looks of a node at its tunnel.
	checkInterval = time.Minute
	// deadAfter is how long a tunnel must have been dead for a node to notice: WireGuard
	// waits that long for an answer.
	deadAfter = 15 * time.Second
	// A request or an answer is on its way for between minHop and maxHop.
	minHop, maxHop = 20 * time.Millisecond, 500 * time.Millisecond
	// lostAnswers is the share of answers that get lost; the node then asks again within
	// retryWithin.
	lostAnswers = 0.02
	retryWithin = 4 * time.Second
	// A handshake takes between minShake and maxShake.
	minShake, maxShake = 100 * time.Millisecond, time.Second
)

// node is a router that wants a tunnel.
type node struct {
	world *world
	id    int
	key   peer.Key
	// phase is when in a minute it looks at its tunnel.
	phase time.Duration
	// up tells whether it has power.
	up bool
	// gateway is what it was last told to use, tunnel whether that works.
	gateway *gateway
	tunnel  bool
	// plan changes when it watches its tunnel anew, which ends what it had planned before.
	plan int
	// barred is the gateway that it cannot use, if any.
	barred *gateway

	// home is where it last had a tunnel, forced whether that gateway did not work for it
	// since: when it lost the tunnel, or when it asked.
	home   *gateway
	forced bool
	// moves are the times that it came to another gateway although its own worked for it,
	// forcedMoves those when that did not.
	moves, forcedMoves int
}

// dead tells whether it wants a tunnel and has none.
func (n *node) dead() bool { return n.up && !n.tunnel }

// powerUp starts the node, which knows of no gateway.
func (n *node) powerUp() {
	n.up, n.gateway = true, nil
	n.watch(n.world.now)
}

// powerCut takes the node away for a while. It begins anew then: wherever it goes is no
// move. It looks at its tunnel at another second.
func (n *node) powerCut(length time.Duration) {
	w := n.world
	if !n.up {
		return
	}
	n.lose(false)
	n.up, n.home = false, nil
	n.plan++
	w.after(length, func() {
		n.phase = w.between(0, checkInterval)
		n.powerUp()
	})
}

// lose ends its tunnel, if it has one.
func (n *node) lose(forced bool) {
	if !n.tunnel {
		return
	}
	n.hangUp()
	n.forced = forced
	n.watch(n.world.now + deadAfter)
}

// hangUp ends its tunnel.
func (n *node) hangUp() {
	t := &n.gateway.peers[n.id]
	t.alive, t.end = false, n.world.now
	n.gateway.tunnels--
	n.tunnel = false
}

// watch has the node notice that it has no tunnel, at its first check from a time on, and
// at all that follow.
func (n *node) watch(from time.Duration) {
	n.plan++
	plan := n.plan
	n.world.at(n.nextCheck(from), func() {
		if n.plan == plan && n.dead() {
			n.ask(true)
			n.watch(n.world.now + checkInterval)
		}
	})
}

// nextCheck is when it next looks at its tunnel, from a time on.
func (n *node) nextCheck(from time.Duration) time.Duration {
	check := from - from%checkInterval + n.phase
	for check < from {
		check += checkInterval
	}
	return check
}

// ask has the node ask the server which gateway to use, and use it.
func (n *node) ask(canFail bool) {
	w := n.world
	w.after(w.between(minHop, maxHop), func() {
		name, ok := w.server.ask(n.key, w.time())
		if !ok {
			return // it is told to ask again later
		}
		n.forced = n.forced || n.home != nil && !n.home.worksFor(n)
		for _, g := range w.gateways {
			g.hear(n)
		}
		if canFail && w.rand.Float64() < lostAnswers {
			w.after(w.between(time.Second, retryWithin), func() { n.ask(false) })
			return
		}
		w.after(w.between(minHop, maxHop), func() { n.use(w.gateway(name)) })
	})
}

// use points the node to a gateway.
func (n *node) use(g *gateway) {
	if !n.up {
		return
	}
	if n.tunnel { // which came back by itself meanwhile
		n.hangUp()
	}
	n.gateway = g
	n.world.after(n.world.between(minShake, maxShake), func() { n.handshake(g) })
}

// handshake brings its tunnel up, if the gateway is the one to use and can be reached.
func (n *node) handshake(g *gateway) {
	if n.gateway != g || !n.dead() || !g.answers(n) {
		return
	}
	t := &g.peers[n.id]
	t.used, t.alive, t.start = true, true, n.world.now
	g.tunnels++
	n.tunnel = true
	if n.home != nil && n.home != g {
		if n.forced {
			n.forcedMoves++
		} else {
			n.moves++
		}
	}
	n.home, n.forced = g, false
}
