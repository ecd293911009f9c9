package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"wgsteer/internal/lab"
)

// interfaceFault takes an interface away and makes it again.
func interfaceFault(rng *rand.Rand, away, back func(*lab.Gateway, context.Context) error) fault {
	at, lasts := somewhere(rng), between(rng, 0, 2*time.Second)
	return fault{
		params:   fmt.Sprintf("%v for %v", at, lasts),
		bound:    interfaceBound,
		disturbs: at.here,
		inject: func(ctx context.Context, m *mesh) error {
			g := m.gateways[at.gateway]
			if err := away(g.segments[at.domain], ctx); err != nil {
				return err
			}
			if err := pause(ctx, lasts); err != nil {
				return err
			}
			if err := back(g.segments[at.domain], ctx); err != nil {
				return err
			}
			return g.foreign[at.domain].restore(ctx)
		},
	}
}

func drawVXLAN(rng *rand.Rand) fault {
	return interfaceFault(rng, (*lab.Gateway).StopVXLAN, (*lab.Gateway).StartVXLAN)
}

func drawWireGuard(rng *rand.Rand) fault {
	return interfaceFault(rng, (*lab.Gateway).Stop, (*lab.Gateway).Start)
}

func drawWireGuardKill(rng *rand.Rand) fault {
	return interfaceFault(rng, killWireGuard, (*lab.Gateway).Start)
}

func killWireGuard(g *lab.Gateway, ctx context.Context) error { return g.WireGuard().Kill(ctx) }

// drawAgentless draws the same while the gateway's agent is dead: what it knew, and
// could have adopted, is gone when it comes back.
func drawAgentless(rng *rand.Rand) fault {
	at, lasts, kill := somewhere(rng), between(rng, 0, 2*time.Second), rng.IntN(2) == 0
	return fault{
		params:   fmt.Sprintf("%v for %v, agent killed: %v", at, lasts, kill),
		disturbs: at.here,
		inject: func(ctx context.Context, m *mesh) error {
			g := m.gateways[at.gateway]
			if err := g.agent.end(ctx, kill); err != nil {
				return err
			}
			if err := killWireGuard(g.segments[at.domain], ctx); err != nil {
				return err
			}
			if err := pause(ctx, lasts); err != nil {
				return err
			}
			if err := g.segments[at.domain].Start(ctx); err != nil {
				return err
			}
			if err := g.foreign[at.domain].restore(ctx); err != nil {
				return err
			}
			return g.agent.start(ctx)
		},
	}
}

// drawBlackout draws the end of everything: all programs are killed and all interfaces
// are gone. What is there afterwards comes from the server's disk.
func drawBlackout(rng *rand.Rand) fault {
	lasts, serverLast := between(rng, 0, 2*time.Second), rng.IntN(2) == 0
	return fault{
		params:   fmt.Sprintf("for %v, server starts last: %v", lasts, serverLast),
		disturbs: func(*node) bool { return true },
		inject: func(ctx context.Context, m *mesh) error {
			if err := m.powerOff(ctx); err != nil {
				return err
			}
			if err := pause(ctx, lasts); err != nil {
				return err
			}
			return m.powerOn(ctx, serverLast)
		},
	}
}

// powerOff kills the server first: what it was answering then must be on disk.
func (m *mesh) powerOff(ctx context.Context) error {
	if err := m.server.kill(); err != nil {
		return err
	}
	var group errgroup.Group
	for _, g := range m.gateways {
		group.Go(func() error {
			if err := g.agent.kill(); err != nil {
				return err
			}
			for _, s := range g.segments {
				if err := killWireGuard(s, ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

func (m *mesh) powerOn(ctx context.Context, serverLast bool) error {
	if !serverLast {
		if err := m.server.start(ctx); err != nil {
			return err
		}
	}
	var group errgroup.Group
	for _, g := range m.gateways {
		group.Go(func() error {
			for d, s := range g.segments {
				if err := s.Start(ctx); err != nil {
					return err
				}
				if err := g.foreign[d].restore(ctx); err != nil {
					return err
				}
			}
			return g.agent.start(ctx)
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if !serverLast {
		return nil
	}
	if err := m.server.start(ctx); err != nil {
		return err
	}
	return m.awaitAnswer(ctx, false)
}
