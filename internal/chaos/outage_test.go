package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// outage ends a program and starts it again.
type outage struct {
	gateway int // whose agent; theServer: the server
	kill    bool
	at      time.Duration // since the fault began
	down    time.Duration
	// steers tells whether a server that is started again has to send nodes to gateways
	// with its first answer: all agents were up when it ended.
	steers bool
}

// theServer stands in for a gateway's index.
const theServer = -1

func drawOutage(rng *rand.Rand, gateway int, at time.Duration) outage {
	return outage{gateway: gateway, kill: rng.IntN(3) > 0, at: at, down: between(rng, 0, 2500*time.Millisecond)}
}

func (o outage) String() string {
	who, how := "server", "TERM"
	if o.gateway != theServer {
		who = gatewayName(o.gateway)
	}
	if o.kill {
		how = "KILL"
	}
	return fmt.Sprintf("%s %s at %v for %v", who, how, o.at, o.down)
}

func (o outage) run(ctx context.Context, m *mesh) error {
	p := m.server
	if o.gateway != theServer {
		p = m.gateways[o.gateway].agent
	}
	if err := pause(ctx, o.at); err != nil {
		return err
	}
	if err := p.end(ctx, o.kill); err != nil {
		return err
	}
	if err := pause(ctx, o.down); err != nil {
		return err
	}
	if err := p.start(ctx); err != nil {
		return err
	}
	if o.gateway == theServer {
		return m.awaitAnswer(ctx, o.steers)
	}
	return nil
}

// outages are a fault of some programs.
func outages(all ...outage) fault {
	var texts []string
	for _, o := range all {
		texts = append(texts, o.String())
	}
	return fault{
		params: strings.Join(texts, ", "),
		inject: func(ctx context.Context, m *mesh) error {
			group, ctx := errgroup.WithContext(ctx)
			for _, o := range all {
				group.Go(func() error { return o.run(ctx, m) })
			}
			return group.Wait()
		},
	}
}

func drawServer(rng *rand.Rand) fault {
	o := drawOutage(rng, theServer, 0)
	o.steers = true
	return outages(o)
}

func drawAgents(rng *rand.Rand) fault {
	var all []outage
	for _, g := range some(rng) {
		all = append(all, drawOutage(rng, g, between(rng, 0, time.Second)))
	}
	return outages(all...)
}

func drawBoth(rng *rand.Rand) fault {
	all := []outage{drawOutage(rng, theServer, between(rng, 0, time.Second))}
	for _, g := range some(rng) {
		all = append(all, drawOutage(rng, g, between(rng, 0, time.Second)))
	}
	return outages(all...)
}

// drawCutAndOutages draws programs that end and start while the network is cut.
func drawCutAndOutages(rng *rand.Rand) fault {
	cut, both := drawCut(rng), drawBoth(rng)
	return fault{
		params: cut.params + ", " + both.params,
		inject: func(ctx context.Context, m *mesh) error {
			group, ctx := errgroup.WithContext(ctx)
			group.Go(func() error { return cut.inject(ctx, m) })
			group.Go(func() error { return both.inject(ctx, m) })
			return group.Wait()
		},
	}
}

// answersWithin bounds how long a server that was started takes to answer an exchange:
// a second, and as much for a machine that is busy and programs that look for races.
const answersWithin = 2 * time.Second

// awaitAnswer waits until a server that was started now answers exchanges, from what it
// knew before. When it steers, the answer has to be a gateway.
func (m *mesh) awaitAnswer(ctx context.Context, steers bool) error {
	began := time.Now()
	for {
		status, body, err := m.client.send(ctx, 2, entry{m.nodes[0].place.domain, m.nodes[0].Key()})
		took := time.Since(began)
		if err == nil && steers && status != http.StatusOK {
			return fmt.Errorf("the first answer of the server after its start is %d: %s", status, body)
		}
		if err == nil && took <= answersWithin {
			m.noteStart(took)
			return nil
		}
		if took > answersWithin {
			return fmt.Errorf("the server does not answer %v after its start, want %v: %w", took, answersWithin, err)
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}
