package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"wgsteer/server/internal/admin"
)

// stands returns what looks at one stand after the other, the last one for ever.
func stands(list ...stand) func(context.Context) (stand, error) {
	return func(context.Context) (stand, error) {
		s := list[0]
		if len(list) > 1 {
			list = list[1:]
		}
		return s, nil
	}
}

func TestProgressIsALineForEachChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		err := follow(t.Context(), &out, "left", stands(stand{line: "two"}, stand{line: "two"}, stand{line: "one"}, stand{result: "done"}))
		if err != nil || out.String() != "two\none\ndone\n" {
			t.Errorf("error %v, printed:\n%s", err, &out)
		}
	})
}

func TestProgressReplacesItsLineOnATerminal(t *testing.T) {
	var out strings.Builder
	p := &progress{out: &out, live: true}
	p.say("two")
	p.say("one")
	p.end("done")
	if diff := cmp.Diff("\r\x1b[Ktwo\r\x1b[Kone\ndone\n", out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestWhatFailsIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		err := follow(t.Context(), &out, "left", stands(stand{line: "two"}, stand{result: "gone", failed: true}))
		if err == nil || err.Error() != "gone" || out.String() != "two\n" {
			t.Errorf("error %v, printed:\n%s", err, &out)
		}
	})
}

func TestWhoIsInterruptedIsToldWhatGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2500*time.Millisecond)
		defer cancel()
		var out strings.Builder
		if err := follow(ctx, &out, "it goes on", stands(stand{line: "two"})); err != nil || out.String() != "two\nit goes on\n" {
			t.Errorf("error %v, printed:\n%s", err, &out)
		}
	})
}

func TestAServerThatIsRestartedIsWaitedForButNotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := errors.New("no answer")
		start := time.Now()
		look := func(context.Context) (stand, error) {
			switch since := time.Since(start); {
			case since < 5*time.Second, since > 30*time.Second && since < 35*time.Second:
				return stand{line: "two"}, nil
			}
			return stand{}, broken
		}
		var out strings.Builder
		if err := follow(t.Context(), &out, "left", look); !errors.Is(err, broken) || out.String() != "two\nno answer\ntwo\nno answer\n" {
			t.Errorf("error %v, printed:\n%s", err, &out)
		}
		if took := time.Since(start).Round(time.Second); took != 95*time.Second {
			t.Errorf("it is given up after %v, want a minute after the last answer", took)
		}
	})
}

func TestHowFarADrainIs(t *testing.T) {
	worker := admin.Worker{Worker: "gw1", Online: true, Tells: true, Reported: 7, InFlight: -2, Evicted: 3}
	for name, tt := range map[string]struct {
		change func(*admin.Worker)
		want   stand
	}{
		"leaving":         {func(w *admin.Worker) { w.Reported, w.InFlight, w.Connected = 0, 0, 4 }, stand{line: "gw1: 0 connected, 0 on their way, 3 taken away"}},
		"gone":            {func(w *admin.Worker) { w.Reported, w.InFlight, w.Online = 0, 0, false }, stand{line: "gw1: 0 connected, 0 on their way, 3 taken away; it is offline"}},
		"just back":       {func(w *admin.Worker) { w.Tells = false }, stand{line: "gw1: 7 connected, 0 on their way, 3 taken away; it has yet to tell which nodes are connected"}},
		"under way":       {func(*admin.Worker) {}, stand{line: "gw1: 7 connected, 0 on their way, 3 taken away"}},
		"offline":         {func(w *admin.Worker) { w.Online, w.Tells = false, false }, stand{line: "gw1: 7 connected, 0 on their way, 3 taken away; it is offline"}},
		"empty":           {func(w *admin.Worker) { w.Reported, w.InFlight = 0, 0 }, stand{result: "gw1 is empty; nodes taken away from it: 3; when it is to have nodes again: wgsteer-server undrain gw1"}},
		"only on a way":   {func(w *admin.Worker) { w.Reported, w.InFlight = 0, 1 }, stand{line: "gw1: 0 connected, 1 on their way, 3 taken away"}},
		"a Python one":    {func(w *admin.Worker) { w.Tells, w.Stuck = false, true }, stand{failed: true, result: "gw1 does not tell which nodes are connected, as Python workers do not: none of its 7 can be taken away from it; it stays drained"}},
		"nowhere to go":   {func(w *admin.Worker) { w.Stuck = true }, stand{line: "gw1: 7 connected, 0 on their way, 3 taken away; none can go now: no other worker for their domain is healthy and not drained, or they are gone and that is yet to be reported"}},
		"a new one":       {func(w *admin.Worker) { w.Reported, w.InFlight, w.Tells = 0, 2, false }, stand{line: "gw1: 0 connected, 2 on their way, 3 taken away"}},
		"an empty Python": {func(w *admin.Worker) { w.Reported, w.InFlight, w.Tells, w.Evicted = 0, 0, false, 0 }, stand{result: "gw1 is empty; nodes taken away from it: 0; when it is to have nodes again: wgsteer-server undrain gw1"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := worker
			tt.change(&w)
			if diff := cmp.Diff(tt.want, standOf(w, name == "a Python one"), cmp.AllowUnexported(stand{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestColumnsHaveSomethingInEveryRow(t *testing.T) {
	var out strings.Builder
	table := newTable(&out, "WORKER", "LOCATION")
	table.row("gw1", "")
	table.row("gateway2", "MUC")
	if err := table.print(); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("WORKER    LOCATION\ngw1       -\ngateway2  MUC\n", out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
