package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"wgsteer/server/internal/admin"
)

type workersCommand struct{}

// Run prints what is known of the workers.
func (workersCommand) Run(ctx context.Context, client *admin.Client, out io.Writer) error {
	workers, err := client.Workers(ctx)
	if err != nil {
		return err
	}
	if len(workers) == 0 {
		_, err := fmt.Fprintln(out, "no worker is configured, and none was ever heard of")
		return err
	}
	table := newTable(out, "WORKER", "LOCATION", "WEIGHT", "REPORTED", "IN FLIGHT", "HEALTH", "EVICTED", "DOMAINS")
	for _, w := range workers {
		table.row(w.Worker, w.Location, strconv.FormatUint(uint64(w.Weight), 10), strconv.Itoa(w.Reported), strconv.Itoa(w.InFlight),
			w.Health, evicted(w), strings.Join(w.Domains, ", "))
	}
	return table.print()
}

// evicted says how many nodes are taken away from a worker.
func evicted(w admin.Worker) string {
	if w.Evict == 0 {
		return ""
	}
	return fmt.Sprintf("%d, at %d a minute", w.Evicted, w.Evict)
}
