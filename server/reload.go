package main

import (
	"context"
	"log/slog"
	"slices"

	"wgsteer/internal/config"
	"wgsteer/internal/steering"
	"wgsteer/server/internal/bus"
	"wgsteer/server/internal/exchange"
	"wgsteer/server/internal/levers"
)

// reloading takes up the config when it was read again, as far as that can be done while
// the server runs.
type reloading struct {
	// started is what the server was started with, live what was read last.
	started, live *config.Config
	// domains are those that are served.
	domains []string
	table   *steering.Table
	mqtt    *bus.Bus
	api     *exchange.API
	levers  *levers.Levers
	// remember tells the table of nodes that it does not know, of added domains for one.
	remember func()
	log      *slog.Logger
}

// Run takes up what comes out of reloads until ctx is done.
func (r *reloading) Run(ctx context.Context, reloads <-chan *config.Config) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case next := <-reloads:
			r.apply(next)
		}
	}
}

func (r *reloading) apply(next *config.Config) {
	changed := changedWorkers(r.live, next)
	for _, s := range liveSettings() {
		if s.of(r.live) != s.of(next) {
			changed = append(changed, s.key)
		}
	}
	added := without(domainNames(next), r.domains)
	for _, name := range added {
		changed = append(changed, "domain "+name)
	}
	steer := settings(next)
	steer.Memory = r.started.Server.KeyTTL
	r.table.Configure(steer)
	r.remember()
	r.mqtt.AddDomains(added)
	r.api.Configure(exchangeSettings(next))
	r.levers.Configure(leverSettings(next))
	r.domains = append(r.domains, added...)
	r.live = next
	r.log.Info("config reloaded", "changed", changed)
	r.warn(next)
}

// warn tells what the config says and does not hold before a restart.
func (r *reloading) warn(next *config.Config) {
	for _, s := range startSettings() {
		if s.of(r.started) != s.of(next) {
			r.log.Warn("config: a changed setting needs a restart of the server", "setting", s.key)
		}
	}
	for _, name := range without(r.domains, domainNames(next)) {
		r.log.Warn("config: a domain was taken out, which needs a restart of the server: it is still served", "domain", name)
	}
}

// setting is a part of the config that can be compared. Its value is not for logs.
type setting struct {
	key string
	of  func(*config.Config) any
}

// liveSettings are those that can be changed while the server runs, beside workers and
// domains that are added.
func liveSettings() []setting {
	return []setting{
		{"server.silent_after", func(c *config.Config) any { return c.Server.SilentAfter }},
		{"server.settle", func(c *config.Config) any { return c.Server.Settle }},
		{"server.retry_window", func(c *config.Config) any { return c.Server.RetryWindow }},
		{"server.sticky_tolerance", func(c *config.Config) any { return c.Server.StickyTolerance }},
		{"server.auto_rebalance", func(c *config.Config) any { return c.Server.AutoRebalance }},
		{"server.rate_limit", func(c *config.Config) any { return c.Server.RateLimit }},
	}
}

// startSettings are those that hold from the start of the server to its end.
func startSettings() []setting {
	return []setting{
		{"broker_listen", func(c *config.Config) any { return c.Server.HTTPListen }},
		{"server.mqtt_listen or mqtt.broker_port", func(c *config.Config) any { return c.Server.MQTTListen }},
		{"mqtt.username", func(c *config.Config) any { return c.MQTT.Username }},
		{"mqtt.password", func(c *config.Config) any { return c.MQTT.Password }},
		{"server.admin_listen", func(c *config.Config) any { return c.Server.AdminListen }},
		{"server.state_dir", func(c *config.Config) any { return c.Server.StateDir }},
		{"server.key_ttl", func(c *config.Config) any { return c.Server.KeyTTL }},
	}
}

// changedWorkers names the workers for which something else holds now, sorted.
func changedWorkers(before, now *config.Config) []string {
	changed := []string{}
	for _, workers := range []map[string]config.Worker{before.Workers, now.Workers} {
		for name := range workers {
			if before.Worker(name) != now.Worker(name) {
				changed = append(changed, "worker "+name)
			}
		}
	}
	slices.Sort(changed)
	return slices.Compact(changed)
}

// without returns what is in the list and not in the other.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return slices.Contains(other, s) })
}
