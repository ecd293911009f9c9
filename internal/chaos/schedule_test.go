package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// fault is what is done to the mesh in one round. All its parameters are known before
// the round begins.
type fault struct {
	kind, params string
	// bound is how long after the fault the invariant may take to hold.
	bound time.Duration
	// disturbs tells which nodes' tunnels the fault breaks; nil: none.
	disturbs func(*node) bool
	// inject returns when the fault is over.
	inject func(context.Context, *mesh) error
	// also has to hold with the invariant; nil: nothing.
	also func(context.Context, *mesh) error
}

const (
	// bound holds for all faults but those below.
	bound = 10 * time.Second
	// interfaceBound is for interfaces that come back.
	interfaceBound = 2 * time.Second
	// byHandBound is for what no event tells the agent of.
	byHandBound = 30 * time.Second
)

// kind is a kind of fault.
type kind struct {
	name string
	// cards is how often it is in a deck.
	cards int
	draw  func(*rand.Rand) fault
}

func kinds() []kind {
	return []kind{
		{"server", 3, drawServer},
		{"agents", 2, drawAgents},
		{"server and agents", 4, drawBoth},
		{"network cut", 4, drawCut},
		{"cut and outages", 2, drawCutAndOutages},
		{"vxlan deleted", 1, drawVXLAN},
		{"wireguard deleted", 1, drawWireGuard},
		{"wireguard killed", 1, drawWireGuardKill},
		{"agentless interface", 1, drawAgentless},
		{"blackout", 1, drawBlackout},
		{"disk full", 2, drawDisk},
		{"duplicate client id", 2, drawDuplicate},
		{"mqtt flood", 1, drawMQTTFlood},
		{"http flood", 1, drawHTTPFlood},
		{"by hand", 1, drawByHand},
	}
}

// schedule deals faults. What it deals follows from its seed alone.
type schedule struct {
	rng  *rand.Rand
	deck []kind
}

// newSchedule returns a schedule whose first deck has one card of each kind.
func newSchedule(seed uint64) *schedule {
	s := &schedule{rng: rand.New(rand.NewPCG(seed, 0))}
	s.shuffle(func(kind) int { return 1 })
	return s
}

func (s *schedule) shuffle(cards func(kind) int) {
	for _, k := range kinds() {
		for range cards(k) {
			s.deck = append(s.deck, k)
		}
	}
	s.rng.Shuffle(len(s.deck), func(i, j int) { s.deck[i], s.deck[j] = s.deck[j], s.deck[i] })
}

func (s *schedule) next() fault {
	if len(s.deck) == 0 {
		s.shuffle(func(k kind) int { return k.cards })
	}
	k := s.deck[0]
	s.deck = s.deck[1:]
	// Each fault has a stream of its own, so that a change of one does not change those
	// that follow.
	f := k.draw(rand.New(rand.NewPCG(s.rng.Uint64(), 0)))
	f.kind = k.name
	if f.bound == 0 {
		f.bound = bound
	}
	return f
}

// between draws a duration, in whole milliseconds.
func between(rng *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(rng.Int64N(int64((high-low)/time.Millisecond)+1))*time.Millisecond
}

// some draws one or more of the gateways, by their indexes.
func some(rng *rand.Rand) []int {
	return rng.Perm(gatewayCount)[:1+rng.IntN(gatewayCount)]
}

// place is one domain on one gateway, by their indexes.
type place struct{ gateway, domain int }

func somewhere(rng *rand.Rand) place {
	return place{rng.IntN(gatewayCount), rng.IntN(len(segments()))}
}

func (p place) String() string {
	return fmt.Sprintf("%s %s", gatewayName(p.gateway), segments()[p.domain].WireGuard)
}

// here tells whether a node has its tunnel to that place.
func (p place) here(n *node) bool { return n.place == p }

func names(gateways []int) string {
	var all []string
	for _, g := range gateways {
		all = append(all, gatewayName(g))
	}
	return strings.Join(all, ",")
}

// pause waits for a drawn duration: it paces faults, and waits for nothing.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
