package gateway

import (
	"math/rand/v2"
	"time"

	"wgsteer/internal/config"
)

const (
	// reconcileInterval bounds how long something that somebody changed behind our
	// back, and that no event tells of, stays changed: with the time that it takes to put
	// it back, 30 seconds.
	reconcileInterval = 25 * time.Second
	// settle is how long an event waits for those that follow it: an interface that is
	// being set up sends several.
	settle = 250 * time.Millisecond
	// minRetry and maxRetry bound the time until a failed comparison, or one that found
	// the domain not ready, is repeated.
	minRetry = 500 * time.Millisecond
	maxRetry = 15 * time.Second
)

// due is when a domain's goroutine does what next.
type due struct {
	reconcile, sweep, count time.Time
	// glance is when to look for handshakes that the server waits for; zero: there are none.
	glance time.Time
	// retry is the time until the next retry, before jitter.
	retry time.Duration
}

func newDue(now time.Time, agent config.Agent) due {
	return due{
		reconcile: now,
		sweep:     now.Add(agent.SweepInterval),
		count:     now.Add(agent.ReportInterval),
		retry:     minRetry,
	}
}

func (d *due) next() time.Time {
	next := d.reconcile
	for _, t := range []time.Time{d.sweep, d.count, d.glance} {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	return next
}

// reconcileBy makes the next comparison happen at t at the latest.
func (d *due) reconcileBy(t time.Time) {
	if t.Before(d.reconcile) {
		d.reconcile = t
	}
}

// countBy makes the next count happen at t at the latest.
func (d *due) countBy(t time.Time) {
	if t.Before(d.count) {
		d.count = t
	}
}

func (d *due) glanceAt(now time.Time) bool { return !d.glance.IsZero() && !now.Before(d.glance) }

// afterLook asks for the next look, if handshakes are awaited: what else makes the
// domain look may be further away.
func (d *due) afterLook(now time.Time, awaited bool) {
	d.glance = time.Time{}
	if awaited {
		d.glance = now.Add(glanceInterval)
	}
}

// afterEvent asks for a comparison soon. Events that follow do not put it off.
func (d *due) afterEvent(now time.Time) {
	d.retry = minRetry
	d.reconcileBy(now.Add(settle))
}

func (d *due) afterSuccess(now time.Time) {
	d.retry = minRetry
	d.reconcile = now.Add(reconcileInterval)
}

// afterFailure asks for a retry later each time, and not at the same time as others do.
func (d *due) afterFailure(now time.Time) {
	d.reconcile = now.Add(d.retry*3/4 + rand.N(d.retry/2))
	d.retry = min(2*d.retry, maxRetry)
}
