package steering

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"wgsteer/internal/peer"
	"wgsteer/loadbalance"
)

// Explanation is how the next choice for a node comes about.
type Explanation struct {
	Candidates []Candidate
	// Chosen is the worker that the node would be sent to, empty when no worker offers
	// the domain, and Reason why it is that one.
	Chosen, Reason string
}

// Candidate is a worker that has ever reported anything for the domain.
type Candidate struct {
	Worker, Location string
	Weight           uint32
	// Reported are the peers that it reported for all its domains, InFlight how many more
	// were sent to it (or fewer, if it is told to let go of some) than can be in that.
	Reported, InFlight int
	// Left tells whether it was left when the weights decided. Target and Diff are then
	// how it stood among those that were, as loadbalance.Standing has them.
	Left         bool
	Target, Diff float64
	// Health is "ok" or what keeps nodes from it.
	Health string
	// Excluded is why it was left out for this node although it can be chosen.
	Excluded string
}

// Explain returns how the choice would come about if the node asked now. An empty key
// stands for a node that is not known. ok is false when the domain is not configured.
func (t *Table) Explain(ask Ask, now time.Time) (e Explanation, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advance(now)
	d := t.domains[ask.Domain]
	if d == nil {
		return Explanation{}, false
	}
	n := &node{key: ask.Key}
	if known := d.nodes[ask.Key]; known != nil && ask.Key != (peer.Key{}) {
		copied := *known
		n = &copied
	}
	n.location = ask.Location
	var left []*offer
	standings := make(map[*offer]loadbalance.Standing)
	if len(d.offering) > 0 {
		chosen, why := t.choose(d, n, now)
		left = d.room.left
		if n.repeats(d, now) {
			chosen, why = n.at, isRepeated
			n.at.excluded = "" // not this time
		}
		e.Chosen, e.Reason = chosen.worker.name, string(why)+chosen.although(why)
		for i, s := range loadbalance.Explain(d.lay(left, n)) {
			standings[left[i]] = s
		}
	}
	for _, o := range d.offers {
		s, isLeft := standings[o]
		c := Candidate{
			Worker: o.worker.name, Location: o.worker.Location, Weight: o.worker.Weight,
			Reported: o.worker.reported(), InFlight: o.worker.inFlight(),
			Left: isLeft, Target: s.Target, Diff: s.Diff, Health: o.health(),
		}
		if o.offered() {
			c.Excluded = string(o.excluded)
		}
		e.Candidates = append(e.Candidates, c)
	}
	slices.SortFunc(e.Candidates, func(a, b Candidate) int { return cmp.Compare(a.Worker, b.Worker) })
	return e, true
}

// although says what would keep nodes from the chosen offer if it did not keep them from
// all.
func (o *offer) although(why reason) string {
	switch {
	case o.worker.drained:
		return "; all are drained, so that is passed over"
	case o.worker.record.suspect && why != isProbe:
		return "; all that are left are suspect, so that is passed over"
	}
	return ""
}

// health says what keeps nodes from the offer.
func (o *offer) health() string {
	w := o.worker
	switch {
	case !w.online:
		return "offline"
	case !o.hasData:
		return "has not said how nodes reach it"
	case o.reported < 0:
		return "does not offer the domain"
	case w.silent:
		return "silent: no report since " + w.heard.UTC().Format(time.RFC3339)
	}
	return w.health()
}

// health says what keeps nodes from the worker in all its domains.
func (w *worker) health() string {
	suspicion := ""
	if w.record.suspect {
		failed, nodes := w.record.failed()
		suspicion = fmt.Sprintf("suspect: %d of %d nodes' tries failed, of %d nodes; %d of %d probes seen since",
			failed, len(w.record.outcomes), nodes, w.record.proven, provenProbes)
	}
	switch {
	case w.drained && suspicion != "":
		return "drained; " + suspicion
	case w.drained:
		return "drained"
	case suspicion != "":
		return suspicion
	}
	return "ok"
}

// State is what is known of a worker that is configured or was heard of.
type State struct {
	Worker, Location                 string
	Weight                           uint32
	Online, Silent, Suspect, Drained bool
	// Reported and InFlight are as in Candidate, Connected are the nodes whose tunnel is
	// there as far as it says so.
	Reported, InFlight, Connected int
	// Domains are those that it offers, sorted.
	Domains []string
	// Tells tells whether it reports which nodes are connected, without which none can be
	// moved away from it.
	Tells bool
	// Health is "ok" or what keeps nodes from it.
	Health string
}

// States returns what is known of the workers, sorted by name.
func (t *Table) States() []State {
	t.mu.Lock()
	defer t.mu.Unlock()
	states := make([]State, 0, len(t.workers))
	for _, w := range t.workers {
		s := State{
			Worker: w.name, Location: w.Location, Weight: w.Weight,
			Online: w.online, Silent: w.silent, Suspect: w.record.suspect, Drained: w.drained,
			Reported: w.reported(), InFlight: w.inFlight(), Connected: w.connected(), Tells: w.record.tells, Health: w.health(),
		}
		for _, o := range w.offers {
			if o.offered() {
				s.Domains = append(s.Domains, o.domain.name)
			}
		}
		slices.Sort(s.Domains)
		switch {
		case !w.online:
			s.Health = "offline"
		case w.silent:
			s.Health = "silent"
		case len(s.Domains) == 0:
			s.Health = "offers no domain: its agent's log says why"
		}
		states = append(states, s)
	}
	for _, name := range t.missing() {
		w := t.configured(name)
		_, drained := t.drained[name]
		states = append(states, State{Worker: name, Location: w.Location, Weight: w.Weight, Drained: drained, Health: "never heard of"})
	}
	slices.SortFunc(states, func(a, b State) int { return cmp.Compare(a.Worker, b.Worker) })
	return states
}
