package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
)

// Program is a program that runs in a host until it ends, is stopped, or the lab is
// closed.
type Program struct {
	host    string
	line    string
	logPath string
	process *os.Process
	// daemon says that the program belongs to the lab itself.
	daemon bool
	// told says that the caller knows how the program ended, or has ended it.
	told atomic.Bool

	done chan struct{}
	// err may be read when done is closed.
	err error
}

// Start starts a program in the host, with an environment like this process's, and
// returns when it runs. ctx bounds only the start. What the program writes goes to a
// file in the host's folder. It does not get the signals of this process's terminal.
func (h *Host) Start(ctx context.Context, name string, args ...string) (*Program, error) {
	// The context of a command kills it; a program under test outlives ctx.
	cmd := h.command(context.WithoutCancel(ctx), reportFD, name, args)
	return h.start(ctx, cmd, filepath.Base(name), false)
}

// reportFD is the descriptor that the first of exec.Cmd's ExtraFiles gets.
const reportFD = 3

func (h *Host) start(ctx context.Context, cmd *exec.Cmd, name string, daemon bool) (*Program, error) {
	p, err := h.startLogged(ctx, cmd, name, daemon)
	if err != nil {
		return nil, fmt.Errorf("start %s on host %s: %w", name, h.name, err)
	}
	return p, nil
}

func (h *Host) startLogged(ctx context.Context, cmd *exec.Cmd, name string, daemon bool) (*Program, error) {
	log, err := h.createLog(name)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := startEntering(ctx, cmd); err != nil {
		return nil, err
	}
	p := &Program{
		host: h.name, line: commandLine(cmd), logPath: log.Name(),
		process: cmd.Process, daemon: daemon, done: make(chan struct{}),
	}
	go func() {
		defer close(p.done)
		p.err = cmd.Wait()
	}()
	h.owner.addProgram(p)
	return p, nil
}

// createLog makes the file NAME.log, or NAME-2.log and so on when that is there.
func (h *Host) createLog(name string) (*os.File, error) {
	for i := 1; ; i++ {
		file := name + ".log"
		if i > 1 {
			file = fmt.Sprintf("%s-%d.log", name, i)
		}
		log, err := os.OpenFile(filepath.Join(h.Folder(), file), os.O_WRONLY|os.O_CREATE|os.O_EXCL|os.O_APPEND, 0o644)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("make log: %w", err)
		}
		return log, nil
	}
}

// startEntering starts the command and waits until it has entered its host and
// become the program: only then does a signal find the program's own handlers.
func startEntering(ctx context.Context, cmd *exec.Cmd) error {
	report, toUs, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make pipe: %w", err)
	}
	defer report.Close()
	cmd.ExtraFiles = []*os.File{toUs}
	err = cmd.Start()
	toUs.Close()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { report.Close() })
	defer stop()
	problem, err := io.ReadAll(report)
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err == nil && len(problem) > 0 {
		err = errors.New(string(problem))
	}
	if err != nil {
		return errors.Join(err, abandon(cmd))
	}
	return nil
}

// abandon ends a command that did not become a program.
func abandon(cmd *exec.Cmd) error {
	err := cmd.Process.Kill()
	if errors.Is(err, os.ErrProcessDone) {
		err = nil
	}
	var exit *exec.ExitError
	if wait := cmd.Wait(); !errors.As(wait, &exit) {
		err = errors.Join(err, wait)
	}
	return err
}

// PID returns the program's process id.
func (p *Program) PID() int { return p.process.Pid }

// String returns the command line and the host.
func (p *Program) String() string { return fmt.Sprintf("%s (host %s)", p.line, p.host) }

// LogPath returns the file that holds what the program has written.
func (p *Program) LogPath() string { return p.logPath }

// Log returns what the program has written so far.
func (p *Program) Log() string {
	text, err := os.ReadFile(p.logPath)
	if err != nil {
		return fmt.Sprintf("(no log: %v)", err)
	}
	return string(text)
}

// Signal sends a signal to the program.
func (p *Program) Signal(sig os.Signal) error {
	if err := p.process.Signal(sig); err != nil {
		return fmt.Errorf("send %v to %v: %w", sig, p, err)
	}
	return nil
}

// Done is closed when the program has ended.
func (p *Program) Done() <-chan struct{} { return p.done }

func (p *Program) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Stop asks the program to stop (SIGTERM) and waits for its end. The error holds
// the end of its log when it did not end with exit code 0, also when it had ended
// before. When ctx is done first, or after ten seconds if it has no deadline, the
// program is killed.
func (p *Program) Stop(ctx context.Context) error {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	if err := p.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
	case <-ctx.Done():
		return errors.Join(fmt.Errorf("%v did not stop in time, its log ends with:\n%s", p, p.logTail()), p.Kill())
	}
	return p.Err()
}

// Kill ends the program (SIGKILL) and waits for its end. It is no error when it had
// ended before.
func (p *Program) Kill() error {
	p.told.Store(true)
	if err := p.Signal(syscall.SIGKILL); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	<-p.done
	return nil
}

// Err waits for the program's end and returns nil when its exit code was 0, else an
// error that holds the end of its log.
func (p *Program) Err() error {
	<-p.done
	p.told.Store(true)
	if p.err != nil {
		return fmt.Errorf("%v: %w, its log ends with:\n%s", p, p.err, p.logTail())
	}
	return nil
}

// tailLines is how much of a log an error holds.
const tailLines = 20

func (p *Program) logTail() string {
	lines := strings.Split(strings.TrimRight(p.Log(), "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
