package steering

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"wgsteer/internal/report"
)

// Workers say which nodes are connected to them, and count those. Both lag behind: a worker
// takes a node for connected until its last handshake is three minutes old, and one that
// comes back tells of all that it takes for connected. So more than one can claim a node.

// claim is that a worker says that a node is connected to it.
type claim struct {
	node  *node
	offer *offer
	// at is when it last said so.
	at time.Time
	// ghost tells that the node has its tunnel elsewhere or nowhere: the worker still counts
	// it. It is void when that is certain: the node has asked since, or was told to leave.
	ghost, void bool
	// hasLeft tells that the worker knows by now: its next count is without the node, as one
	// at until is in any case.
	hasLeft bool
	until   time.Time
}

const (
	// stale is how long a worker counts a node that has no tunnel to it any more, and how
	// long its next count may take.
	stale = 4 * time.Minute
	// staysConnected is how long a node counts as connected after its worker last said so:
	// workers repeat it every hour.
	staysConnected = 70 * time.Minute
)

// claimed returns the offer's claim of the node, which may be new.
func (o *offer) claimed(n *node) *claim {
	c := o.claims[n]
	if c == nil {
		c = &claim{node: n, offer: o}
		o.claims[n] = c
		n.claims = append(n.claims, c)
	}
	return c
}

// haunt makes the claim a ghost, which counts until then unless the worker knows better
// before.
func (c *claim) haunt(until time.Time, void bool) {
	if !c.ghost {
		c.ghost, c.hasLeft = true, false
		c.offer.ghosts++
	}
	c.void, c.until = c.void || void, until
	if c.node.tunnel == c {
		c.node.tunnel = nil
	}
}

// hold makes the claim the one that is true.
func (c *claim) hold(now time.Time) {
	if was := c.node.tunnel; was != nil && was != c {
		was.haunt(now.Add(stale), false)
	}
	if c.ghost {
		c.ghost, c.void, c.hasLeft = false, false, false
		c.offer.ghosts--
	}
	c.node.tunnel = c
}

// drop forgets the claim.
func (c *claim) drop() {
	n := c.node
	delete(c.offer.claims, n)
	n.claims = slices.DeleteFunc(n.claims, func(other *claim) bool { return other == c })
	if c.ghost {
		c.offer.ghosts--
	}
	if n.tunnel == c {
		n.tunnel = nil
	}
}

// lost notes that the node has no tunnel, wherever workers take it to have one.
func (n *node) lost(until time.Time) {
	for _, c := range n.claims {
		if c.ghost {
			c.void = true
		} else {
			c.haunt(until, true)
		}
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
		n := o.domain.nodes[h.Key]
		switch {
		case h.Gone && n != nil:
			t.gone(n, o, now)
		case !h.Gone && n == nil:
			n = &node{key: h.Key}
			o.domain.nodes[h.Key] = n
			fallthrough
		case !h.Gone:
			t.connect(n, o, now)
		}
	}
}

// gone notes that the node is not connected to the offer any more. Then another worker that
// claims it may be right.
func (t *Table) gone(n *node, o *offer, now time.Time) {
	c := o.claims[n]
	switch {
	case c == nil:
		return
	case c.ghost:
		c.hasLeft = true
		return
	}
	c.drop()
	if n.at == o {
		n.left = true
	}
	t.promote(n, now)
}

// promote believes the latest claim of a node whose tunnel is gone.
func (t *Table) promote(n *node, now time.Time) {
	var latest *claim
	for _, c := range n.claims {
		if !c.void && !c.hasLeft && (latest == nil || c.at.After(latest.at)) {
			latest = c
		}
	}
	if latest != nil {
		t.connect(n, latest.offer, now)
	}
}

// connect notes that the node is connected to the offer, if that can be.
func (t *Table) connect(n *node, o *offer, now time.Time) {
	c := o.claimed(n)
	c.at = now
	if n.isElsewhere(o, now) {
		if !c.ghost {
			c.haunt(now.Add(stale), false)
		}
		return
	}
	if c.ghost && n.inFlight && n.at == o { // its worker has counted it all the time
		n.inFlight = false
		delete(o.inFlight, n)
	}
	c.hold(now)
	if n.at != o {
		if n.seen && !n.left {
			return // nothing was heard yet of where it was sent
		}
		// Somebody else sent it here, or it uses what it was told before.
		n.leave()
		n.at, n.sent, n.expected = o, now, false
	}
	n.seen, n.left, n.home = true, false, o
	n.arrive(o.worker)
	n.avoids = slices.DeleteFunc(n.avoids, func(a avoidance) bool { return a.worker == o.worker })
	if n.waits {
		t.judge(n, true, now)
	}
}

// isElsewhere tells whether the node has its tunnel where it was sent, or was sent there
// just now, so that what the offer tells is of a tunnel before.
func (n *node) isElsewhere(o *offer, now time.Time) bool {
	if n.at == nil || n.at == o {
		return false
	}
	if n.seen {
		return n.tunnel != nil && n.tunnel.offer == n.at
	}
	return now.Sub(n.sent) < judgeAfter
}

// lose forgets what is not known any more of a worker that went offline.
func (t *Table) lose(o *offer, now time.Time) {
	for n := range o.inFlight {
		n.inFlight = false
		n.arrive(nil)
	}
	clear(o.inFlight)
	for n, c := range o.claims {
		c.drop()
		t.promote(n, now)
	}
}

// movable returns the nodes whose tunnel is here, in no order.
func (o *offer) movable(now time.Time) []*node {
	nodes := make([]*node, 0, len(o.claims)-o.ghosts)
	for n, c := range o.claims {
		if !c.ghost && now.Sub(c.at) < staysConnected {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// goesBefore compares nodes by the order in which they should go: those that were never
// moved first, and of those the ones that are there for the shortest time.
func goesBefore(a, b *node) int {
	return cmp.Or(a.moved.Compare(b.moved), b.sent.Compare(a.sent), bytes.Compare(a.key[:], b.key[:]))
}
