package gateway

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"wgsteer/internal/config"
	"wgsteer/internal/peer"
	"wgsteer/internal/report"
)

// Gateway is this machine's part in every configured domain.
type Gateway struct {
	kernel  Kernel
	domains map[string]*domain
	changed chan struct{}
	// looked is closed when every domain has looked at its interfaces.
	looked   chan struct{}
	unlooked sync.WaitGroup
}

// Report is what a gateway has to say about one of its domains. The zero Report
// offers nothing.
type Report struct {
	// Offered tells whether nodes can be sent here. The other fields are only
	// meaningful then.
	Offered bool
	// Data is how nodes reach the domain here.
	Data report.Data
	// Connected is the number of connected peers, as counted at Counted: when the
	// domain began to be offered, and once per report interval since.
	Connected int
	Counted   time.Time
}

// New returns the gateway for the config's domains. Nothing is read or changed before Run.
func New(cfg *config.Config, kernel Kernel, log *slog.Logger) *Gateway {
	g := &Gateway{
		kernel:  kernel,
		domains: make(map[string]*domain, len(cfg.Domains)),
		changed: make(chan struct{}, 1),
		looked:  make(chan struct{}),
	}
	g.unlooked.Add(len(cfg.Domains))
	for _, d := range cfg.Domains {
		g.domains[d.Name] = newDomain(d, cfg.Agent, kernel, g.tell, sync.OnceFunc(g.unlooked.Done), log.With("domain", d.Name))
	}
	return g
}

// Run keeps every domain as it should be until ctx is done. What is in the kernel then
// stays there, so that tunnels keep running without the agent.
func (g *Gateway) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.kernel.Watch(ctx, g.look) })
	for _, d := range g.domains {
		group.Go(func() error { return d.run(ctx) })
	}
	group.Go(func() error {
		g.unlooked.Wait() // each domain looks before anything else
		close(g.looked)
		return nil
	})
	return group.Wait()
}

// Origin is why a key comes.
type Origin uint8

const (
	// FromExchange is a key whose node has just asked, and is about to connect to this
	// gateway or another.
	FromExchange Origin = iota + 1
	// FromReplay is a key that the server knows from before.
	FromReplay
)

// Add makes the key one that the domain should have, unless it was evicted and its node
// has not asked since. It does not wait for that to become true, and keeps trying until
// it is. A domain that is not configured is ignored.
func (g *Gateway) Add(domain string, key peer.Key, origin Origin) {
	if d := g.domains[domain]; d != nil {
		d.add(key, origin)
	}
}

// Evict takes keys out of the domain, and keeps them out until their nodes ask again,
// the next session begins, or an hour has passed. It does not wait for that to become
// true, and keeps trying until it is. A domain that is not configured is ignored.
func (g *Gateway) Evict(domain string, keys []peer.Key) {
	if d := g.domains[domain]; d != nil {
		d.evict(keys)
	}
}

// Report returns what there is to say about the domain now.
func (g *Gateway) Report(domain string) Report {
	if d := g.domains[domain]; d != nil {
		return d.latest()
	}
	return Report{}
}

// Looked is closed when Run has looked at the interfaces of every domain: before, a
// Report offers nothing because nothing is known.
func (g *Gateway) Looked() <-chan struct{} { return g.looked }

// Changed is signalled after any domain's Report changed. One signal can stand for
// many changes.
func (g *Gateway) Changed() <-chan struct{} { return g.changed }

func (g *Gateway) tell() { signal(g.changed) }

// look makes the domains that a change is about look at their interfaces.
func (g *Gateway) look(change Change) {
	for _, d := range g.domains {
		if d.concerns(change) {
			signal(d.events)
		}
	}
}

// signal wakes the reader of a channel of capacity one, unless that is pending already.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
