package main

import (
	"context"
	"fmt"
	"io"

	"wgsteer/server/internal/admin"
)

type rebalanceCommand struct {
	DryRun bool `help:"Only say how many nodes would be moved from where to where." xor:"what"`
	Rate   int  `help:"How many nodes to move a minute. Default: ${default}." default:"60" placeholder:"RATE"`
	Stop   bool `help:"Stop the rebalancing that is under way." xor:"what"`
}

// Run does what the flags say.
func (c rebalanceCommand) Run(ctx context.Context, client *admin.Client, out io.Writer) error {
	switch {
	case c.DryRun:
		return c.preview(ctx, client, out)
	case c.Stop:
		j, err := client.StopRebalance(ctx)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "stopped; nodes moved: %d, left: %d\n", j.Moved, j.Left)
		return err
	}
	if _, err := client.StartRebalance(ctx, c.Rate); err != nil {
		return err
	}
	return follow(ctx, out, "the rebalancing goes on, \"wgsteer-server rebalance --stop\" ends it", func(ctx context.Context) (stand, error) {
		r, err := client.Rebalancing(ctx)
		if err != nil {
			return stand{}, err
		}
		return standOfJob(r.Last), nil
	})
}

// preview prints what would be moved.
func (rebalanceCommand) preview(ctx context.Context, client *admin.Client, out io.Writer) error {
	r, err := client.Rebalancing(ctx)
	if err != nil {
		return err
	}
	if len(r.Moves) == 0 {
		_, err := fmt.Fprintln(out, "every worker has its share, as far as nodes can be moved")
		return err
	}
	table := newTable(out, "DOMAIN", "FROM", "TO", "NODES")
	for _, m := range r.Moves {
		table.row(m.Domain, m.From, m.To, fmt.Sprint(m.Nodes))
	}
	return table.print()
}

// standOfJob says how far a rebalancing is.
func standOfJob(j *admin.Job) stand {
	switch {
	case j == nil:
		return stand{result: "the server was restarted, which ended the rebalancing", failed: true}
	case j.Running:
		line := fmt.Sprintf("%d moved, %d left", j.Moved, j.Left)
		if j.Waits {
			line += "; waiting to see those that were moved where they went"
		}
		return stand{line: line}
	case j.Failed:
		return stand{result: fmt.Sprintf("%s; nodes moved: %d, left: %d", j.Result, j.Moved, j.Left), failed: true}
	}
	return stand{result: fmt.Sprintf("%s; nodes moved: %d", j.Result, j.Moved)}
}
