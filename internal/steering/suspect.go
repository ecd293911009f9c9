package steering

import (
	"bytes"
	"cmp"
	"slices"
	"time"

	"wgsteer/internal/peer"
)

// A gateway can report that it is well and be out of reach for nodes: its port is
// blocked, say. Then it has few peers, and draws all nodes to it. So what becomes of the
// nodes that were sent to a worker is remembered: a worker to which they are sent in vain
// is suspect.

const (
	// judgeAfter is how long after an assignment a handshake must have been reported.
	judgeAfter = time.Minute
	// A worker is suspect when, of its last judgedOutcomes outcomes, so many failed, of so
	// many different nodes.
	judgedOutcomes = 10
	failedOutcomes = 8
	failedNodes    = 5
	// probeInterval is the time between two nodes that a suspect worker is sent, and
	// provenProbes how many in a row have to be seen there for it to be trusted again.
	probeInterval = time.Minute
	provenProbes  = 3
)

// record is how the assignments to a worker turned out.
type record struct {
	// tells tells whether the worker ever reported handshakes. Python workers do not.
	tells bool
	// outcomes are the last ones, the oldest first.
	outcomes []outcome
	// undecided are the nodes whose outcome is awaited.
	undecided map[*node]struct{}

	suspect bool
	// probed is when a node was last sent while it was suspect, or when it became so;
	// proven is how many probes in a row were seen.
	probed time.Time
	proven int
}

// outcome is whether a node that was sent to a worker was seen there.
type outcome struct {
	key  peer.Key
	seen bool
}

// waiting is an assignment whose outcome is awaited.
type waiting struct {
	node *node
	sent time.Time
}

// Suspicion is that a worker became suspect, or is trusted again.
type Suspicion struct {
	Worker  string
	Suspect bool
	// Failed of the last Of assignments failed, of so many Nodes.
	Failed, Of, Nodes int
}

func newRecord() record { return record{undecided: make(map[*node]struct{})} }

// lose forgets whose outcome is awaited: nothing can be heard of it.
func (r *record) lose() {
	for n := range r.undecided {
		n.waits = false
	}
	clear(r.undecided)
}

// await has the outcome of an assignment that was just made awaited.
func (t *Table) await(n *node) {
	w := n.at.worker
	n.waits, n.probe, n.peersThen = true, w.record.suspect, w.reported()
	if n.probe {
		w.record.probed = n.sent
	}
	w.record.undecided[n] = struct{}{}
	t.waiting = append(t.waiting, waiting{n, n.sent})
}

func (n *node) stopWaiting() {
	n.waits = false
	delete(n.at.worker.record.undecided, n)
}

// advance judges the assignments for which it is time now.
func (t *Table) advance(now time.Time) {
	for len(t.waiting) > 0 && now.Sub(t.waiting[0].sent) >= judgeAfter {
		n, sent := t.waiting[0].node, t.waiting[0].sent
		t.waiting = t.waiting[1:]
		if n.waits && n.sent.Equal(sent) && n.at.worker.record.tells {
			t.judge(n, false, now)
		}
	}
}

// judgeByCount judges the assignments of a worker that does not report handshakes, when
// it has reported a count of peers. A count that rose speaks for all of them. One that
// did not speaks against them only where it is too small for them to be in it: in a large
// mesh, as many nodes leave as come.
func (t *Table) judgeByCount(w *worker, now time.Time) {
	var due []*node
	for n := range w.record.undecided {
		if now.Sub(n.sent) >= judgeAfter {
			due = append(due, n)
		}
	}
	slices.SortFunc(due, func(a, b *node) int {
		return cmp.Or(a.sent.Compare(b.sent), bytes.Compare(a.key[:], b.key[:]))
	})
	reported := w.reported()
	for _, n := range due {
		switch {
		case w.record.tells: // by now; it did not when they were sent
			n.stopWaiting()
		case reported > n.peersThen:
			t.judge(n, true, now)
		case reported < len(due):
			t.judge(n, false, now)
		case now.Sub(n.sent) >= t.settings.RetryWindow:
			n.stopWaiting()
		}
	}
}

// judge records the outcome of an assignment.
func (t *Table) judge(n *node, seen bool, now time.Time) {
	n.stopWaiting()
	w := n.at.worker
	r := &w.record
	if !seen && n.failsElsewhere(now, t.settings.RetryWindow) {
		return // a node that fails everywhere says nothing of a worker
	}
	if !r.suspect {
		r.add(outcome{n.key, seen})
		if failed, nodes := r.failed(); failed >= failedOutcomes && nodes >= failedNodes {
			r.suspect, r.probed, r.proven = true, now, 0
			t.news = append(t.news, Suspicion{Worker: w.name, Suspect: true, Failed: failed, Of: len(r.outcomes), Nodes: nodes})
		}
		return
	}
	switch {
	case !n.probe:
		return // was sent before
	case !seen:
		r.proven = 0
		return
	}
	if r.proven++; r.proven == provenProbes {
		r.suspect, r.outcomes = false, r.outcomes[:0]
		t.news = append(t.news, Suspicion{Worker: w.name})
	}
}

func (n *node) failsElsewhere(now time.Time, window time.Duration) bool {
	for _, a := range n.avoids {
		if a.worker != n.at.worker && now.Sub(a.since) < window {
			return true
		}
	}
	return false
}

func (r *record) add(o outcome) {
	if len(r.outcomes) == judgedOutcomes {
		r.outcomes = append(r.outcomes[:0], r.outcomes[1:]...)
	}
	r.outcomes = append(r.outcomes, o)
}

// failed is how many of the outcomes failed, and of how many different nodes.
func (r *record) failed() (failed, nodes int) {
	for i, o := range r.outcomes {
		if o.seen {
			continue
		}
		failed++
		if !slices.Contains(r.outcomes[:i], o) {
			nodes++
		}
	}
	return failed, nodes
}

// Trust ends the suspicion of a worker. It returns whether there was one.
func (t *Table) Trust(name string) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.workers[name]
	if w == nil || !w.record.suspect {
		return false
	}
	w.record.suspect, w.record.outcomes = false, w.record.outcomes[:0]
	return true
}

// probe returns the suspect offer to which a node should be sent to find out whether it
// works again: the one that has waited longest. It is nil when it is too early, or when
// all are suspect: then all nodes find out.
func probe(list []*offer, now time.Time) *offer {
	var longest *offer
	suspects := 0
	for _, o := range list {
		r := &o.worker.record
		if !r.suspect {
			continue
		}
		suspects++
		if o.worker.Weight == 0 || now.Sub(r.probed) < probeInterval {
			continue
		}
		if longest == nil || r.probed.Before(longest.worker.record.probed) {
			longest = o
		}
	}
	if suspects == len(list) {
		return nil
	}
	return longest
}
