// Command simulate shows how the nodes of a mesh spread over its gateways when something
// happens: a cold start, reboots, a gateway that nobody reaches. It runs the code that the
// server runs, packages loadbalance and steering, in virtual time, with thousands of nodes
// and gateways whose reports are late; and beside it the plain algorithm, without a memory.
//
// The same seed gives the same results, to the byte.
package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/alecthomas/kong"
)

// cli is the command line.
type cli struct {
	Seed     uint64   `help:"What chance is drawn from." default:"1"`
	Nodes    int      `help:"How many nodes there are." default:"5000"`
	Scenario []string `help:"Only this scenario: ${names}. Can be given more than once." enum:"${names}" placeholder:"NAME"`
	Out      string   `help:"Folder for a plot of each scenario, as SVG." type:"path" placeholder:"DIR"`
	Page     string   `help:"Markdown page whose generated section is written anew." type:"existingfile" placeholder:"FILE"`
	Log      bool     `help:"Print what the server would log."`
}

func main() {
	var cli cli
	chosen := kong.Parse(&cli, kong.Name("simulate"), kong.UsageOnError(), kong.Vars{"names": names()},
		kong.Description("Simulates a mesh, once with the plain algorithm and once with wgsteer's, and prints what became of it."))
	chosen.FatalIfErrorf(cli.run())
}

// run runs the scenarios, and writes what was asked for.
func (c cli) run() error {
	if c.Nodes < 1 {
		return fmt.Errorf("--nodes %d: there must be one at least", c.Nodes)
	}
	if c.Page != "" && len(c.Scenario) > 0 {
		return errors.New("--page: a page has all scenarios")
	}
	log := slog.New(slog.DiscardHandler)
	if c.Log {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{ReplaceAttr: withoutTime}))
	}
	var pairs []pair
	for _, sc := range scenarios() {
		if !c.wants(sc) {
			continue
		}
		began := time.Now()
		fmt.Fprintf(os.Stderr, "%s: %v of a mesh …", sc.name, sc.length)
		pairs = append(pairs, both(sc, c.Seed, c.Nodes, log))
		fmt.Fprintf(os.Stderr, " in %.1f s\n", time.Since(began).Seconds())
	}
	fmt.Print(table(pairs))
	if c.Out != "" {
		if err := c.plot(pairs); err != nil {
			return err
		}
	}
	if c.Page == "" {
		return nil
	}
	page, err := os.ReadFile(c.Page)
	if err != nil {
		return err
	}
	if page, err = splice(page, section(pairs)); err != nil {
		return fmt.Errorf("%s: %w", c.Page, err)
	}
	return os.WriteFile(c.Page, page, 0o644)
}

// plot writes the plots.
func (c cli) plot(pairs []pair) error {
	if err := os.MkdirAll(c.Out, 0o755); err != nil {
		return err
	}
	for _, p := range pairs {
		svg, err := p.svg()
		if err != nil {
			return fmt.Errorf("plot %s: %w", p.scenario.name, err)
		}
		if err := os.WriteFile(filepath.Join(c.Out, p.scenario.name+".svg"), svg, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (c cli) wants(sc scenario) bool {
	return len(c.Scenario) == 0 || slices.Contains(c.Scenario, sc.name)
}

// withoutTime drops the real time of a log line: it has the virtual one.
func withoutTime(_ []string, a slog.Attr) slog.Attr {
	if a.Key == slog.TimeKey {
		return slog.Attr{}
	}
	return a
}
