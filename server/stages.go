package main

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// stage are parts of the server that run and stop together.
type stage []func(context.Context) error

// runStages runs all stages until ctx is done or a part fails. Then it stops them one
// after the other, in the order given, each when the one before has stopped.
func runStages(ctx context.Context, stages ...stage) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var stops []func() error
	for _, parts := range stages {
		stageCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		var group errgroup.Group
		for _, part := range parts {
			group.Go(func() error {
				err := part(stageCtx)
				if err != nil {
					stop()
				}
				return err
			})
		}
		stops = append(stops, func() error {
			cancel()
			return group.Wait()
		})
	}
	<-ctx.Done()
	var errs []error
	for _, stopStage := range stops {
		errs = append(errs, stopStage())
	}
	return errors.Join(errs...)
}
