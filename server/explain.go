package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"wgsteer/server/internal/admin"
)

type explainCommand struct {
	Domain   string `arg:"" help:"The domain that the node asks for."`
	Key      string `arg:"" optional:"" help:"The node's public key. Without one: a node that was never heard of."`
	Location string `help:"Where the node prefers its worker to be." placeholder:"LOCATION"`
}

// Run prints how the next choice comes about.
func (c explainCommand) Run(ctx context.Context, client *admin.Client, out io.Writer) error {
	e, err := client.Explain(ctx, c.Domain, c.Key, c.Location)
	if err != nil {
		return err
	}
	table := newTable(out, "WORKER", "LOCATION", "WEIGHT", "REPORTED", "IN FLIGHT", "TARGET", "DIFF", "HEALTH", "EXCLUDED")
	for _, w := range e.Candidates {
		table.row(w.Worker, w.Location, strconv.FormatUint(uint64(w.Weight), 10), strconv.Itoa(w.Reported), strconv.Itoa(w.InFlight),
			number("%.1f", w.Target), number("%+.1f", w.Diff), w.Health, w.Excluded)
	}
	if err := table.print(); err != nil {
		return err
	}
	if e.Note != "" {
		if _, err := fmt.Fprintln(out, e.Note); err != nil {
			return err
		}
	}
	if e.Chosen == "" {
		_, err = fmt.Fprintf(out, "no worker offers %s: its nodes are told to ask again later\n", c.Domain)
		return err
	}
	_, err = fmt.Fprintf(out, "%s would be chosen: %s\n", e.Chosen, e.Reason)
	return err
}

// number writes a number that may not be there.
func number(format string, n *float64) string {
	if n == nil {
		return ""
	}
	return fmt.Sprintf(format, *n)
}

// table is text in columns.
type table struct{ *tabwriter.Writer }

func newTable(out io.Writer, titles ...string) table {
	t := table{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	t.row(titles...)
	return t
}

// row adds a row. What is empty is a dash: every column has something to be found by.
func (t table) row(cells ...string) {
	for i, cell := range cells {
		if cell == "" {
			cell = "-"
		}
		if i > 0 {
			fmt.Fprint(t, "\t")
		}
		fmt.Fprint(t, cell)
	}
	fmt.Fprintln(t)
}

// print writes the table, with the error of any write.
func (t table) print() error { return t.Flush() }
