// Command wgsteer-agent runs on a gateway: it brings the keys of nodes into the kernel
// and reports to wgsteer-server how nodes reach the gateway and how many are connected.
package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"runtime/debug"
	"slices"
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

func run(ctx context.Context, cfg *config.Config, reloads <-chan *config.Config, log *slog.Logger) error {
	if err := kernel.CheckCapability(); err != nil {
		return err
	}
	work, err := start(ctx, cfg, log)
	if err != nil {
		return err
	}
	for {
		select {
		case err := <-work.ended:
			return err
		case <-ctx.Done():
			return work.stop(log)
		case next := <-reloads:
			if !concerns(cfg, next) {
				log.Info("config reloaded: nothing has changed for the agent")
				continue
			}
			if work, err = work.replace(ctx, next, log); err != nil {
				return err
			}
			cfg = next
		}
	}
}

// concerns tells whether the agent has to do with anything that is not the same in both
// configs.
func concerns(cfg, next *config.Config) bool {
	return cfg.MQTT != next.MQTT || cfg.Agent != next.Agent || !slices.Equal(cfg.Domains, next.Domains)
}

// work is what the agent does with one config.
type work struct {
	cancel context.CancelFunc
	ended  chan error
}

// start begins the work with the config.
func start(ctx context.Context, cfg *config.Config, log *slog.Logger) (*work, error) {
	gw := gateway.New(cfg, kernel.Kernel{}, log)
	up, err := uplink.New(cfg, gw, log)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	w := &work{cancel: cancel, ended: make(chan error, 1)}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return gw.Run(ctx) })
	group.Go(func() error { return up.Run(ctx) })
	go func() {
		defer cancel()
		w.ended <- group.Wait()
	}()
	return w, nil
}

// stop ends the work. What is in the kernel stays there.
func (w *work) stop(log *slog.Logger) error {
	w.cancel()
	select {
	case err := <-w.ended:
		return err
	case <-time.After(stopWithin):
		log.Warn("WireGuard does not answer: stopping without waiting for it")
		return nil
	}
}

// replace ends the work and begins it anew with another config. There is never the work
// of both: it waits for a WireGuard that does not answer, unless the agent is to stop.
func (w *work) replace(ctx context.Context, cfg *config.Config, log *slog.Logger) (*work, error) {
	log.Info("config reloaded: starting anew with it, tunnels go on")
	w.cancel()
	select {
	case err := <-w.ended:
		if err != nil && !errors.Is(err, context.Canceled) {
			return nil, err
		}
	case <-ctx.Done():
		return w, nil
	}
	return start(ctx, cfg, log)
}
