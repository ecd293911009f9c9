package levers

import (
	"errors"
	"fmt"
	"time"

	"wgsteer/internal/steering"
)

// job is a rebalancing.
type job struct {
	pace
	auto bool
	// within is how close to their targets workers are to be.
	within float64
	// online are the workers that were when it began.
	online []string
	began  time.Time
	// ended is when it did; zero: it goes on.
	ended       time.Time
	moved, left int
	// waits tells whether nodes are to be seen first where they were moved.
	waits bool
	// result is how it ended, and failed whether that is not as it should.
	result string
	failed bool
}

// Job is what an operator can know of a rebalancing.
type Job struct {
	PerMinute int
	// Auto tells whether it began by itself.
	Auto    bool
	Running bool
	// Moved is how many nodes were moved, Left how many are to be as things stand. Waits
	// tells whether some of those that were moved are to be seen first where they went.
	Moved, Left int
	Waits       bool
	// Result is how it ended, and Failed whether that is not as it should.
	Result string
	Failed bool
}

// ErrRunning is wrapped by the error for a rebalancing while one is under way.
var ErrRunning = errors.New("a rebalancing is running already")

// StartRebalance begins to move so many nodes a minute, until every worker has its share.
func (l *Levers) StartRebalance(perMinute int) (Job, error) {
	if err := checkRate(perMinute, 1); err != nil {
		return Job{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running() {
		return l.job.describe(), fmt.Errorf("%w, at %d nodes a minute; moved: %d, left: %d",
			ErrRunning, l.job.perMinute, l.job.moved, l.job.left)
	}
	l.begin(perMinute, false, time.Now())
	l.signal()
	return l.job.describe(), nil
}

// StopRebalance ends the rebalancing that is under way. ok is false when there is none.
func (l *Levers) StopRebalance() (j Job, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.running() {
		return Job{}, false
	}
	l.end(l.job, time.Now(), "stopped by an operator", true)
	return l.job.describe(), true
}

// Rebalancing returns the rebalancing that is under way or was the last. ok is false when
// there was none since the server started.
func (l *Levers) Rebalancing() (j Job, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.job == nil {
		return Job{}, false
	}
	return l.job.describe(), true
}

// running tells whether a rebalancing is under way. Levers.mu is held, as in all below.
func (l *Levers) running() bool { return l.job != nil && l.job.ended.IsZero() }

func (j *job) describe() Job {
	return Job{
		PerMinute: j.perMinute, Auto: j.auto, Running: j.ended.IsZero(),
		Moved: j.moved, Left: j.left, Waits: j.waits, Result: j.result, Failed: j.failed,
	}
}

func (l *Levers) begin(perMinute int, auto bool, now time.Time) {
	within := steering.Balanced
	if auto {
		within = steering.Even
	}
	l.job = &job{pace: pace{perMinute: perMinute}, auto: auto, within: within, began: now, left: len(l.table.Imbalance(within, now))}
	for _, s := range l.table.States() {
		if s.Online {
			l.job.online = append(l.job.online, s.Worker)
		}
	}
	l.log.Info("rebalancing begins", "nodes", l.job.left, "per_minute", perMinute, "auto", auto)
}

func (l *Levers) end(j *job, now time.Time, result string, failed bool) {
	j.ended, j.result, j.failed = now, result, failed
	l.patience.Renew()
	l.log.Info("rebalancing ended", "result", result, "moved", j.moved, "left", j.left, "took", now.Sub(j.began).Round(time.Second), "auto", j.auto)
}

// move moves a node, if one is due, and returns when the next one is.
func (l *Levers) move(j *job, now time.Time) time.Time {
	if gone := l.gone(j.online); gone != "" {
		l.end(j, now, fmt.Sprintf("stopped: worker %s went offline", gone), true)
		return now.Add(lookInterval)
	}
	if !j.due(now) {
		return j.next
	}
	m, left, ok := l.table.Rebalance(j.within, now)
	j.left, j.waits = left, !ok && left > 0
	switch {
	case j.waits:
		return j.next
	case !ok:
		l.end(j, now, l.balanced(), false)
		return now.Add(lookInterval)
	}
	j.moved++
	l.moves.Inc()
	l.tell(m)
	l.log.Debug("node is moved", "from", m.From, "to", m.To, "domain", m.Domain, "key", m.Key)
	return j.next
}

// balanced says what it means that there is nothing to move.
func (l *Levers) balanced() string {
	result := "every worker has its share, as far as nodes can be moved"
	var suspects []string
	for _, s := range l.table.States() {
		if s.Suspect {
			suspects = append(suspects, s.Worker)
		}
	}
	if suspects != nil {
		result += "; suspect workers were passed over: " + list(suspects)
	}
	return result
}

// gone returns the first of the workers that is not online any more, or "".
func (l *Levers) gone(online []string) string {
	states := make(map[string]steering.State)
	for _, s := range l.table.States() {
		states[s.Worker] = s
	}
	for _, worker := range online {
		if !states[worker].Online {
			return worker
		}
	}
	return ""
}

// lookAtBalance begins a rebalancing by itself, when that is set and it is time.
func (l *Levers) lookAtBalance(now time.Time) {
	if l.settings.AutoRebalance == 0 || l.running() {
		l.patience.Renew()
		return
	}
	if l.patience.Ends(l.table.Imbalance, now) {
		l.begin(l.settings.AutoRebalance, true, now)
	}
}
