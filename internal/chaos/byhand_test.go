package chaos

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"wgsteer/internal/lab"
)

// drawByHand draws an operator who deletes peers, routes and FDB entries of ours in one
// place, and makes routes and FDB entries that look like ours and belong to no key.
func drawByHand(rng *rand.Rand) fault {
	at, percent, choice := somewhere(rng), 5+rng.IntN(60), rng.Uint64()
	return fault{
		params:   fmt.Sprintf("%v, %d%% of the peers, routes and FDB entries", at, percent),
		bound:    byHandBound,
		disturbs: at.here,
		inject: func(ctx context.Context, m *mesh) error {
			due := m.client.due()[at.domain]
			return spoil(ctx, m.gateways[at.gateway].Host, segments()[at.domain], due, percent, rand.New(rand.NewPCG(choice, 0)))
		},
	}
}

func spoil(ctx context.Context, host *lab.Host, s lab.Segment, due map[string]string, percent int, rng *rand.Rand) error {
	peers := []string{"set", s.WireGuard}
	var routes, entries strings.Builder
	chosen := func() bool { return rng.IntN(100) < percent }
	for _, key := range slices.Sorted(maps.Keys(due)) {
		if chosen() {
			peers = append(peers, "peer", key, "remove")
		}
		if chosen() {
			fmt.Fprintf(&routes, "route del %s/128 dev %s\n", due[key], s.WireGuard)
		}
		if chosen() {
			fmt.Fprintf(&entries, "fdb del 00:00:00:00:00:00 dev %s dst %s via %s\n", s.VXLAN, due[key], s.WireGuard)
		}
	}
	for range 5 {
		nobody := schemeOf.LinkAddress(randomKey(rng))
		fmt.Fprintf(&routes, "route add %v/128 dev %s proto 119\n", nobody, s.WireGuard)
		fmt.Fprintf(&entries, "fdb append 00:00:00:00:00:00 dev %s dst %v via %s\n", s.VXLAN, nobody, s.WireGuard)
	}
	if len(peers) > 2 {
		if _, err := host.Run(ctx, "wg", peers...); err != nil {
			return err
		}
	}
	if err := batch(ctx, host, routes.String(), "ip", "-6", "-force", "-batch", "-"); err != nil {
		return err
	}
	return batch(ctx, host, entries.String(), "bridge", "-force", "-batch", "-")
}

// batch feeds lines to a tool. What the agent has put back in between, or not yet, is
// no error.
func batch(ctx context.Context, host *lab.Host, input, tool string, args ...string) error {
	cmd := host.Command(ctx, tool, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState.ExitCode() != 1 {
		return fmt.Errorf("%s on host %s: %w: %s", tool, host.Name(), err, out)
	}
	return nil
}
