package steering

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"time"
)

// silenceInterval is the time between two looks for workers that do not report.
const silenceInterval = time.Second

// Run looks for workers that are online and do not report, until ctx is done.
func (t *Table) Run(ctx context.Context, log *slog.Logger) error {
	if t.silentAfter == 0 {
		return nil
	}
	tick := time.NewTicker(silenceInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case now := <-tick.C:
			for _, change := range t.Listen(now) {
				if change.Silent {
					log.Warn("worker is online but does not report: it gets no nodes", "worker", change.Worker, "heard", change.Heard)
				} else {
					log.Info("worker reports again", "worker", change.Worker)
				}
			}
		}
	}
}

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
		silent := w.online && !w.heard.IsZero() && now.Sub(w.heard) >= t.silentAfter
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
