package steering

import (
	"time"

	"wgsteer/internal/peer"
	"wgsteer/internal/report"
)

// node is what is known of a node: where it was sent, and how that went.
type node struct {
	key peer.Key
	// location is what it last asked for, located whether that is known: it is not before it
	// has asked this table.
	location string
	located  bool

	// at is where it was sent, or was found to be; nil: nowhere yet. sent is when.
	at   *offer
	sent time.Time
	// seen tells whether at's worker reported a handshake since.
	seen bool
	// home is where a handshake of it was last reported and to where it goes back; nil:
	// nowhere.
	home *offer
	// inFlight tells whether it is in at.inFlight.
	inFlight bool
	// expected tells that it was moved, and has not asked yet.
	expected bool
	// waits tells whether the outcome of its assignment is awaited, probe whether that
	// is the probe of a suspect worker. peersThen is what the worker reported before.
	waits, probe bool
	peersThen    int

	// avoids are the workers that it could not use, the oldest first.
	avoids []avoidance

	// claims are what workers say of it, tunnel the one of them that is true; nil: none is.
	claims []*claim
	tunnel *claim
	// left tells that at's worker has said since that it is gone.
	left bool
	// moved is when it was last told to leave, movesTo where it was moved to and was not seen
	// yet; nil: nowhere.
	moved   time.Time
	movesTo *worker
}

// avoidance is that a node does not go to a worker for a while.
type avoidance struct {
	worker *worker
	since  time.Time
}

// repeatWithin is the time within which a node that asks again repeats its question,
// as HTTP clients do, and gets the same answer.
const repeatWithin = 5 * time.Second

// Ask is what a node asks.
type Ask struct {
	Domain string
	Key    peer.Key
	// Location is where it prefers its worker to be. Empty: anywhere.
	Location string
}

// Assignment is where a node was sent.
type Assignment struct {
	Worker string
	// Data is how the node reaches the worker.
	Data report.Data
}

// Assign picks the worker that the node should use, and counts the node as the worker's
// from now on. A node that asks again moves: it counts once. ok is false when no worker
// offers the domain.
func (t *Table) Assign(ask Ask, now time.Time) (a Assignment, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advance(now)
	d := t.domains[ask.Domain]
	if d == nil || len(d.offering) == 0 {
		return Assignment{}, false
	}
	n := d.nodes[ask.Key]
	if n == nil {
		n = &node{key: ask.Key}
		d.nodes[ask.Key] = n
	}
	n.location, n.located = ask.Location, true
	if !n.repeats(d, now) {
		if n.hadNoLuck(d, now, t.settings.RetryWindow) && n.waits {
			t.judge(n, false, now)
		}
		chosen, _ := t.choose(d, n, now)
		switch {
		case !n.expected: // it has asked before
			n.arrive(nil)
		case !chosen.worker.record.tells: // nobody will say that it was seen there
			n.arrive(chosen.worker)
		}
		n.avoids = append(n.avoids[:0], t.avoided(d, n, now)...)
		t.send(n, chosen, now)
	}
	return Assignment{Worker: n.at.worker.name, Data: n.at.data}, true
}

// repeats tells whether the node repeats the question that it was just answered.
func (n *node) repeats(d *domain, now time.Time) bool {
	return n.at != nil && !n.expected && n.at.domain == d && n.at.offered() && now.Sub(n.sent) < repeatWithin
}

// hadNoLuck tells whether the node asks again because it could not use the worker that it
// was sent to.
func (n *node) hadNoLuck(d *domain, now time.Time, window time.Duration) bool {
	return n.at != nil && n.at.domain == d && !n.seen && !n.expected && now.Sub(n.sent) < window
}

// avoided returns the workers that the node avoids if it asks now, the oldest avoidance
// first. The result is valid until the next call.
func (t *Table) avoided(d *domain, n *node, now time.Time) []avoidance {
	window := t.settings.RetryWindow
	list := d.room.avoided[:0]
	noLuck := n.hadNoLuck(d, now, window)
	for _, a := range n.avoids {
		if now.Sub(a.since) < window && !(noLuck && a.worker == n.at.worker) {
			list = append(list, a)
		}
	}
	if noLuck {
		list = append(list, avoidance{n.at.worker, now})
	}
	d.room.avoided = list
	return list
}

// send has the node counted at the offer. Where it had its tunnel it has none any more: it
// would not ask.
func (t *Table) send(n *node, o *offer, now time.Time) {
	n.lost(now.Add(stale))
	n.leave()
	n.at, n.sent, n.seen, n.left, n.expected = o, now, false, false, false
	n.inFlight = true
	o.inFlight[n] = struct{}{}
	t.await(n)
}

// leave takes the node from where it was sent.
func (n *node) leave() {
	if n.inFlight {
		delete(n.at.inFlight, n)
		n.inFlight = false
	}
	if n.waits {
		n.stopWaiting()
	}
}

// Memory is what another memory knows of a node.
type Memory struct {
	Domain string
	Key    peer.Key
	// Worker is where it was sent at Sent.
	Worker string
	Sent   time.Time
	// Handshake is when a handshake of it was last reported; zero: never.
	Handshake time.Time
}

// Remember records where a node was sent before the table was made.
func (t *Table) Remember(m Memory, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.domains[m.Domain]
	if d == nil || d.nodes[m.Key] != nil || m.Worker == "" {
		return
	}
	o := t.offer(m.Worker, m.Domain)
	n := &node{key: m.Key, at: o, sent: m.Sent, seen: !m.Handshake.Before(m.Sent)}
	if n.seen {
		n.home = o
	}
	d.nodes[m.Key] = n
	// What was last reported may be older than this.
	if now.Sub(m.Sent) < t.settings.Settle {
		n.inFlight = true
		o.inFlight[n] = struct{}{}
	}
}

// forgetInterval is the time between two looks for nodes to forget.
const forgetInterval = time.Minute

// forget forgets nodes that have not been heard of for long.
func (t *Table) forget(now time.Time) {
	if now.Sub(t.forgotAt) < forgetInterval {
		return
	}
	t.forgotAt = now
	for _, d := range t.domains {
		for key, n := range d.nodes {
			if now.Sub(n.heard()) >= t.settings.Memory {
				n.leave()
				n.arrive(nil)
				for len(n.claims) > 0 {
					n.claims[0].drop()
				}
				delete(d.nodes, key)
			}
		}
	}
}

// heard is when something was last heard of the node.
func (n *node) heard() time.Time {
	last := n.sent
	for _, c := range n.claims {
		if c.at.After(last) {
			last = c.at
		}
	}
	return last
}
