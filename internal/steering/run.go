package steering

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"
)

// lookInterval is the time between two looks for what an operator should hear of.
const lookInterval = time.Second

// Run logs what an operator should hear of, until ctx is done: workers that are online and
// do not report, suspect ones, new ones, and domains that no worker offers any more.
func (t *Table) Run(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			t.Look(now, log)
		}
	}
}

// Look does once what Run does every second.
func (t *Table) Look(now time.Time, log *slog.Logger) {
	for _, w := range t.newWorkers() {
		log.Info("worker is known now", "worker", w.Name, "weight", w.Weight)
		if len(w.missing) > 0 {
			log.Warn("worker is not listed under \"workers\": it has weight 1, and no location", "worker", w.Name, "listed_and_never_heard_of", w.missing)
		}
	}
	for _, change := range t.Listen(now) {
		if change.Silent {
			log.Warn("worker is online but does not report: it gets no nodes", "worker", change.Worker, "heard", change.Heard)
		} else {
			log.Info("worker reports again", "worker", change.Worker)
		}
	}
	for _, s := range t.Suspicions(now) {
		if s.Suspect {
			log.Warn("worker is suspect: nodes that are sent to it are not seen there; it gets one a minute, as a probe", "worker", s.Worker,
				"failed", s.Failed, "of", s.Of, "nodes", s.Nodes)
		} else {
			log.Info("worker is no longer suspect: probes were seen there", "worker", s.Worker)
		}
	}
	for _, s := range t.serviceChanges() {
		if s.served {
			log.Info("domain has a worker", "domain", s.domain)
		} else {
			log.Warn("domain has no worker: its nodes are told to ask again later", "domain", s.domain)
		}
	}
}

// Suspicions returns the workers that became suspect or are trusted again since the last
// call, in that order.
func (t *Table) Suspicions(now time.Time) []Suspicion {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advance(now)
	t.forget(now)
	news := t.news
	t.news = nil
	return news
}

// known is a worker and its weight.
type known struct {
	Name   string
	Weight uint32
	// missing are the workers that are configured and were never heard of, if this one is
	// not configured: one of them may be meant.
	missing []string
}

// newWorkers returns the workers that were first heard of since the last call.
func (t *Table) newWorkers() []known {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []known
	for _, w := range t.workers {
		if !w.announced {
			w.announced = true
			k := known{Name: w.name, Weight: w.Weight}
			if _, listed := t.settings.Workers[w.name]; !listed {
				k.missing = t.missing()
			}
			found = append(found, k)
		}
	}
	slices.SortFunc(found, func(a, b known) int { return cmp.Compare(a.Name, b.Name) })
	return found
}

// missing are the workers that are configured and were never heard of, sorted.
func (t *Table) missing() []string {
	var names []string
	for name := range t.settings.Workers {
		if t.workers[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// service is whether any worker offers a domain.
type service struct {
	domain string
	served bool
}

// serviceChanges returns the domains of which that has changed since the last call.
func (t *Table) serviceChanges() []service {
	t.mu.Lock()
	defer t.mu.Unlock()
	var changes []service
	for name, d := range t.domains {
		if served := len(d.offering) > 0; served != d.served {
			d.served = served
			changes = append(changes, service{name, served})
		}
	}
	slices.SortFunc(changes, func(a, b service) int { return cmp.Compare(a.domain, b.domain) })
	return changes
}
