package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"wgsteer/loadbalance"
)

// report prints what came of it all. The error says that a node has no tunnel, or
// that the shares are not what the weights say.
func (d *demo) report() error {
	standings := loadbalance.Explain(d.candidates())
	fmt.Fprintln(d.out)
	printNodes(d.out, d.nodes, func(n *node) string { return d.cfg.Domains[n.domain].Name })
	fmt.Fprintln(d.out)
	printWorkers(d.out, standings)
	fmt.Fprintln(d.out)
	return errors.Join(d.failures(), verdict(d.out, standings))
}

// candidates are the workers with the nodes that have a tunnel to them.
func (d *demo) candidates() []loadbalance.Candidate {
	var candidates []loadbalance.Candidate
	for _, g := range d.gateways {
		c := loadbalance.Candidate{Name: g.Name(), Weight: d.cfg.Weight(g.Name())}
		for _, n := range d.nodes {
			if n.err == nil && n.worker == c.Name {
				c.Peers++
			}
		}
		candidates = append(candidates, c)
	}
	return candidates
}

func (d *demo) failures() error {
	var errs []error
	for _, n := range d.nodes {
		if n.err != nil {
			errs = append(errs, fmt.Errorf("%s has no tunnel: %w", n.Name(), n.err))
		}
	}
	return errors.Join(errs...)
}

// printNodes prints a line for each node.
func printNodes(out io.Writer, nodes []*node, domainOf func(*node) string) {
	table := newTable(out)
	fmt.Fprintln(table, "NODE\tDOMAIN\tWORKER\tPOST TO HANDSHAKE\tPING\t")
	for _, n := range nodes {
		result := fmt.Sprintf("%v\t%v", n.handshake.Round(time.Millisecond), n.ping.Round(10*time.Microsecond))
		if n.err != nil {
			result = "failed\t"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t\n", n.Name(), domainOf(n), n.worker, result)
	}
	table.Flush()
}

// printWorkers prints a line for each worker.
func printWorkers(out io.Writer, standings []loadbalance.Standing) {
	table := newTable(out)
	fmt.Fprintln(table, "WORKER\tWEIGHT\tTARGET\tPEERS\tDIFF\t")
	for _, s := range standings {
		fmt.Fprintf(table, "%s\t%d\t%.1f\t%d\t%+.1f\t\n", s.Name, s.Weight, s.Target, s.Peers, s.Diff)
	}
	table.Flush()
}

func newTable(out io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
}

// tolerance is how many peers a worker may be away from its target.
const tolerance = 1

// verdict says in one line whether the shares match the weights.
func verdict(out io.Writer, standings []loadbalance.Standing) error {
	var peers uint32
	worst := standings[0]
	for _, s := range standings {
		peers += s.Peers
		if math.Abs(s.Diff) > math.Abs(worst.Diff) {
			worst = s
		}
	}
	if peers == 0 {
		return errors.New("no worker has a peer")
	}
	if math.Abs(worst.Diff) > tolerance {
		return fmt.Errorf("the shares do not match the weights: %s has %d peers, its target is %.1f", worst.Name, worst.Peers, worst.Target)
	}
	fmt.Fprintln(out, "The shares match the weights: every worker is within one peer of its target.")
	return nil
}

// printTour says how to look around in a mesh that is kept.
func (d *demo) printTour(self string) {
	first, last := d.nodes[0], d.nodes[len(d.nodes)-1]
	domain, gw := d.cfg.Domains[first.domain], d.gateways[0].Name()
	fmt.Fprintf(d.out, "\nThe mesh stays up. To look around in it, as root:\n\n")
	table := newTable(d.out)
	for _, tip := range []struct{ host, command, about string }{
		{gw, "wg show", "a gateway's peers"},
		{gw, "bridge fdb show dev " + domain.VXLAN, "where its VXLAN sends broadcasts"},
		{gw, "ip -6 route show dev " + domain.WireGuard, "its routes to nodes"},
		{first.Name(), "ping " + d.innerOf(first), "from a node to its gateway, through the tunnel"},
		{centralName, "wgsteer-server workers", "what the server knows of the gateways"},
		{centralName, "wgsteer-server explain " + domain.Name, "where the next node would be sent, and why"},
		{centralName, "bash", "a shell on the central host"},
	} {
		fmt.Fprintf(table, "  %s exec %s -- %s\t# %s\n", self, tip.host, tip.command, tip.about)
	}
	fmt.Fprintf(table, "  %s clean\t# remove it all\n", self)
	table.Flush()
	fmt.Fprint(d.out, "\nUnlike routers, these nodes ask once and do not look after their tunnels: one that is taken\n"+
		"away from its gateway (drain --evict, rebalance) stays without a tunnel.\n")
	fmt.Fprintf(d.out, "\nHosts: %s, %s, %s to %s. Their configs and logs are in %s.\n",
		centralName, strings.Join(gateways(), ", "), first.Name(), last.Name(), filepath.Join(d.lab.Folder(), "hosts"))
}

// innerOf is the address of the node's gateway inside of the tunnel.
func (d *demo) innerOf(n *node) string {
	for _, g := range d.gateways {
		if g.Name() == n.worker {
			return g.segments[n.domain].Inner().String()
		}
	}
	return ""
}
