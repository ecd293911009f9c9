// Command wgsteer-server is the central host of a mesh: nodes ask it over HTTP which
// gateway to use, and gateways hear from it over MQTT which nodes to let in.
package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/alecthomas/kong"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"golang.org/x/sync/errgroup"

	"wgsteer/internal/command"
	"wgsteer/internal/config"
	"wgsteer/server/internal/admin"
	"wgsteer/server/internal/bus"
	"wgsteer/server/internal/exchange"
	"wgsteer/server/internal/steering"
	"wgsteer/server/internal/web"
)

// cli is the command line.
type cli struct {
	command.Flags
	Run    struct{} `cmd:"" default:"1" help:"Serve nodes and gateways until SIGTERM. The default."`
	Health struct{} `cmd:"" help:"Ask the running server whether it is healthy, and exit with 0 or 1."`
}

func main() {
	program := command.Program{
		Name:  "wgsteer-server",
		About: "Steers the nodes of a WireGuard mesh to the right gateway.",
		Side:  config.ForServer,
		Run:   run,
	}
	var cli cli
	chosen := kong.Parse(&cli, program.ParseOptions()...)
	if chosen.Command() == "health" {
		os.Exit(health(program, cli.Flags))
	}
	os.Exit(program.Main(cli.Flags))
}

// health asks the server that runs with the same config.
func health(program command.Program, flags command.Flags) int {
	cfg, err := program.Load(flags)
	if err == nil {
		err = exchange.CheckHealth(cfg.Server.HTTPListen)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", program.Name, err)
		return 1
	}
	fmt.Println("healthy")
	return 0
}

// run is the server, until ctx is done.
func run(ctx context.Context, cfg *config.Config, log *slog.Logger) error {
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))

	domains := make([]string, len(cfg.Domains))
	for i, domain := range cfg.Domains {
		domains[i] = domain.Name
	}
	table := steering.NewTable(domains, cfg.Weight)
	mqtt, err := bus.New(bus.Config{
		Listen: cfg.Server.MQTTListen, Username: cfg.MQTT.Username, Password: cfg.MQTT.Password,
	}, table, log, registry)
	if err != nil {
		return err
	}
	api, err := exchange.New(exchange.Config{
		Listen: cfg.Server.HTTPListen, RateLimit: cfg.Server.RateLimit,
	}, table, mqtt, log, registry)
	if err != nil {
		return err
	}

	servers := []*web.Server{api.Server}
	if cfg.Server.AdminListen != "" {
		metrics, err := admin.New(cfg.Server.AdminListen, log, registry)
		if err != nil {
			return err
		}
		servers = append(servers, metrics)
	}

	// Exchanges that are under way still need the MQTT server: it stops last.
	mqttCtx, stopMQTT := context.WithCancel(context.WithoutCancel(ctx))
	defer stopMQTT()
	mqttStopped := make(chan error, 1)
	group, ctx := errgroup.WithContext(ctx)
	go func() { mqttStopped <- mqtt.Run(mqttCtx) }()
	for _, server := range servers {
		group.Go(func() error { return server.Run(ctx) })
	}
	err = group.Wait()
	stopMQTT()
	return errors.Join(err, <-mqttStopped)
}
