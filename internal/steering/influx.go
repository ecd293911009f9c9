package steering

import "time"

// Nodes that are moved to a worker that does not work for them have no tunnel for a few
// minutes. So few go first, and more when those were seen there.

// vanguard is how many nodes are moved to a worker before any was seen there.
const vanguard = 5

// influx is the nodes that are moved to a worker.
type influx struct {
	// under are those that were not seen there yet, seen how many were.
	under, seen int
	// last is when the last one set out.
	last time.Time
}

// full tells whether those that are under way are to be seen first.
func (i *influx) full() bool { return i.under >= vanguard+i.seen }

// setOut notes that the node is moved to the worker. What was seen there long ago says
// nothing of today.
func (n *node) setOut(to *worker, now time.Time, window time.Duration) {
	n.arrive(nil)
	if now.Sub(to.influx.last) >= window {
		to.influx.seen = 0
	}
	to.influx.last = now
	to.influx.under++
	n.movesTo = to
}

// arrive notes that the node was seen at a worker, or, for nil, that it is not going to be
// where it was moved to.
func (n *node) arrive(at *worker) {
	if n.movesTo == nil {
		return
	}
	n.movesTo.influx.under--
	if n.movesTo == at {
		at.influx.seen++
	}
	n.movesTo = nil
}
