package main

import (
	"container/heap"
	"time"
)

// epoch is when every simulation begins. It is any date: nothing depends on it.
var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// clock is virtual time: it jumps from one event to the next.
type clock struct {
	now    time.Duration // since epoch
	events events
	made   int
}

// event is something that happens at a time. Of two at the same time the one that was
// planned first happens first, so that every run is the same.
type event struct {
	at   time.Duration
	made int
	do   func()
}

// at plans an event. One in the past happens now.
func (c *clock) at(t time.Duration, do func()) {
	c.made++
	heap.Push(&c.events, event{max(t, c.now), c.made, do})
}

func (c *clock) after(d time.Duration, do func()) { c.at(c.now+d, do) }

// every has something happen again and again, from a time on.
func (c *clock) every(from, interval time.Duration, do func()) {
	c.at(from, func() {
		do()
		c.every(from+interval, interval, do)
	})
}

// run lets time pass until the end.
func (c *clock) run(end time.Duration) {
	for len(c.events) > 0 && c.events[0].at <= end {
		e := heap.Pop(&c.events).(event)
		c.now = e.at
		e.do()
	}
	c.now = end
}

// time is what the server's clock shows.
func (c *clock) time() time.Time { return epoch.Add(c.now) }

// events is a heap, the next event first.
type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at < e[j].at || e[i].at == e[j].at && e[i].made < e[j].made
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	(*e)[len(*e)-1] = event{} // or it would keep what it refers to
	*e = (*e)[:len(*e)-1]
	return last
}
