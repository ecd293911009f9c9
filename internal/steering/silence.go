package steering

import (
	"cmp"
	"slices"
	"time"
)

// Hearing is that a worker fell silent, or is heard again.
type Hearing struct {
	Worker string
	Silent bool
	// Heard is when it last reported.
	Heard time.Time
}

// Listen finds the workers that fell silent or are heard again since it was last
// called, sorted by name. Those that are silent are not chosen.
func (t *Table) Listen(now time.Time) []Hearing {
	t.mu.Lock()
	defer t.mu.Unlock()
	var changes []Hearing
	for _, w := range t.workers {
		if w.again {
			w.again = false
			changes = append(changes, Hearing{Worker: w.name, Heard: w.heard})
		}
		silent := t.settings.SilentAfter > 0 && w.online && w.counts() && now.Sub(w.heard) >= t.settings.SilentAfter
		if silent == w.silent {
			continue
		}
		w.setSilent(silent)
		if silent {
			changes = append(changes, Hearing{Worker: w.name, Silent: true, Heard: w.heard})
		}
	}
	slices.SortFunc(changes, func(a, b Hearing) int { return cmp.Compare(a.Worker, b.Worker) })
	return changes
}

// counts tells whether the worker reports counts of peers: only for domains that it offers.
func (w *worker) counts() bool {
	return slices.ContainsFunc(w.offers, func(o *offer) bool { return o.reported >= 0 })
}

// hear notes a report, with which a silent worker can be chosen again.
func (w *worker) hear(now time.Time) {
	w.heard = now
	if w.silent {
		w.setSilent(false)
		w.again = true
	}
}

func (w *worker) setSilent(silent bool) {
	w.silent = silent
	for _, o := range w.offers {
		o.domain.refresh()
	}
}
