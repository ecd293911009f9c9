package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

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

// tellsWithin is how long a worker may be online before it has told which nodes are
// connected: after a restart of the server, it is taken to be before it is back.
const tellsWithin = 40 * time.Second

// look returns what looks how far the worker is.
func (c drainCommand) look(client *admin.Client) func(context.Context) (stand, error) {
	var untold time.Time // since when it has not told; zero: it has
	return func(ctx context.Context) (stand, error) {
		workers, err := client.Workers(ctx)
		if err != nil {
			return stand{}, err
		}
		i := slices.IndexFunc(workers, func(w admin.Worker) bool { return w.Worker == c.Worker })
		if i < 0 || !workers[i].Drained {
			return stand{result: fmt.Sprintf("%s is no longer drained, by somebody else", c.Worker), failed: true}, nil
		}
		w := workers[i]
		switch {
		case w.Tells || !w.Online || w.Reported == 0:
			untold = time.Time{}
		case untold.IsZero():
			untold = time.Now()
		}
		return standOf(w, !untold.IsZero() && time.Since(untold) >= tellsWithin), nil
	}
}

// standOf says how far a worker is from being empty. dumb tells whether it has had the time
// to tell which nodes are connected, and has not.
func standOf(w admin.Worker, dumb bool) stand {
	switch {
	case w.Empty():
		return stand{result: fmt.Sprintf("%s is empty; nodes taken away from it: %d; when it is to have nodes again: wgsteer-server undrain %s", w.Worker, w.Evicted, w.Worker)}
	case dumb:
		return stand{failed: true, result: fmt.Sprintf("%s does not tell which nodes are connected, as Python workers do not: "+
			"none of its %d can be taken away from it; it stays drained", w.Worker, w.Reported)}
	}
	line := fmt.Sprintf("%s: %d connected, %d on their way, %d taken away", w.Worker, w.Reported, max(w.InFlight, 0), w.Evicted)
	switch {
	case !w.Online:
		line += "; it is offline"
	case !w.Tells && w.Reported > 0:
		line += "; it has yet to tell which nodes are connected"
	case w.Stuck:
		line += "; none can go now: no other worker for their domain is healthy and not drained, or they are gone and that is yet to be reported"
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

type trustCommand struct {
	Worker string `arg:"" help:"The worker's name, as \"workers\" shows it."`
}

// Run ends the suspicion of a worker.
func (c trustCommand) Run(ctx context.Context, client *admin.Client, out io.Writer) error {
	done, err := client.Trust(ctx, c.Worker)
	if err != nil {
		return err
	}
	if !done.Changed {
		return say(out, c.Worker+" was not suspect", "")
	}
	return say(out, c.Worker+" is trusted again: it gets nodes until they fail there again", "")
}

// say prints what was done, and what an operator should know of it.
func say(out io.Writer, what, note string) error {
	if note != "" {
		what += "; but " + note
	}
	_, err := fmt.Fprintln(out, what)
	return err
}
