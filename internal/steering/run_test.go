package steering_test

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"wgsteer/internal/logtest"
	"wgsteer/internal/steering"
)

func TestAnOperatorHearsOnceOfWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := steering.New(settings(map[string]uint32{"gw1": 7, "gw2": 3}))
		log := &logtest.Buffer{}
		ctx, stop := context.WithCancel(t.Context())
		stopped := make(chan error)
		go func() {
			stopped <- table.Run(ctx, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{
				ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
					if a.Value.Kind() == slog.KindTime {
						return slog.Attr{}
					}
					return a
				},
			})))
		}()
		expect := func(when string, want ...string) {
			t.Helper()
			time.Sleep(1500 * time.Millisecond)
			synctest.Wait()
			if diff := cmp.Diff(want, log.Take()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		report := func() { table.SetPeers("gw1", "a", 0, time.Now()) }

		expect("at first")
		table.SetStatus("gw1", true, time.Now())
		table.SetData("gw1", "a", data(1))
		report()
		expect("with a worker", `level=INFO msg="worker is known now" worker=gw1 weight=7`, `level=INFO msg="domain has a worker" domain=a`)
		expect("a second later")
		time.Sleep(3 * time.Minute)
		expect("without reports",
			`level=WARN msg="worker is online but does not report: it gets no nodes" worker=gw1`,
			`level=WARN msg="domain has no worker: its nodes are told to ask again later" domain=a`)
		report()
		expect("with a report again", `level=INFO msg="worker reports again" worker=gw1`, `level=INFO msg="domain has a worker" domain=a`)
		table.SetStatus("gw9", true, time.Now())
		expect("with one that is not listed", `level=INFO msg="worker is known now" worker=gw9 weight=1`,
			`level=WARN msg="worker is not listed under \"workers\": it has weight 1, and no location" worker=gw9 listed_and_never_heard_of=[gw2]`)
		table.SetStatus("gw1", false, time.Now())
		expect("offline", `level=WARN msg="domain has no worker: its nodes are told to ask again later" domain=a`)

		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}
