package lab

import (
	"context"
	"fmt"
	"time"
)

// defaultTimeout is how long the lab waits for something when the caller's context
// has no deadline.
const defaultTimeout = 10 * time.Second

// withDeadline returns ctx, with a deadline if it has none.
func withDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, bounded := ctx.Deadline(); bounded {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, defaultTimeout)
}

// pollInterval is the time between two attempts.
const pollInterval = 20 * time.Millisecond

// Eventually calls attempt until it returns nil. When ctx is done it gives up and
// returns the last attempt's error; a context without a deadline gets one of ten
// seconds.
func Eventually(ctx context.Context, attempt func() error) error {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	began := time.Now()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := attempt()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("gave up after %v: %w", time.Since(began).Round(time.Millisecond), err)
		case <-tick.C:
		}
	}
}
