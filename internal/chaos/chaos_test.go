package chaos

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"wgsteer/internal/lab"
)

var (
	seed   = flag.Uint64("chaos.seed", 1, "what the faults follow from")
	rounds = flag.Int("chaos.rounds", len(kinds()), "how many faults to inject; the default is one of each kind")
)

func TestMain(m *testing.M) {
	lab.Main()
	goleak.VerifyTestMain(m)
}

// After every fault, all keys that were answered with 200 are complete on every gateway,
// nothing else of ours is there, nothing of others has changed, and tunnels that had
// nothing to do with the fault have not lost a ping.
func TestChaos(t *testing.T) {
	l := lab.ForTest(t, "nft", "nsenter")
	ctx := t.Context()
	m := newMesh(t, l)
	began := time.Now()
	schedule := newSchedule(*seed)
	total := newSummary()
	defer func() { say("%v", total.report(m, time.Since(began))) }()
	say("seed %d, %d rounds, WireGuard of the kernel: %v", *seed, *rounds, l.KernelWireGuard())
	for number := range *rounds {
		f := schedule.next()
		at := time.Since(began)
		m.client.allow(newKeysPerRound(*rounds))
		r, err := m.round(ctx, f)
		total.add(f, r)
		line := fmt.Sprintf("round %3d  %7.1fs  %-20s %s  held after %.2fs, %d keys, %d pings, of broken tunnels %d of %d lost",
			number+1, at.Seconds(), f.kind, f.params, r.took.Seconds(), m.client.answered(), r.pings, r.lost, r.broken)
		if err != nil {
			say("%s  FAILED", line)
			t.Fatalf("seed %d, round %d, %s %s: %v\n%s", *seed, number+1, f.kind, f.params, err, m.explain())
		}
		say("%s", line)
	}
	if err := m.finish(ctx); err != nil {
		t.Fatalf("at the end: %v", err)
	}
}

func TestTheFaultsFollowFromTheSeed(t *testing.T) {
	deal := func(seed uint64) (faults []string) {
		schedule := newSchedule(seed)
		for range 3 * len(kinds()) {
			f := schedule.next()
			faults = append(faults, f.kind+" "+f.params)
		}
		return faults
	}
	if diff := cmp.Diff(deal(3), deal(3)); diff != "" {
		t.Errorf("one seed, two schedules:\n%s", diff)
	}
	if slices.Equal(deal(3), deal(4)) {
		t.Error("two seeds, one schedule")
	}
}

// say prints a line at once, whatever flags the test runs with.
func say(format string, args ...any) {
	fmt.Println(strings.TrimRight(fmt.Sprintf(format, args...), "\n"))
}

// maxNewKeys bounds the keys of a long run, but for those of full disks and probes: userspace WireGuard, and the kernel's list of FDB
// entries, slow down with more.
const maxNewKeys = 1200

// newKeysPerRound is how many keys nobody has seen before a round may bring.
func newKeysPerRound(rounds int) int { return min(max(maxNewKeys/rounds, 2), 20) }

// result is what a round has shown.
type result struct {
	// took is the time from the end of the fault until the invariant held.
	took time.Duration
	// pings were sent meanwhile in tunnels that had to work: none of them was lost.
	pings int
	// broken were sent in tunnels that this or an earlier fault had broken, lost of them.
	broken, lost int
}

// injectWithin is longer than any fault lasts.
const injectWithin = time.Minute

// round injects a fault and waits for the invariant.
func (m *mesh) round(ctx context.Context, f fault) (r result, err error) {
	for _, n := range m.nodes {
		if f.disturbs != nil && f.disturbs(n) {
			n.recovering = time.Now()
		}
	}
	injectCtx, cancel := context.WithTimeout(ctx, injectWithin)
	defer cancel()
	if err := f.inject(injectCtx, m); err != nil {
		return r, fmt.Errorf("inject: %w", err)
	}
	healed := time.Now()
	m.client.probe()
	if r.took, err = m.awaitInvariant(ctx, f, healed); err != nil {
		return r, err
	}
	if err := m.countPings(ctx, &r); err != nil {
		return r, err
	}
	return r, m.client.problem()
}

// countPings counts the pings since it was last called. Tunnels that had to work must
// not have lost one.
func (m *mesh) countPings(ctx context.Context, r *result) error {
	for _, n := range m.nodes {
		from, to := n.counted, n.pings.last()
		n.counted = to
		if n.recovering.IsZero() {
			r.pings += to - from
			if err := n.lostNothing(ctx, from, to); err != nil {
				return err
			}
			continue
		}
		r.broken += to - from
		r.lost += n.pings.lost(from, to)
		if err := n.settle(to); err != nil {
			return err
		}
	}
	return nil
}

// polling is the time between two looks at the gateways.
const polling = 100 * time.Millisecond

// grace is how long a look goes on for after the bound, to tell what is late from what
// never comes.
const grace = 10 * time.Second

// awaitInvariant waits until the invariant holds. It returns how long after healed a
// look began that found it so.
func (m *mesh) awaitInvariant(ctx context.Context, f fault, healed time.Time) (time.Duration, error) {
	tick := time.NewTicker(polling)
	defer tick.Stop()
	for {
		began := time.Now()
		err := m.check(ctx)
		if err == nil && f.also != nil {
			err = f.also(ctx, m)
		}
		took := began.Sub(healed)
		switch {
		case err == nil && took <= f.bound:
			return took, nil
		case err == nil:
			return took, fmt.Errorf("the invariant held only after %v, want %v", took, f.bound)
		case took > f.bound+grace:
			return took, fmt.Errorf("the invariant does not hold %v after the fault, want %v: %w", took, f.bound, err)
		}
		if err := m.stillRunning(); err != nil {
			return took, err
		}
		select {
		case <-ctx.Done():
			return took, ctx.Err()
		case <-tick.C:
		}
	}
}
