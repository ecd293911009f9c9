package gateway

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"wgsteer/internal/config"
	"wgsteer/internal/peer"
)

// domain is one domain on this machine: its desired set, and the one goroutine that
// makes it true.
type domain struct {
	names  config.Domain
	agent  config.Agent
	kernel Kernel
	tell   func()
	// looked is called after the first look at the interfaces, and may be called again.
	looked func()
	log    *slog.Logger

	wake   chan struct{} // keys are pending
	events chan struct{} // interfaces may have changed

	mu         sync.Mutex
	pending    map[peer.Key]arrival // what is not yet in the desired set, or out of it
	evicted    evictions
	report     Report
	handshakes handshakes
	links      Links // as they were last seen

	// What follows belongs to the goroutine of run.
	desired  map[peer.Key]want
	due      due
	state    state
	trouble  trouble
	refusals map[refusal]uint64
	expelled int // evicted peers that are yet to be logged
}

// arrival is what was last received about a key, and when: that it is to be there, or evicted.
type arrival struct {
	at      time.Time
	evicted bool
}

// want is what the desired set knows of a key.
type want struct {
	address netip.Addr
	// added is when its peer was added or adopted, received when its node last asked.
	// received is zero for a peer that was only ever adopted.
	added, received time.Time
}

func newDomain(names config.Domain, agent config.Agent, kernel Kernel, tell, looked func(), log *slog.Logger) *domain {
	return &domain{
		names: names, agent: agent, kernel: kernel, tell: tell, looked: looked, log: log,
		wake: make(chan struct{}, 1), events: make(chan struct{}, 1),
		pending:    make(map[peer.Key]arrival),
		evicted:    make(evictions),
		handshakes: newHandshakes(),
		desired:    make(map[peer.Key]want),
		refusals:   make(map[refusal]uint64),
	}
}

// run works until ctx is done.
func (d *domain) run(ctx context.Context) error {
	defer d.looked() // nobody is to wait for a look that does not come
	d.due = newDue(time.Now(), d.agent)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-d.wake:
			d.apply(time.Now())
		case <-d.events:
			d.due.afterEvent(time.Now())
		case <-timer.C:
			d.work(time.Now())
		}
		timer.Reset(time.Until(d.due.next()))
	}
}

// work does what is due.
func (d *domain) work(now time.Time) {
	if !now.Before(d.due.reconcile) {
		d.reconcile(now)
	}
	if !now.Before(d.due.sweep) {
		d.due.sweep = now.Add(d.agent.SweepInterval)
		d.sweep(now)
	}
	if !now.Before(d.due.count) {
		d.due.count = now.Add(d.agent.ReportInterval)
		d.count(now)
		d.tellExpelled()
	}
	if d.due.glanceAt(now) {
		d.glance(now)
	}
}

// concerns tells whether a change is about an interface of the domain, or may be.
func (d *domain) concerns(change Change) bool {
	if change == (Change{}) || change.Name == d.names.WireGuard || change.Name == d.names.VXLAN {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return change.Index == d.links.WireGuard || change.Index == d.links.VXLAN
}
