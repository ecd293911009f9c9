package main

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"wgsteer/internal/config"
	"wgsteer/internal/logtest"
	"wgsteer/internal/peer"
	"wgsteer/internal/report"
	"wgsteer/internal/steering"
	"wgsteer/server/internal/bus"
	"wgsteer/server/internal/exchange"
	"wgsteer/server/internal/keys"
	"wgsteer/server/internal/levers"
)

// before is the config of a server that is reloaded in these tests.
const before = `
domains: [ff_a, ff_b]
domain_prefixes: [ff_]
workers: {gw1: {weight: 3}, gw2: {weight: 1}}
mqtt: {username: user, password: SECRET}
`

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	cfg, err := config.Parse([]byte(text), config.ForServer)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// reloadable is a server that can be reloaded, and its log.
func reloadable(t *testing.T) (*reloading, *keys.Store, *logtest.Buffer) {
	t.Helper()
	cfg, log := parse(t, before), &logtest.Buffer{}
	logger := slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	silent, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	store, err := keys.New(time.Hour, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	table := steering.New(settings(cfg))
	mqtt, err := bus.New(bus.Config{Domains: domainNames(cfg), Listen: "127.0.0.1:0"}, table, store, nil, silent, registry)
	if err != nil {
		t.Fatal(err)
	}
	api, err := exchange.New(exchange.Config{Listen: "127.0.0.1:0", Settings: exchangeSettings(cfg)}, table, store, mqtt, silent, registry)
	if err != nil {
		t.Fatal(err)
	}
	return &reloading{
		started: cfg, live: cfg, domains: domainNames(cfg), table: table, mqtt: mqtt, api: api,
		levers:   levers.New(leverSettings(cfg), table, mqtt, nil, silent, registry),
		remember: func() { rememberNodes(table, store, time.Now()) }, log: logger,
	}, store, log
}

func TestAReloadSaysWhatChangesAndWhatNeedsARestart(t *testing.T) {
	for name, tt := range map[string]struct {
		edit []string // pairs of old and new
		want []string
	}{
		"nothing": {nil, []string{`level=INFO msg="config reloaded" changed=[]`}},
		"workers": {
			[]string{"gw1: {weight: 3}, gw2: {weight: 1}", "gw1: {weight: 4}, gw2: {location: MUC}, gw3: {weight: 1}, gw4: {weight: 5}"},
			[]string{`level=INFO msg="config reloaded" changed="[worker gw1 worker gw2 worker gw4]"`},
		},
		"what steers": {
			[]string{"mqtt:", "server: {settle: 20s, retry_window: 1m, sticky_tolerance: 5%, silent_after: 2m, auto_rebalance: 3, rate_limit: 9}\nmqtt:"},
			[]string{`level=INFO msg="config reloaded" changed="[server.silent_after server.settle server.retry_window server.sticky_tolerance server.auto_rebalance server.rate_limit]"`},
		},
		"a domain is added and one taken out": {
			[]string{"ff_a, ff_b", "ff_b, ff_c"},
			[]string{
				`level=INFO msg="config reloaded" changed="[domain ff_c]"`,
				`level=WARN msg="config: a domain was taken out, which needs a restart of the server: it is still served" domain=ff_a`,
			},
		},
		"what needs a restart": {
			[]string{"SECRET}", "OTHER, broker_port: 1884}\nbroker_listen: {port: 5005}\nserver: {key_ttl: 3h, state_dir: /nowhere, admin_listen: off}"},
			[]string{
				`level=INFO msg="config reloaded" changed=[]`,
				`level=WARN msg="config: a changed setting needs a restart of the server" setting=broker_listen`,
				`level=WARN msg="config: a changed setting needs a restart of the server" setting="server.mqtt_listen or mqtt.broker_port"`,
				`level=WARN msg="config: a changed setting needs a restart of the server" setting=mqtt.password`,
				`level=WARN msg="config: a changed setting needs a restart of the server" setting=server.admin_listen`,
				`level=WARN msg="config: a changed setting needs a restart of the server" setting=server.state_dir`,
				`level=WARN msg="config: a changed setting needs a restart of the server" setting=server.key_ttl`,
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r, _, log := reloadable(t)
			r.apply(parse(t, strings.NewReplacer(tt.edit...).Replace(before)))
			if diff := cmp.Diff(tt.want, log.Take()); diff != "" {
				t.Errorf("the log (-want +got):\n%s", diff)
			}
			// Back to what it was: nothing is left to be said.
			r.apply(parse(t, before))
			if log.Count("needs a restart") > 0 && tt.edit[0] != "ff_a, ff_b" {
				t.Errorf("after the change was taken back:\n%v", log.Take())
			}
		})
	}
}

// The password is compared, and must not be logged.
func TestAReloadSaysNoPassword(t *testing.T) {
	r, _, log := reloadable(t)
	r.apply(parse(t, strings.Replace(before, "SECRET", "HUSHHUSH", 1)))
	for _, line := range log.Take() {
		if strings.Contains(line, "HUSH") || strings.Contains(line, "SECRET") {
			t.Errorf("the log holds a password: %s", line)
		}
	}
}

func TestAReloadIsInTheTable(t *testing.T) {
	r, store, _ := reloadable(t)
	if err := store.Save("ff_c", peer.Key{1}, "gw1", time.Now().Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	store.Handshakes("ff_c", []peer.Key{{1}}, time.Now())
	r.apply(parse(t, strings.NewReplacer("ff_a, ff_b", "ff_a, ff_b, ff_c", "gw2: {weight: 1}", "gw2: {weight: 1, location: MUC}").Replace(before)))
	for _, w := range []string{"gw1", "gw2"} {
		r.table.SetStatus(w, true, time.Now())
		r.table.SetData(w, "ff_c", report.Data{ExternalAddress: w, Port: 1, PublicKey: peer.Key{9, w[2]}})
		r.table.SetPeers(w, "ff_c", 0, time.Now())
	}
	e, known := r.table.Explain(steering.Ask{Domain: "ff_c", Key: peer.Key{1}}, time.Now())
	if !known || e.Chosen != "gw1" || e.Reason != "the node had its tunnel there" {
		t.Errorf("a node that was there before is explained by %+v", e)
	}
	if e, _ = r.table.Explain(steering.Ask{Domain: "ff_c", Location: "MUC"}, time.Now()); e.Chosen != "gw2" {
		t.Errorf("a node that asks for the location is explained by %+v", e)
	}
}
