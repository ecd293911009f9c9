package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"wgsteer/server/internal/admin"
)

type drainCommand struct {
	Worker string `arg:"" help:"The worker's name, as \"workers\" shows it."`
	Evict  int    `help:"Also take so many of its nodes away from it a minute, which then go elsewhere, and wait until it is empty. The server goes on with it without this command." placeholder:"RATE"`
	Force  bool   `help:"Drain a worker that the server does not know: it may be yet to come."`
}

// Run drains a worker, and waits for it to be empty if nodes are taken away from it.
func (c drainCommand) Run(ctx context.Context, client *admin.Client, out io.Writer) error {
	done, err := client.Drain(ctx, c.Worker, c.Evict, c.Force)
	if err != nil {
		return err
	}
	if err := say(out, c.Worker+" is drained: it gets no new nodes", done.Note); err != nil {
		return err
	}
	if c.Evict == 0 {
		return nil
	}
	return follow(ctx, out, "the drain stays in force, \"wgsteer-server undrain "+c.Worker+"\" ends it", c.look(client))
}

// look returns what looks how far the worker is.
func (c drainCommand) look(client *admin.Client) func(context.Context) (stand, error) {
	return func(ctx context.Context) (stand, error) {
		workers, err := client.Workers(ctx)
		if err != nil {
			return stand{}, err
		}
		i := slices.IndexFunc(workers, func(w admin.Worker) bool { return w.Worker == c.Worker })
		if i < 0 || !workers[i].Drained {
			return stand{result: fmt.Sprintf("%s is no longer drained, by somebody else", c.Worker), failed: true}, nil
		}
		return standOf(workers[i]), nil
	}
}

// standOf says how far a worker is from being empty.
func standOf(w admin.Worker) stand {
	switch {
	case w.Empty():
		return stand{result: fmt.Sprintf("%s is empty; nodes taken away from it: %d", w.Worker, w.Evicted)}
	case w.Online && !w.Tells && w.Reported > 0:
		return stand{failed: true, result: fmt.Sprintf("%s does not tell which nodes are connected, as Python workers do not: "+
			"none of its %d can be taken away from it; it stays drained", w.Worker, w.Reported)}
	}
	line := fmt.Sprintf("%s: %d connected, %d on their way, %d taken away", w.Worker, w.Reported, max(w.InFlight, 0), w.Evicted)
	switch {
	case !w.Online:
		line += "; it is offline"
	case w.Stuck:
		line += "; none can go now: no other worker has their domain, or they are gone and that is yet to be reported"
	}
	return stand{line: line}
}

type undrainCommand struct {
	Worker string `arg:"" help:"The worker's name, as \"workers\" shows it."`
}

// Run ends the drain of a worker.
func (c undrainCommand) Run(ctx context.Context, client *admin.Client, out io.Writer) error {
	done, err := client.Undrain(ctx, c.Worker)
	if err != nil {
		return err
	}
	if !done.Changed {
		return say(out, c.Worker+" was not drained", "")
	}
	return say(out, c.Worker+" is no longer drained: it gets new nodes", done.Note)
}

// say prints what was done, and what an operator should know of it.
func say(out io.Writer, what, note string) error {
	if note != "" {
		what += "; but " + note
	}
	_, err := fmt.Fprintln(out, what)
	return err
}
