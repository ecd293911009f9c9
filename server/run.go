package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"wgsteer/internal/config"
	"wgsteer/internal/steering"
	"wgsteer/server/internal/admin"
	"wgsteer/server/internal/bus"
	"wgsteer/server/internal/exchange"
	"wgsteer/server/internal/keys"
	"wgsteer/server/internal/levers"
	"wgsteer/server/internal/state"
)

// run is the server, until ctx is done.
func run(ctx context.Context, cfg *config.Config, reloads <-chan *config.Config, log *slog.Logger) error {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	kept, err := openState(ctx, cfg.Server, log, registry)
	if err != nil {
		return err
	}
	table := steering.New(settings(cfg))
	mqtt, err := bus.New(bus.Config{
		Domains: domainNames(cfg),
		Listen:  cfg.Server.MQTTListen, Username: cfg.MQTT.Username, Password: cfg.MQTT.Password,
	}, table, kept.keys, kept.reports, log, registry)
	if err != nil {
		return err
	}
	lever := levers.New(leverSettings(cfg), table, mqtt, kept.drains, log, registry)
	remember := func() { rememberNodes(table, kept.keys, time.Now()) }
	remember()
	if kept.file != nil {
		kept.file.Restored(func() {
			if err := kept.keys.DiskRestored(time.Now()); err != nil {
				log.Error("keys on disk cannot be read", "error", err)
			}
			remember()
			mqtt.ReplayAgain()
			lever.DiskRestored()
		})
	}
	api, err := exchange.New(exchange.Config{
		Listen: cfg.Server.HTTPListen, Settings: exchangeSettings(cfg),
	}, table, kept.keys, mqtt, log, registry)
	if err != nil {
		return err
	}
	changes := &reloading{
		started: cfg, live: cfg, domains: domainNames(cfg),
		table: table, mqtt: mqtt, api: api, levers: lever, remember: remember, log: log,
	}
	front := stage{
		api.Run, lever.Run,
		func(ctx context.Context) error { return table.Run(ctx, log) },
		func(ctx context.Context) error { return changes.Run(ctx, reloads) },
	}
	adminServer, err := serveOperators(cfg.Server, table, lever, log, registry)
	if err != nil {
		return err
	}
	front = append(front, adminServer...)
	// Exchanges that are under way need the MQTT server, and both need the state.
	return runStages(ctx, front, stage{mqtt.Run}, stage{kept.keys.Run}, kept.run)
}

// serveOperators is the admin server, if there is one. The default address may be taken:
// an upgrade must not keep a server from starting.
func serveOperators(cfg config.Server, table *steering.Table, l *levers.Levers, log *slog.Logger, registry *prometheus.Registry) (stage, error) {
	if cfg.AdminListen == "" {
		return nil, nil
	}
	server, err := admin.New(cfg.AdminListen, table, l, log, registry)
	if err != nil && cfg.AdminByDefault {
		log.Warn("operators are not served: set server.admin_listen to another address, or to off", "error", err)
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return stage{server.Run}, nil
}

// rememberNodes tells the table where nodes were sent that it does not know.
func rememberNodes(table *steering.Table, store *keys.Store, now time.Time) {
	for _, a := range store.Assignments(now) {
		table.Remember(steering.Memory(a), now)
	}
}

// settings are what the config says of steering.
func settings(cfg *config.Config) steering.Settings {
	return steering.Settings{
		Domains:         domainNames(cfg),
		Workers:         steeredWorkers(cfg),
		SilentAfter:     cfg.Server.SilentAfter,
		Settle:          cfg.Server.Settle,
		RetryWindow:     cfg.Server.RetryWindow,
		StickyTolerance: cfg.Server.StickyTolerance,
		Memory:          cfg.Server.KeyTTL,
	}
}

// steeredWorkers are the workers that the config lists.
func steeredWorkers(cfg *config.Config) map[string]steering.Worker {
	workers := make(map[string]steering.Worker, len(cfg.Workers))
	for name, w := range cfg.Workers {
		workers[name] = steering.Worker(w)
	}
	return workers
}

// exchangeSettings are what the config says of exchanges and can be changed.
func exchangeSettings(cfg *config.Config) exchange.Settings {
	return exchange.Settings{RateLimit: cfg.Server.RateLimit, Locations: cfg.Locations()}
}

// leverSettings are what the config says of the levers.
func leverSettings(cfg *config.Config) levers.Settings {
	return levers.Settings{AutoRebalance: cfg.Server.AutoRebalance}
}

func domainNames(cfg *config.Config) []string {
	names := make([]string, len(cfg.Domains))
	for i, domain := range cfg.Domains {
		names[i] = domain.Name
	}
	return names
}

// kept is what survives the process.
type kept struct {
	keys    *keys.Store
	file    *state.File   // nil: none
	reports bus.Memory    // the same, nil: none
	drains  levers.Memory // the same, nil: none
	run     stage
}

// openState opens the state folder, if there is one.
func openState(ctx context.Context, cfg config.Server, log *slog.Logger, registry prometheus.Registerer) (k kept, err error) {
	if cfg.StateDir == "" {
		k.keys, err = keys.New(cfg.KeyTTL, nil, time.Now())
		return k, err
	}
	file, err := state.Open(ctx, cfg.StateDir, log, registry)
	if err != nil {
		return kept{}, err
	}
	if k.keys, err = keys.New(cfg.KeyTTL, file, time.Now()); err != nil {
		return kept{}, err
	}
	if file.Fault() == nil { // otherwise it has said so
		log.Info("state is kept", "folder", cfg.StateDir, "keys", k.keys.Len())
	}
	k.file, k.reports, k.drains, k.run = file, file, file, stage{file.Run}
	return k, nil
}
