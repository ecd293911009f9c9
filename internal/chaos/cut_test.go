package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// The directions in which a gateway's packets to and from the central host are dropped.
var directions = [...]string{"both ways", "to the server", "from the server"}

// drawCut draws a cut of the network between gateways and the central host: packets
// are dropped, connections are not closed. With a keepalive of two seconds, the longer
// ones are noticed and the shorter ones are not.
func drawCut(rng *rand.Rand) fault {
	cut, direction, lasts := some(rng), rng.IntN(len(directions)), between(rng, 300*time.Millisecond, 7*time.Second)
	return fault{
		params: fmt.Sprintf("%s %s for %v", names(cut), directions[direction], lasts),
		inject: func(ctx context.Context, m *mesh) error {
			for _, g := range cut {
				if err := m.cut(ctx, g, direction); err != nil {
					return err
				}
			}
			if err := pause(ctx, lasts); err != nil {
				return err
			}
			for _, g := range cut {
				if _, err := m.gateways[g].Run(ctx, "nft", "delete", "table", "inet", "chaos"); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func (m *mesh) cut(ctx context.Context, gateway, direction int) error {
	script := "table inet chaos {\n"
	if direction != 1 {
		script += fmt.Sprintf("chain in { type filter hook input priority 0; ip saddr %v drop; }\n", m.central.Addr())
	}
	if direction != 2 {
		script += fmt.Sprintf("chain out { type filter hook output priority 0; ip daddr %v drop; }\n", m.central.Addr())
	}
	_, err := m.gateways[gateway].Run(ctx, "nft", script+"}")
	return err
}
