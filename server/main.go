// Command wgsteer-server is the central host of a mesh: nodes ask it over HTTP which
// gateway to use, and gateways hear from it over MQTT which nodes to let in. It is also
// the command by which operators ask the one that runs, and pull its levers.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"wgsteer/internal/command"
	"wgsteer/internal/config"
	"wgsteer/server/internal/admin"
	"wgsteer/server/internal/exchange"
)

// cli is the command line.
type cli struct {
	command.Flags
	Run    struct{} `cmd:"" default:"1" help:"Serve nodes and gateways until SIGTERM. The default."`
	Health struct{} `cmd:"" help:"Ask the running server whether it is healthy, and exit with 0 or 1."`

	Explain   explainCommand   `cmd:"" help:"Ask the running server which worker (gateway) the next node of a domain would be sent to, and why."`
	Workers   workersCommand   `cmd:"" help:"Ask the running server what it knows of its workers."`
	Drain     drainCommand     `cmd:"" help:"Send no new nodes to a worker, and take its nodes away if told to, until it is undrained, over restarts, too."`
	Undrain   undrainCommand   `cmd:"" help:"Send nodes to a drained worker again."`
	Trust     trustCommand     `cmd:"" help:"Send nodes to a suspect worker again, which was repaired."`
	Rebalance rebalanceCommand `cmd:"" help:"Move nodes from workers above their share to workers below, and wait until that is done."`
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
	switch chosen.Selected().Name {
	case "run":
		os.Exit(program.Main(cli.Flags))
	case "health":
		os.Exit(exit(program, health(program, cli.Flags)))
	default:
		os.Exit(exit(program, ask(program, cli.Flags, chosen)))
	}
}

// exit says what went wrong, if anything, and returns the exit code.
func exit(program command.Program, err error) int {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", program.Name, err)
		return 1
	}
	return 0
}

// health asks the server that runs with the same config.
func health(program command.Program, flags command.Flags) error {
	cfg, err := program.Load(flags)
	if err != nil {
		return err
	}
	if err := exchange.CheckHealth(cfg.Server.HTTPListen); err != nil {
		return err
	}
	fmt.Println("healthy")
	return nil
}

// ask runs a command that asks the server that runs with the same config.
func ask(program command.Program, flags command.Flags, chosen *kong.Context) error {
	cfg, err := program.Load(flags)
	if err != nil {
		return err
	}
	client, err := admin.NewClient(cfg.Server.AdminListen)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	chosen.BindTo(ctx, (*context.Context)(nil))
	chosen.BindTo(os.Stdout, (*io.Writer)(nil))
	return chosen.Run(client)
}
