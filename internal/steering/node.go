package steering

import (
	"time"

	"wgsteer/internal/peer"
	"wgsteer/internal/report"
)

// node is what is known of a node: where it was sent, and how that went.
type node struct {
	key      peer.Key
	location string // that it last asked for

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

	// connected is where its tunnel is, as a worker said at connectedAt; nil: unknown.
	connected   *offer
	connectedAt time.Time
	// leaving is where it has no tunnel any more, or was told to have none, and may still
	// be counted; hasLeft tells whether the worker has said since that it is gone, so that its
	// next count is without it, as one at countedUntil is in any case.
	leaving      *offer
	hasLeft      bool
	countedUntil time.Time
	// moved is when it was last told to leave.
	moved time.Time
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
	n := t.nodes[ask.Key]
	if n == nil {
		n = &node{key: ask.Key}
		t.nodes[ask.Key] = n
	}
	n.location = ask.Location
	if !n.repeats(d, now) {
		if n.hadNoLuck(d, now, t.settings.RetryWindow) && n.waits {
			t.judge(n, false, now)
		}
		chosen, _ := t.choose(d, n, now)
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

// stale is how long a worker counts a node that has no tunnel to it any more, and how long
// its next count may take: it is three minutes before a handshake is too old.
const stale = 4 * time.Minute

// send has the node counted at the offer. Where it had its tunnel it has none any more: it
// would not ask.
func (t *Table) send(n *node, o *offer, now time.Time) {
	n.lost(now.Add(stale))
	n.leave()
	n.at, n.sent, n.seen, n.expected = o, now, false, false
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

// disconnect notes that the node has no tunnel any more where it had one.
func (n *node) disconnect() {
	if n.connected != nil {
		delete(n.connected.connected, n)
		n.connected = nil
	}
}

// lost is disconnect for what its worker does not know yet: it counts the node until it
// says that it is gone, or until then.
func (n *node) lost(until time.Time) {
	if o := n.connected; o != nil {
		n.left()
		n.disconnect()
		n.leaving, n.hasLeft, n.countedUntil = o, false, until
		o.leaving[n] = struct{}{}
	}
}

// Seen records what a worker says of the handshakes of nodes in a domain.
func (t *Table) Seen(name, domain string, handshakes []report.Handshake, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advance(now)
	o := t.offer(name, domain)
	if o == nil {
		return
	}
	o.worker.record.tells = true
	for _, h := range handshakes {
		n := t.nodes[h.Key]
		switch {
		case h.Gone && n != nil:
			if n.connected == o {
				n.disconnect()
			}
			n.hasLeft = n.hasLeft || n.leaving == o
		case !h.Gone && n == nil:
			n = &node{key: h.Key}
			t.nodes[h.Key] = n
			fallthrough
		case !h.Gone:
			t.connect(n, o, now)
		}
	}
}

// connect notes that the node has its tunnel at the offer.
func (t *Table) connect(n *node, o *offer, now time.Time) {
	if n.connected != o {
		n.lost(now.Add(stale))
	}
	n.connected, n.connectedAt = o, now
	o.connected[n] = struct{}{}
	if n.leaving == o { // it is back before its worker has noticed, which counts it all the time
		n.left()
		if n.inFlight && n.at == o {
			n.inFlight = false
			delete(o.inFlight, n)
		}
	}
	if n.at != o {
		// Somebody else sent it here, or it uses what it was told before: then this may be
		// the last that is heard of a tunnel that it gives up.
		if n.at != nil && (n.seen || now.Sub(n.sent) < judgeAfter) {
			return
		}
		n.leave()
		n.at, n.sent, n.expected = o, now, false
	}
	n.seen, n.home = true, o
	for i, a := range n.avoids {
		if a.worker == o.worker {
			n.avoids = append(n.avoids[:i], n.avoids[i+1:]...)
			break
		}
	}
	if n.waits {
		t.judge(n, true, now)
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
	if t.nodes[m.Key] != nil || m.Worker == "" {
		return
	}
	o := t.offer(m.Worker, m.Domain)
	if o == nil {
		return
	}
	n := &node{key: m.Key, at: o, sent: m.Sent, seen: !m.Handshake.Before(m.Sent)}
	if n.seen {
		n.home = o
	}
	t.nodes[m.Key] = n
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
	for key, n := range t.nodes {
		if now.Sub(n.sent) < t.settings.Memory || now.Sub(n.connectedAt) < t.settings.Memory {
			continue
		}
		n.leave()
		n.disconnect()
		n.left()
		delete(t.nodes, key)
	}
}
