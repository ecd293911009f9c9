package main

import (
	"time"

	"wgsteer/internal/report"
	"wgsteer/internal/steering"
)

const (
	// rekeyAfter is the time between two handshakes of a tunnel in use.
	rekeyAfter = 2 * time.Minute
	// connectedWithin is the age of the last handshake below which an agent counts a peer.
	connectedWithin = 3 * time.Minute
	// lookInterval is the time between two looks of an agent at its peers' handshakes,
	// countInterval that between two counts that it reports.
	lookInterval  = 5 * time.Second
	countInterval = time.Minute
	// tellAgain is the time after which an agent says again that a peer is connected.
	tellAgain = time.Hour
	// A report is on its way for between minDelay and maxDelay. None overtakes another.
	minDelay, maxDelay = 50 * time.Millisecond, 2 * time.Second
	// replayTime is how long a gateway that has booted takes to get all keys.
	replayTime = 3 * time.Second
	// willWithin is within what time the server notices that a gateway is away.
	willWithin = 7500 * time.Millisecond
)

// gateway is a worker as it really is.
type gateway struct {
	world *world
	name  string
	// up tells whether it runs, open whether nodes can reach its tunnel port and it has
	// their keys.
	up, open bool
	// blocked tells whether its tunnel port is, which nobody notices on its side.
	blocked bool
	// peers has an entry for every node.
	peers []tunnel
	// tunnels is how many nodes really have theirs here.
	tunnels int
	// phase is when in a minute it counts, boots how often it has booted.
	phase time.Duration
	boots int
	// arrival is when the last of its reports arrives.
	arrival time.Duration
	// From hangs to hung its agent says nothing.
	hangs, hung time.Duration
}

// tunnel is what a gateway knows of a node's tunnel.
type tunnel struct {
	// used tells whether there was a handshake. The first was at start, and since then one
	// every rekeyAfter; until end, unless it is alive.
	used, alive bool
	start, end  time.Duration
	// removed tells whether the peer was removed and not come in again, asked when its key
	// last came in.
	removed bool
	asked   time.Duration
	// told is when the server was told that it is connected, if it believes that.
	isTold bool
	told   time.Duration
}

// lastHandshake is that of a tunnel that was used.
func (t *tunnel) lastHandshake(now time.Duration) time.Duration {
	until := now
	if !t.alive {
		until = t.end
	}
	return t.start + (until - t.start).Truncate(rekeyAfter)
}

func (t *tunnel) connected(now time.Duration) bool {
	return t.used && now-t.lastHandshake(now) < connectedWithin
}

// works tells whether nodes can use the gateway, and worksFor whether this one can.
func (g *gateway) works() bool           { return g.open && !g.blocked }
func (g *gateway) worksFor(n *node) bool { return g.works() && n.barred != g }

// answers tells whether the node's handshakes are answered: as a peer, not one that was
// removed.
func (g *gateway) answers(n *node) bool { return g.worksFor(n) && !g.peers[n.id].removed }

// boot starts the gateway, with an agent that introduces itself.
func (g *gateway) boot() {
	w := g.world
	g.up, g.boots = true, g.boots+1
	for i := range g.peers {
		t := &g.peers[i]
		t.removed, t.isTold = false, false
	}
	g.tell(func() {
		w.server.peers(g.name, g.count(), w.time())
		w.server.status(g.name, true, w.time())
	})
	boot := g.boots
	w.after(replayTime, func() {
		if g.boots == boot && g.up {
			g.openUp()
		}
	})
	first := w.now - w.now%countInterval + g.phase
	for looks := 0; looks < int(countInterval/lookInterval); looks++ {
		counts := looks == 0
		w.every(nextAfter(w.now, first+time.Duration(looks)*lookInterval), countInterval, func() {
			if g.boots == boot && g.up {
				g.look(counts)
			}
		})
	}
}

// nextAfter is the first time after now that is whole minutes away from t.
func nextAfter(now, t time.Duration) time.Duration {
	for t-countInterval > now {
		t -= countInterval
	}
	for t <= now {
		t += countInterval
	}
	return t
}

// openUp lets nodes in, of which those that still point here come by themselves:
// WireGuard tries again every five seconds.
func (g *gateway) openUp() {
	g.open = true
	for _, n := range g.world.nodes {
		if n.gateway == g && n.dead() {
			g.world.after(g.world.between(0, 5*time.Second), func() { n.handshake(g) })
		}
	}
}

// halt ends the gateway, as a reboot or a power cut does.
func (g *gateway) halt() {
	w := g.world
	g.up, g.open = false, false
	g.dropTunnels()
	for i := range g.peers {
		g.peers[i] = tunnel{}
	}
	w.after(w.between(0, willWithin), func() { w.server.status(g.name, false, w.time()) })
}

// dropTunnels ends all tunnels by the gateway's fault.
func (g *gateway) dropTunnels() {
	for _, n := range g.world.nodes {
		if n.gateway == g && n.tunnel {
			n.lose(true)
		}
	}
}

// block closes the tunnel port: nothing comes through any more.
func (g *gateway) block() {
	g.blocked = true
	g.dropTunnels()
}

// hear takes a key in that the server publishes.
func (g *gateway) hear(n *node) {
	if g.up {
		t := &g.peers[n.id]
		t.removed, t.asked = false, g.world.now
	}
}

// evict removes the peer that the server wants to leave.
func (g *gateway) evict(n *node) {
	if n.gateway == g && n.tunnel {
		n.lose(false)
	}
	t := &g.peers[n.id]
	t.used, t.removed = false, true
}

// count is what the agent reports as connected.
func (g *gateway) count() int {
	count := 0
	for i := range g.peers {
		if g.peers[i].connected(g.world.now) {
			count++
		}
	}
	return count
}

// look reports what is new, and the count when it is time for it.
func (g *gateway) look(counts bool) {
	w := g.world
	if w.now >= g.hangs && w.now < g.hung {
		return
	}
	if news := g.news(); len(news) > 0 {
		g.tell(func() { w.server.seen(g.name, news, w.time()) })
	}
	if counts && w.rand.Float64() >= w.scenario.lostCounts {
		count := g.count()
		g.tell(func() { w.server.peers(g.name, count, w.time()) })
	}
}

// news are the handshakes of which the server has to hear: the first since its key came
// in, one an hour, and that there are none any more.
func (g *gateway) news() []report.Handshake {
	var news []report.Handshake
	now := g.world.now
	for i := range g.peers {
		t := &g.peers[i]
		connected := t.connected(now)
		switch {
		case !connected && t.isTold:
			t.isTold = false
			news = append(news, report.Handshake{Key: g.world.nodes[i].key, Gone: true})
		case connected && (!t.isTold || now-t.told >= tellAgain || t.told <= t.asked && t.lastHandshake(now) >= t.asked):
			t.isTold, t.told = true, now
			news = append(news, report.Handshake{Key: g.world.nodes[i].key})
		}
	}
	return news
}

// tell sends a report. What a gateway said before it went away is lost with it.
func (g *gateway) tell(arrive func()) {
	w := g.world
	g.arrival = max(g.arrival, w.now+w.between(minDelay, maxDelay))
	boot := g.boots
	w.at(g.arrival, func() {
		if g.boots == boot && g.up {
			arrive()
		}
	})
}

// carry brings moves to the agents of the gateways that they are about.
func (w *world) carry(moves []steering.Move) {
	for _, m := range moves {
		g, n := w.gateway(m.From), w.byKey[m.Key]
		w.after(w.between(minDelay, maxDelay), func() { g.evict(n) })
	}
}
