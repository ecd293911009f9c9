package levers

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"wgsteer/internal/steering"
	"wgsteer/topics"
)

// drain is that a worker gets no new nodes.
type drain struct {
	// evict is how many nodes a minute are taken away from it.
	evict int
	pace  pace
	// evicted is how many were since the drain began or the server started.
	evicted int
	// stuck tells whether there was none that could go when one was due.
	stuck bool
}

// Drain is what an operator can know of a drain.
type Drain struct {
	// Evict is how many nodes a minute are taken away from the worker, Evicted how many
	// were since the drain began or the server started.
	Evict, Evicted int
	// Stuck tells whether there was no node that could go when the last one was due.
	Stuck bool
}

// ErrUnknownWorker is wrapped by the error for a name that is no worker's, as far as is
// known.
var ErrUnknownWorker = errors.New("no such worker")

// Drain takes a worker out of the choice and so many nodes a minute away from it, which
// may be 0. A worker that is not known is an error, unless it is forced: it may come. note
// is what the operator should know, beside that it is done.
func (l *Levers) Drain(worker string, evict int, force bool) (note string, err error) {
	if err := topics.CheckWorker(worker); err != nil {
		return "", err
	}
	if err := checkRate(evict, 0); err != nil {
		return "", err
	}
	if err := l.known(worker); err != nil && !force {
		return "", fmt.Errorf("%w; --force drains one that is yet to come", err)
	}
	l.mu.Lock()
	d := l.drains[worker]
	if d == nil {
		d = &drain{}
		l.drains[worker] = d
	}
	d.evict, d.pace, d.stuck = evict, pace{perMinute: evict}, false
	l.pulled[worker] = struct{}{}
	l.table.Drain(worker, true)
	l.mu.Unlock()
	l.log.Info("worker is drained", "worker", worker, "evicted_per_minute", evict)
	l.signal()
	return join(l.leftAlone(worker), l.save()), nil
}

// leftAlone says which domains of a drained worker no other one offers that is not drained.
func (l *Levers) leftAlone(worker string) (note string) {
	states := l.table.States()
	var alone []string
	for _, s := range states {
		if s.Worker != worker {
			continue
		}
		for _, domain := range s.Domains {
			if !slices.ContainsFunc(states, func(other steering.State) bool {
				return !other.Drained && slices.Contains(other.Domains, domain)
			}) {
				alone = append(alone, domain)
			}
		}
	}
	if alone == nil {
		return ""
	}
	return fmt.Sprintf("no other worker is left for %s: nodes are sent to it as before", list(alone))
}

// join joins notes.
func join(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(note string) bool { return note == "" }), "; ")
}

// Trust ends the suspicion of a worker. changed tells whether there was one.
func (l *Levers) Trust(worker string) (changed bool, err error) {
	if err := l.known(worker); err != nil {
		return false, err
	}
	if !l.table.Trust(worker) {
		return false, nil
	}
	l.log.Info("worker is no longer suspect: an operator trusts it", "worker", worker)
	return true, nil
}

// Undrain takes the worker back into the choice. changed tells whether it was drained.
func (l *Levers) Undrain(worker string) (changed bool, note string, err error) {
	l.mu.Lock()
	_, drained := l.drains[worker]
	delete(l.drains, worker)
	l.pulled[worker] = struct{}{}
	l.table.Drain(worker, false)
	l.mu.Unlock()
	if !drained {
		return false, "", l.known(worker)
	}
	l.log.Info("worker is no longer drained", "worker", worker)
	return true, l.save(), nil
}

// Drains returns the drains by worker.
func (l *Levers) Drains() map[string]Drain {
	l.mu.Lock()
	defer l.mu.Unlock()
	drains := make(map[string]Drain, len(l.drains))
	for worker, d := range l.drains {
		drains[worker] = Drain{Evict: d.evict, Evicted: d.evicted, Stuck: d.stuck}
	}
	return drains
}

// known returns an error that names the workers that are, unless this one is.
func (l *Levers) known(worker string) error {
	var names []string
	for _, s := range l.table.States() {
		names = append(names, s.Worker)
	}
	if slices.Contains(names, worker) {
		return nil
	}
	return fmt.Errorf("%w: %q; known are: %s", ErrUnknownWorker, worker, list(names))
}

// evict takes a node away from a drained worker, if one is due, and returns when the next
// one is. Levers.mu is held.
func (l *Levers) evict(worker string, d *drain, now time.Time) time.Time {
	if !d.pace.due(now) {
		return d.pace.next
	}
	m, ok := l.table.Evict(worker, now)
	d.stuck = !ok
	if !ok { // all are gone, or there is nowhere else for them
		d.pace.next = now.Add(max(lookInterval, d.pace.next.Sub(now)))
		return d.pace.next
	}
	d.evicted++
	l.evictions.WithLabelValues(worker).Inc()
	l.tell(m)
	l.log.Debug("node is taken away from a drained worker", "worker", worker, "domain", m.Domain, "key", m.Key)
	return d.pace.next
}

// save has the drains survive. It returns what an operator should know of that.
func (l *Levers) save() (note string) {
	if l.memory == nil {
		return "this will not survive a restart of the server: server.state_dir is not set"
	}
	l.saving.Lock()
	defer l.saving.Unlock()
	l.mu.Lock()
	evict := make(map[string]int, len(l.drains))
	for worker, d := range l.drains {
		evict[worker] = d.evict
	}
	l.mu.Unlock()
	if err := l.memory.SaveDrains(evict); err != nil {
		return fmt.Sprintf("this will not survive a restart of the server before the disk is well again: %v", err)
	}
	return ""
}

// load takes up the drains that are in the memory, as far as nothing else was decided
// since.
func (l *Levers) load() {
	if l.memory == nil {
		return
	}
	found, err := l.memory.Drains()
	if err != nil {
		l.log.Error("saved drains cannot be read: no worker is drained by them", "error", err)
		return
	}
	l.mu.Lock()
	maps.DeleteFunc(found, func(worker string, _ int) bool {
		_, pulled := l.pulled[worker]
		return pulled || l.drains[worker] != nil
	})
	for worker, evict := range found {
		l.drains[worker] = &drain{evict: evict, pace: pace{perMinute: evict}}
		l.table.Drain(worker, true)
	}
	l.mu.Unlock()
	for _, worker := range slices.Sorted(maps.Keys(found)) {
		l.log.Info("worker is drained, as before the restart", "worker", worker, "evicted_per_minute", found[worker])
	}
}

// DiskRestored is to be called when the disk can be written again after it could not. It
// does not wait for anything.
func (l *Levers) DiskRestored() {
	l.mu.Lock()
	l.restored = true
	l.mu.Unlock()
	l.signal()
}

// takeUpRestored takes up what is on a disk that is well again, and writes what is not.
func (l *Levers) takeUpRestored() {
	l.mu.Lock()
	restored := l.restored
	l.restored = false
	l.mu.Unlock()
	if restored {
		l.load()
		l.save() // if that fails, the disk will be restored once more
	}
}
