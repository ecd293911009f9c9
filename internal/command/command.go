// Package command is the command line that both programs share: where the config
// is, what to do with it, how to log, when to read it again, and how to stop.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
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
	// clean stop. Out of reloads comes the config when it was read again.
	Run func(ctx context.Context, cfg *config.Config, reloads <-chan *config.Config, log *slog.Logger) error
}

// ParseOptions are what kong needs to read a program's command line.
func (p Program) ParseOptions() []kong.Option {
	return []kong.Option{
		kong.Name(p.Name),
		kong.Description(p.About),
		kong.Vars{"version": p.Name + " " + build.Version()},
		kong.ShortUsageOnError(),
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
	logNotes(cfg, &config.Config{}, log)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	reloads, unfollow := p.followHangUps(cfg, log)
	defer unfollow()
	log.Info("starting", "program", p.Name, "version", build.Version(), "config", cfg.Path)
	if err := p.Run(ctx, cfg, reloads, log); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	log.Info("stopped")
	return nil
}

// followHangUps reads the config again at every SIGHUP, by which many programs are told
// to, and hands it on. One that cannot be read or is wrong changes nothing. It ends with
// the call of stop.
func (p Program) followHangUps(cfg *config.Config, log *slog.Logger) (reloads <-chan *config.Config, stop func()) {
	read, hangUps := make(chan *config.Config), make(chan os.Signal, 1)
	stopping, done := make(chan struct{}), make(chan struct{})
	signal.Notify(hangUps, syscall.SIGHUP)
	go func() {
		defer close(done)
		for {
			select {
			case <-stopping:
				return
			case <-hangUps:
			}
			next, err := config.Load(cfg.Path, p.Side)
			if err != nil {
				log.Error("config is not reloaded, what was read before stays in force", "error", err)
				continue
			}
			logNotes(next, cfg, log)
			select {
			case <-stopping:
				return
			case read <- next:
				cfg = next
			}
		}
	}()
	return read, func() {
		signal.Stop(hangUps)
		close(stopping)
		<-done
	}
}

// logNotes logs what the config has to say and the one before it had not.
func logNotes(cfg, before *config.Config, log *slog.Logger) {
	for _, note := range cfg.Notes {
		if !slices.Contains(before.Notes, note) {
			log.Warn("config: " + note)
		}
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
