// Command demo shows a whole mesh on one machine: a central host, three gateways with
// different weights and a dozen nodes in two domains. Every node asks the server for
// a gateway, as a Gluon router does, and pings it through VXLAN over WireGuard.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"wgsteer/internal/lab"
)

// labName is the demo's lab: a kept one is found by it.
const labName = "demo"

// timeout is far above what the demo takes on a slow machine.
const timeout = 3 * time.Minute

// cli is the command line.
type cli struct {
	Run   runCmd   `cmd:"" default:"withargs" help:"Show the mesh. The default."`
	Exec  execCmd  `cmd:"" help:"Run a command on a host of a mesh that was kept."`
	Clean cleanCmd `cmd:"" help:"Remove a mesh that was kept."`
}

type runCmd struct {
	Bin  string `help:"Folder of wgsteer-server and wgsteer-agent, which are built into it when they are not there. Default: bin." default:"bin" type:"path" placeholder:"DIR"`
	Keep bool   `help:"Leave the mesh up when it works." env:"KEEP"`
}

type execCmd struct {
	Host    string   `arg:"" help:"The host, like gw1."`
	Command []string `arg:"" passthrough:"" help:"The command and its arguments."`
}

type cleanCmd struct{}

func main() {
	lab.Main()
	if os.Getenv("KEEP") == "" {
		os.Unsetenv("KEEP") // "KEEP=" is no value that a flag could have
	}
	var cli cli
	chosen := kong.Parse(&cli, kong.Name("wgsteer-demo"), kong.UsageOnError(),
		kong.Description("Shows a whole mesh on this machine. Needs root."))
	// The shell's Ctrl-C ends what runs in a kept mesh, not the demo around it.
	signals := []os.Signal{syscall.SIGTERM, syscall.SIGHUP}
	if chosen.Command() == "run" {
		signals = append(signals, syscall.SIGINT)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	defer stop()
	chosen.BindTo(ctx, (*context.Context)(nil))
	os.Exit(exitCode(chosen.Run()))
}

// exited is the exit code of a command on a host, which has said itself what is wrong.
type exited int

func (e exited) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

// exitCode says what went wrong, and returns this program's exit code.
func exitCode(err error) int {
	var command exited
	switch {
	case err == nil:
		return 0
	case errors.As(err, &command):
		return int(command)
	}
	fmt.Fprintf(os.Stderr, "demo: %v\n", err)
	return 1
}

// Run shows the mesh.
func (c runCmd) Run(ctx context.Context) (err error) {
	if missing := lab.Missing(); len(missing) > 0 {
		return fmt.Errorf("it needs %s", strings.Join(missing, ", "))
	}
	interrupted := ctx
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	programs, err := findPrograms(ctx, c.Bin)
	if err != nil {
		return err
	}
	l, err := lab.New(ctx, labName)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()

	d := &demo{lab: l, programs: programs, out: os.Stdout, began: time.Now()}
	err = d.run(ctx)
	if interrupted.Err() != nil {
		return context.Cause(interrupted)
	}
	if err != nil {
		fmt.Fprint(os.Stderr, l.Logs())
		return err
	}
	if !c.Keep {
		return nil
	}
	if err := l.Keep(); err != nil {
		return err
	}
	d.printTour(self())
	return nil
}

// self is how the user can call this program again.
func self() string {
	if strings.Contains(os.Args[0], "/go-build") {
		return "go run ./examples/demo"
	}
	return os.Args[0]
}

// Run runs a command on a host, in place of this program as far as its user can tell.
func (c execCmd) Run(ctx context.Context) error {
	args := c.Command
	if args[0] == "--" {
		args = args[1:]
	}
	if len(args) == 0 {
		return errors.New("exec: no command is given")
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGQUIT)
	cmd, err := commandOn(ctx, labName, c.Host, args)
	if err != nil {
		return fmt.Errorf("exec: %w", err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Exited() {
		return exited(exit.ExitCode())
	}
	if err != nil {
		return fmt.Errorf("exec: %s: %w", args[0], err)
	}
	return nil
}

// Run removes a mesh that was kept.
func (cleanCmd) Run(ctx context.Context) error { return lab.Remove(ctx, labName) }
