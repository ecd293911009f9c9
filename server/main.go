// Command wgsteer-server is the central host of a mesh: nodes ask it over HTTP which
// gateway to use, and gateways hear from it over MQTT which nodes to let in.
package main

import (
	"fmt"
	"os"

	"github.com/alecthomas/kong"

	"wgsteer/internal/command"
	"wgsteer/internal/config"
	"wgsteer/server/internal/exchange"
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
