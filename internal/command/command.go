// Package command is the command line that both programs share: where the config
// is, what to do with it, how to log, and how to stop.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"

	"wgsteer/examples"
	"wgsteer/internal/build"
	"wgsteer/internal/config"
)

// Flags are the flags of both programs.
type Flags struct {
	Config        string           `help:"Config file. Default: $$WGSTEER_CONFIG, else $$WGKEX_CONFIG_FILE, else /etc/wgsteer.yaml, else /etc/wgkex.yaml." type:"path" placeholder:"FILE"`
	Check         bool             `help:"Check the config, say \"ok\" or what is wrong where, and exit with 0 or 1."`
	ExampleConfig bool             `help:"Print a config file that explains every key, and exit."`
	LogLevel      slog.Level       `help:"What to log: debug, info, warn or error. Default: info." default:"info" placeholder:"LEVEL"`
	LogFormat     string           `help:"How to log, to standard error: text or json. Default: text." enum:"text,json" default:"text" placeholder:"FORMAT"`
	Version       kong.VersionFlag `help:"Print the version, and exit."`
}

// Program is one of the two programs.
type Program struct {
	// Name and About are for --help.
	Name, About string
	Side        config.Side
	// Run is the program's work. It returns when ctx is done, with nil after a
	// clean stop.
	Run func(ctx context.Context, cfg *config.Config, log *slog.Logger) error
}

// ParseOptions are what kong needs to read a program's command line.
func (p Program) ParseOptions() []kong.Option {
	return []kong.Option{
		kong.Name(p.Name),
		kong.Description(p.About),
		kong.Vars{"version": p.Name + " " + build.Version()},
		kong.UsageOnError(),
	}
}

// Main does what the flags say and returns the exit code of the process.
func (p Program) Main(flags Flags) int {
	if err := p.main(flags, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", p.Name, err)
		return 1
	}
	return 0
}

func (p Program) main(flags Flags, out io.Writer) error {
	if flags.ExampleConfig {
		_, err := io.WriteString(out, examples.Config)
		return err
	}
	cfg, err := p.Load(flags)
	if err != nil {
		return err
	}
	if flags.Check {
		_, err := fmt.Fprintln(out, "ok")
		return err
	}
	log := flags.logger(os.Stderr)
	for _, note := range cfg.Notes {
		log.Warn("config: " + note)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	defer explainHangUps(log)()
	log.Info("starting", "program", p.Name, "version", build.Version(), "config", cfg.Path)
	if err := p.Run(ctx, cfg, log); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	log.Info("stopped")
	return nil
}

// explainHangUps keeps SIGHUP, by which many programs are told to read their config
// again, from ending this one, which reads it once. It ends with the call of stop.
func explainHangUps(log *slog.Logger) (stop func()) {
	hangUps, done := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangUps, syscall.SIGHUP)
	go func() {
		defer close(done)
		for range hangUps {
			log.Warn("SIGHUP does nothing: restart to use a changed config")
		}
	}()
	return func() {
		signal.Stop(hangUps)
		close(hangUps)
		<-done
	}
}

// Load finds and reads the config file for the program's side.
func (p Program) Load(flags Flags) (*config.Config, error) {
	path := flags.Config
	if path == "" {
		var err error
		if path, err = config.Find(os.Getenv); err != nil {
			return nil, err
		}
	}
	return config.Load(path, p.Side)
}

func (f Flags) logger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: f.LogLevel}
	if f.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
