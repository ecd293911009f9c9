package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"golang.org/x/sync/errgroup"

	"wgsteer/internal/lab"
	"wgsteer/internal/peer"
)

// dump is what the system's own tools say about a domain's interfaces, by line.
type dump struct{ peers, routes, entries []string }

// takeDumps reads all domains of a gateway with one command.
func takeDumps(ctx context.Context, host *lab.Host, segments []lab.Segment) ([]dump, error) {
	const separator = "--"
	script := "set -e\n"
	for _, s := range segments {
		script += fmt.Sprintf("wg show %[1]s allowed-ips\necho %[3]s\nip -6 route show dev %[1]s\necho %[3]s\nbridge fdb show dev %[2]s\necho %[3]s\n",
			s.WireGuard, s.VXLAN, separator)
	}
	text, err := host.Run(ctx, "sh", "-c", script)
	if err != nil {
		return nil, err
	}
	parts := strings.Split(text, separator+"\n")
	if len(parts) != 3*len(segments)+1 {
		return nil, fmt.Errorf("the dump of %s has %d parts", host.Name(), len(parts))
	}
	dumps := make([]dump, len(segments))
	for i := range dumps {
		dumps[i] = dump{lines(parts[3*i]), lines(parts[3*i+1]), lines(parts[3*i+2])}
	}
	return dumps, nil
}

func lines(text string) []string {
	var all []string
	for line := range strings.Lines(text) {
		all = append(all, strings.TrimSpace(line))
	}
	return all
}

// check returns an error unless the invariant holds: every key that was answered with
// 200 is complete on every gateway, nothing else of ours is there, what is foreign is
// untouched, all exchanges are answered, and all workers are online.
func (m *mesh) check(ctx context.Context) error {
	if waiting := m.client.waiting(); waiting > 0 {
		return fmt.Errorf("%d exchanges are not answered with 200", waiting)
	}
	due := m.client.due()
	dumps := make([][]dump, len(m.gateways))
	var group errgroup.Group
	for i, g := range m.gateways {
		group.Go(func() (err error) {
			dumps[i], err = takeDumps(ctx, g.Host, segments())
			return err
		})
	}
	group.Go(func() error { return m.offered(ctx) })
	if err := group.Wait(); err != nil {
		return err
	}
	possible := m.client.possible()
	var errs []error
	for i, g := range m.gateways {
		for d, s := range segments() {
			c := comparison{segment: s, due: due[d], possible: possible[d], foreign: g.foreign[d].there}
			if err := c.run(dumps[i][d]); err != nil {
				errs = append(errs, fmt.Errorf("%s %s: %w", g.Name(), s.WireGuard, err))
			}
		}
	}
	return errors.Join(errs...)
}

// comparison compares a dump with what should be there.
type comparison struct {
	segment  lab.Segment
	due      map[string]string // addresses by key
	possible map[string]bool   // addresses
	foreign  dump

	problems []string
}

func (c *comparison) run(got dump) error {
	c.sameForeign(got)
	// The address of every thing of ours, and how often it is there.
	peers, routes, entries := c.ourPeers(got.peers), c.ourRoutes(got.routes), c.ourEntries(got.entries)
	for what, there := range map[string]map[string]int{"peer": peers, "route": routes, "FDB entry": entries} {
		for _, address := range c.due {
			switch there[address] {
			case 1:
			case 0:
				c.complain("%s of %s is missing", what, address)
			default:
				c.complain("%s of %s is there more than once", what, address)
			}
		}
		for address := range there {
			if !c.possible[address] {
				c.complain("%s of %s is left over", what, address)
			}
		}
	}
	if len(c.problems) == 0 {
		return nil
	}
	const shown = 3
	return fmt.Errorf("%d problems (%d keys): %s", len(c.problems), len(c.due), strings.Join(c.problems[:min(shown, len(c.problems))], "; "))
}

func (c *comparison) complain(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

func (c *comparison) sameForeign(got dump) {
	for _, pair := range [][2][]string{
		{c.foreign.peers, got.peers}, {c.foreign.routes, got.routes}, {c.foreign.entries, got.entries},
	} {
		there := set(pair[1])
		for _, line := range pair[0] {
			if !there[line] {
				c.complain("foreign %q is gone", line)
			}
		}
	}
}

func set(lines []string) map[string]bool {
	all := make(map[string]bool, len(lines))
	for _, line := range lines {
		all[line] = true
	}
	return all
}

// ourPeers complains about peers that are neither foreign nor as ours have to be.
func (c *comparison) ourPeers(lines []string) map[string]int {
	foreign, ours := set(c.foreign.peers), make(map[string]int)
	for _, line := range lines {
		if foreign[line] {
			continue
		}
		text, allowed, _ := strings.Cut(line, "\t")
		key, err := peer.ParseKey(text)
		if err != nil {
			c.complain("peer %q: %v", line, err)
			continue
		}
		address := schemeOf.LinkAddress(key).String()
		if allowed != address+"/128" {
			c.complain("peer of %s has the allowed IPs %q", address, allowed)
		}
		ours[address]++
	}
	return ours
}

// ourRoutes are the routes with our protocol number.
func (c *comparison) ourRoutes(lines []string) map[string]int {
	ours := make(map[string]int)
	for _, line := range lines {
		if address, _, _ := strings.Cut(line, " "); strings.Contains(line, " proto 119 ") {
			ours[address]++
		}
	}
	return ours
}

// ourEntries are the FDB entries that flood to the address of a node.
func (c *comparison) ourEntries(lines []string) map[string]int {
	foreign, ours := set(c.foreign.entries), make(map[string]int)
	for _, line := range lines {
		rest, flood := strings.CutPrefix(line, "00:00:00:00:00:00 dst ")
		if !flood || foreign[line] {
			continue
		}
		address, how, _ := strings.Cut(rest, " ")
		if how != "via "+c.segment.WireGuard+" self permanent" {
			c.complain("FDB entry %q is not as ours have to be", line)
		}
		ours[address]++
	}
	return ours
}
