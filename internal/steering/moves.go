package steering

import (
	"cmp"
	"slices"
	"time"

	"wgsteer/internal/peer"
	"wgsteer/loadbalance"
)

// A node stays where it is as long as its tunnel works. To move it, its gateway is told to
// remove its peer: the node notices, asks again and is sent elsewhere.

// Move is a node that is to leave a worker.
type Move struct {
	Domain   string
	Key      peer.Key
	From, To string // To is where it is expected; empty: nowhere in particular
}

const (
	// Balanced is how far from its target a worker may be for the balance to be right, as
	// a part of the target. It may be one peer in any case.
	Balanced = 0.02
	// Even is the same for moves that nobody watches, once the balance is wrong: they would
	// stop at the edge otherwise, and begin anew with the next few nodes that come or go.
	Even = 0.005
)

// Evict takes a node away from a worker, for which there is another in its domain: one last
// that avoids all others. ok is false when there is none.
func (t *Table) Evict(name string, now time.Time) (m Move, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advance(now)
	w := t.workers[name]
	if w == nil {
		return Move{}, false
	}
	for _, o := range w.offers {
		others := o.others()
		stayers := o.movable(now)
		if len(others) == 0 || len(stayers) == 0 {
			continue
		}
		hard := func(n *node) int { // to be elsewhere
			if slices.ContainsFunc(others, func(w *worker) bool { return !n.avoidsNow(w, now, t.settings.RetryWindow) }) {
				return 0
			}
			return 1
		}
		n := slices.MinFunc(stayers, func(a, b *node) int { return cmp.Or(cmp.Compare(hard(a), hard(b)), goesBefore(a, b)) })
		t.release(n, now)
		return Move{Domain: o.domain.name, Key: n.key, From: name}, true
	}
	return Move{}, false
}

// others are the workers to which the offer's nodes can go.
func (o *offer) others() (workers []*worker) {
	for _, other := range o.domain.offering {
		if other != o && !other.worker.drained && !other.worker.record.suspect {
			workers = append(workers, other.worker)
		}
	}
	return workers
}

// avoidsNow tells whether the node does not go to the worker.
func (n *node) avoidsNow(w *worker, now time.Time, window time.Duration) bool {
	return slices.ContainsFunc(n.avoids, func(a avoidance) bool { return a.worker == w && now.Sub(a.since) < window })
}

// release has a node told to leave. It is not to come back as one that had its tunnel here.
func (t *Table) release(n *node, now time.Time) {
	if n.inFlight && n.at == n.tunnel.offer { // the worker does not count it yet
		n.tunnel.drop()
	}
	n.lost(now.Add(t.settings.Settle))
	n.leave()
	n.at, n.home, n.seen, n.left, n.expected = nil, nil, false, false, false
	n.moved = now
}

// Imbalance returns the moves after which every worker is so close to its target, a part
// of it or one peer, and no more: none when it is. Nodes go from the worker that is
// furthest above its target to the one that is furthest below.
func (t *Table) Imbalance(within float64, now time.Time) []Move {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advance(now)
	b := t.balance(within, now)
	b.inOrder = true
	var moves []Move
	for {
		s, ok := b.next()
		if !ok {
			return moves
		}
		moves = append(moves, Move{Domain: s.from.domain.name, Key: s.node.key, From: s.from.worker.name, To: s.to.worker.name})
	}
}

// Rebalance makes the first move of the imbalance. left is how many there are after it. ok
// is false when there is none, or, if some are left, when those that were moved are to be
// seen first where they went.
func (t *Table) Rebalance(within float64, now time.Time) (m Move, left int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advance(now)
	b := t.balance(within, now)
	b.waits = true
	first, ok := b.next()
	b.waits = false
	for {
		if _, more := b.next(); !more {
			break
		}
		left++
	}
	if !ok {
		return Move{}, left, false
	}
	t.release(first.node, now)
	t.send(first.node, first.to, now)
	first.node.stopWaiting()
	first.node.expected = true
	first.node.setOut(first.to.worker, now, t.settings.RetryWindow)
	return Move{Domain: first.from.domain.name, Key: first.node.key, From: first.from.worker.name, To: first.to.worker.name}, left, true
}

// balance is what the workers would carry after the moves so far.
type balance struct {
	within  float64
	now     time.Time
	window  time.Duration
	domains []domainBalance
	peers   map[*worker]uint32
	// movable are the nodes of the offers that had to give some, those that went taken out.
	movable map[*offer][]*node
	// taken is how many went, inOrder whether it matters which went after the first: to sort
	// them takes most of the time.
	taken   int
	inOrder bool
	// waits tells whether nobody is moved to workers where others are to be seen first.
	waits bool
}

// domainBalance is the offers of a domain between which nodes can be moved.
type domainBalance struct {
	offers []*offer
	room   []loadbalance.Candidate
}

// step is one move.
type step struct {
	node     *node
	from, to *offer
}

func (t *Table) balance(within float64, now time.Time) *balance {
	b := &balance{within: within, now: now, window: t.settings.RetryWindow, peers: make(map[*worker]uint32), movable: make(map[*offer][]*node)}
	for _, d := range t.domains {
		var db domainBalance
		for _, o := range d.offering {
			if !o.worker.drained && !o.worker.record.suspect {
				db.offers = append(db.offers, o)
				b.peers[o.worker] = o.worker.peers(nil)
			}
		}
		if len(db.offers) > 1 {
			slices.SortFunc(db.offers, func(a, b *offer) int { return cmp.Compare(a.worker.name, b.worker.name) })
			b.domains = append(b.domains, db)
		}
	}
	slices.SortFunc(b.domains, func(x, y domainBalance) int {
		return cmp.Compare(x.offers[0].domain.name, y.offers[0].domain.name)
	})
	return b
}

// next makes one more move, if the balance demands one and there is a node for it.
func (b *balance) next() (step, bool) {
	for i := range b.domains {
		if s, ok := b.domains[i].next(b); ok {
			b.peers[s.from.worker]--
			b.peers[s.to.worker]++
			return s, true
		}
	}
	return step{}, false
}

// next finds a move in one domain.
func (d *domainBalance) next(b *balance) (step, bool) {
	d.room = d.room[:0]
	for _, o := range d.offers {
		d.room = append(d.room, loadbalance.Candidate{Name: o.worker.name, Weight: o.worker.Weight, Peers: b.peers[o.worker]})
	}
	standings := loadbalance.Explain(d.room)
	order := make([]int, len(standings))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, j int) int { return cmp.Compare(standings[j].Diff, standings[i].Diff) })
	for _, from := range order {
		for _, to := range slices.Backward(order) {
			// A move is worth it when it brings both closer to where they should be and one
			// of them is further off than it may be.
			s, r := standings[from], standings[to]
			outside := b.isBeyond(s.Diff, s.Target) || b.isBeyond(-r.Diff, r.Target)
			if s.Diff-r.Diff <= 1 || r.Diff >= 0 || s.Diff <= 0 || !outside || b.waits && d.offers[to].worker.influx.full() {
				continue
			}
			if n := b.take(d.offers[from], d.offers[to]); n != nil {
				return step{n, d.offers[from], d.offers[to]}, true
			}
		}
	}
	return step{}, false
}

// rounding is far above the error of a diff and far below one peer.
const rounding = 1e-6

// isBeyond tells whether a worker that is so far from its target is further from it than it
// may be.
func (b *balance) isBeyond(diff, target float64) bool {
	return diff > max(1, b.within*target)+rounding
}

// take takes a node that can be moved from one offer to the other.
func (b *balance) take(from, to *offer) *node {
	nodes, known := b.movable[from]
	if !known {
		nodes = from.movable(b.now)
		if b.inOrder {
			slices.SortFunc(nodes, goesBefore)
		}
	}
	best := -1
	for i, n := range nodes {
		if !b.canMove(n, from, to) {
			continue
		}
		if best < 0 || goesBefore(n, nodes[best]) < 0 {
			best = i
		}
		if b.inOrder || b.taken > 0 {
			break
		}
	}
	b.movable[from] = nodes
	if best < 0 {
		return nil
	}
	n := nodes[best]
	copy(nodes[1:], nodes[:best])
	b.movable[from] = nodes[1:]
	b.taken++
	return n
}

func (b *balance) canMove(n *node, from, to *offer) bool {
	here, there := from.worker.Location, to.worker.Location
	switch {
	case !n.located && here != "" && here != there: // it may have asked for where it is
		return false
	case n.location != "" && here == n.location && there != n.location:
		return false
	}
	return !n.avoidsNow(to.worker, b.now, b.window)
}
