// Command wgsteer-agent runs on a gateway: it brings the keys of nodes into the kernel
// and reports to wgsteer-server how nodes reach the gateway and how many are connected.
package main

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/sync/errgroup"

	"wgsteer/agent/internal/gateway"
	"wgsteer/agent/internal/kernel"
	"wgsteer/agent/internal/uplink"
	"wgsteer/internal/command"
	"wgsteer/internal/config"
)

// gcPercent trades processor time, of which the agent needs little, for memory, of which
// some gateways have little: with 2,000 peers its dumps are a few hundred kilobytes of
// garbage each, and the peak falls by 2 MB.
const gcPercent = 50

// stopWithin bounds how long a stop takes: saying goodbye, about two seconds, and what
// the kernel or a userspace WireGuard, which may hang, is asked to do.
const stopWithin = 4 * time.Second

func main() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	program := command.Program{
		Name:  "wgsteer-agent",
		About: "Brings the keys of nodes into this gateway's WireGuard and VXLAN interfaces, and reports to wgsteer-server.",
		Side:  config.ForAgent,
		Run:   run,
	}
	var flags command.Flags
	kong.Parse(&flags, program.ParseOptions()...)
	os.Exit(program.Main(flags))
}

func run(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	if err := kernel.CheckCapability(); err != nil {
		return err
	}
	gw := gateway.New(cfg, kernel.Kernel{}, log)
	up, err := uplink.New(cfg, gw, log)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return gw.Run(ctx) })
	group.Go(func() error { return up.Run(ctx) })
	ended := make(chan error, 1)
	go func() { ended <- group.Wait() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-ended:
		return err
	case <-time.After(stopWithin):
		log.Warn("WireGuard does not answer: stopping without waiting for it")
		return nil
	}
}
