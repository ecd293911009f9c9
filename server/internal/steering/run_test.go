package steering_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"wgsteer/server/internal/steering"
)

// events are the messages, levels and fields of a log, but for the times.
type events struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (e *events) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.text.Write(p)
}

// take returns the lines since the last call.
func (e *events) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(e.text.String()), "\n")
	e.text.Reset()
	return lines
}

func TestAnOperatorHearsOnceOfWhatChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := steering.NewTable([]string{"a", "b"}, func(string) uint32 { return 7 }, 3*time.Minute)
		log := &events{}
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
			if len(want) == 0 {
				want = []string{""}
			}
			if diff := cmp.Diff(want, log.take()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", when, diff)
			}
		}
		report := func() { table.SetPeers("gw1", "a", 0, time.Now()) }

		expect("at first")
		table.SetStatus("gw1", true)
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
		table.SetStatus("gw1", false)
		expect("offline", `level=WARN msg="domain has no worker: its nodes are told to ask again later" domain=a`)

		stop()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}
