package steering

import (
	"slices"
	"time"

	"wgsteer/loadbalance"
)

// room is where a choice is made.
type room struct {
	left       []*offer
	candidates []loadbalance.Candidate
	avoided    []avoidance
}

// exclusion is why a candidate is left out of a choice. Empty: it is not.
type exclusion string

const (
	isDrained   exclusion = "drained"
	isSuspect   exclusion = "suspect"
	isAvoided   exclusion = "avoided: the node could not use it"
	isElsewhere exclusion = "another location"
)

// reason is why a worker is chosen.
type reason string

const (
	lowestDiff reason = "lowest diff"
	onlyOne    reason = "the only one left"
	goesBack   reason = "the node had its tunnel there"
	isProbe    reason = "a probe, to find out whether it works again"
	isRepeated reason = "the answer of a moment ago, repeated"
)

// choose returns the offer of the domain that the node should use. There must be one that
// can be chosen. It changes nothing that the next choice depends on.
func (t *Table) choose(d *domain, n *node, now time.Time) (*offer, reason) {
	for _, o := range d.offers {
		o.excluded = ""
	}
	left := append(d.room.left[:0], d.offering...)
	left = exclude(left, isDrained, func(o *offer) bool { return o.worker.drained })
	avoided := t.avoided(d, n, now)
	if len(avoided) == 0 {
		if probe := probe(left, now); probe != nil {
			d.room.left = left
			return probe, isProbe
		}
	}
	left = exclude(left, isSuspect, func(o *offer) bool { return o.worker.record.suspect })
	left = excludeAvoided(left, avoided)
	if n.location != "" {
		left = exclude(left, isElsewhere, func(o *offer) bool { return o.worker.Location != n.location })
	}
	d.room.left = left
	if len(left) == 1 {
		return left[0], onlyOne
	}
	candidates := d.lay(left, n)
	if i := slices.Index(left, n.home); i >= 0 && within(loadbalance.Stand(candidates, i), t.settings.StickyTolerance) {
		return n.home, goesBack
	}
	return left[loadbalance.Index(candidates)], lowestDiff
}

// exclude takes out of the list the offers that fit, unless that would be all of them.
func exclude(list []*offer, why exclusion, out func(*offer) bool) []*offer {
	n := 0
	for _, o := range list {
		if out(o) {
			n++
		}
	}
	if n == 0 || n == len(list) {
		return list
	}
	kept := list[:0]
	for _, o := range list {
		if out(o) {
			o.excluded = why
		} else {
			kept = append(kept, o)
		}
	}
	return kept
}

// excludeAvoided takes out the avoided workers. When those are all, the oldest avoidance
// falls.
func excludeAvoided(list []*offer, avoided []avoidance) []*offer {
	for ; len(avoided) > 0; avoided = avoided[1:] {
		before := len(list)
		list = exclude(list, isAvoided, func(o *offer) bool { return isAmong(o.worker, avoided) })
		if len(list) < before {
			break
		}
	}
	return list
}

func isAmong(w *worker, avoided []avoidance) bool {
	for _, a := range avoided {
		if a.worker == w {
			return true
		}
	}
	return false
}

// within tells whether a candidate is above its target by no more than the tolerance, a
// part of the target, or by no more than one peer.
func within(s loadbalance.Standing, tolerance float64) bool {
	return s.Diff <= max(1, tolerance*s.Target)
}

// lay returns the offers as candidates, in the same order. The node counts nowhere: it is
// about to be sent to one of them.
func (d *domain) lay(offers []*offer, n *node) []loadbalance.Candidate {
	d.room.candidates = d.room.candidates[:0]
	for _, o := range offers {
		d.room.candidates = append(d.room.candidates, loadbalance.Candidate{
			Name: o.worker.name, Weight: o.worker.Weight, Peers: o.worker.peers(n),
		})
	}
	return d.room.candidates
}
