package chaos

import (
	"context"

	"wgsteer/internal/lab"
)

// program is a program under test, which is started again and again.
type program struct {
	host *lab.Host
	argv []string
	// now is the process that was started last.
	now *lab.Program
}

// start starts it. A program that was built to find races sleeps for a second before it
// exits, unless it is told not to.
func (p *program) start(ctx context.Context) (err error) {
	p.now, err = p.host.Start(ctx, "env", append([]string{"GORACE=atexit_sleep_ms=0"}, p.argv...)...)
	return err
}

// kill ends it at whatever instruction it is.
func (p *program) kill() error { return p.now.Kill() }

// terminate asks it to stop. It is an error when it does not exit with 0.
func (p *program) terminate(ctx context.Context) error { return p.now.Stop(ctx) }

// end is kill or terminate.
func (p *program) end(ctx context.Context, kill bool) error {
	if kill {
		return p.kill()
	}
	return p.terminate(ctx)
}
