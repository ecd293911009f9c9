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

// Run looks for workers that are online and do not report, and logs them, new workers,
// and domains that no worker offers any more, until ctx is done.
func (t *Table) Run(ctx context.Context, log *slog.Logger) error {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			t.look(now, log)
		}
	}
}

func (t *Table) look(now time.Time, log *slog.Logger) {
	for _, w := range t.newWorkers() {
		log.Info("worker is known now", "worker", w.Name, "weight", w.Weight)
	}
	for _, change := range t.Listen(now) {
		if change.Silent {
			log.Warn("worker is online but does not report: it gets no nodes", "worker", change.Worker, "heard", change.Heard)
		} else {
			log.Info("worker reports again", "worker", change.Worker)
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

// known is a worker and its weight.
type known struct {
	Name   string
	Weight uint32
}

// newWorkers returns the workers that were first heard of since the last call.
func (t *Table) newWorkers() []known {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found []known
	for _, w := range t.workers {
		if !w.announced {
			w.announced = true
			found = append(found, known{w.name, w.weight})
		}
	}
	slices.SortFunc(found, func(a, b known) int { return cmp.Compare(a.Name, b.Name) })
	return found
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
