package endtoend_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"wgsteer/internal/lab"
)

func TestAfterARestartOfTheServer200AgentsDoNotAllComeBackInTheSame100Milliseconds(t *testing.T) {
	const (
		agents = 200
		window = 100 * time.Millisecond
		most   = agents / 4 // in a window
		// An agent pauses for at most 2 seconds before it tries to connect, and for at most 4
		// more if that was too early.
		allBack = 10 * time.Second
	)
	m := newPlainMesh(t)
	server := m.startServer()
	host := m.gateway("gw")
	for i := range agents {
		name := fmt.Sprintf("gw%d", i)
		m.agent = "  worker: " + name + "\n"
		path := filepath.Join(host.Folder(), name+".yaml")
		check(t, os.Rename(m.config(host.Host), path))
		m.start(host.Host, m.programs.agent, "--config", path)
	}
	m.eventually(online(server, agents))

	check(t, server.Kill())
	began := time.Now()
	server = m.startServer()
	back := &arrivals{server: server, seen: make(map[string]bool)}
	m.within(allBack, func() error {
		check(t, back.look())
		if n := len(back.seen); n < agents {
			return fmt.Errorf("%d of %d agents are back", n, agents)
		}
		return nil
	})
	t.Logf("all are back after %v", time.Since(began).Round(time.Millisecond))
	if came, within := back.tooMany(window, most); came > 0 {
		t.Errorf("%d of %d agents came back within %v, want at most %d in %v", came, agents, within, most, window)
	}
	m.within(allBack, online(server, agents))
}

// online returns an attempt that succeeds when the log of a server tells of so many
// workers that are online.
func online(server *lab.Program, want int) func() error {
	return func() error {
		workers := make(map[string]bool)
		for _, line := range linesOf(server.Log()) {
			if _, after, ok := strings.Cut(line, `msg="worker online" worker=`); ok {
				workers[strings.Fields(after)[0]] = true
			}
		}
		if len(workers) != want {
			return fmt.Errorf("%d workers are online, want %d", len(workers), want)
		}
		return nil
	}
}

// arrivals are the MQTT connections of a server as the kernel lists them, which makes them
// before the server, that has much to do with each, gets to see them.
type arrivals struct {
	server *lab.Program
	seen   map[string]bool // by the other end
	looks  []look
}

// look is how many connections had come when the kernel was asked.
type look struct {
	began, ended time.Time
	came         int
}

func (a *arrivals) look() error {
	began := time.Now()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/tcp6", a.server.PID()))
	if err != nil {
		return err
	}
	ended := time.Now()
	const port, established = ":075B", "01" // 1883
	for _, line := range linesOf(string(text)) {
		if f := strings.Fields(line); strings.HasSuffix(f[1], port) && f[3] == established {
			a.seen[f[2]] = true
		}
	}
	a.looks = append(a.looks, look{began, ended, len(a.seen)})
	return nil
}

// tooMany returns how many came between two looks, and how far those are apart, if that
// proves that more than most came in one window: in the time of three windows, say, more
// than three times as many. So nothing seems denser than it was because a busy machine
// looks late.
func (a *arrivals) tooMany(window time.Duration, most int) (came int, within time.Duration) {
	for i, from := range a.looks {
		for _, to := range a.looks[i+1:] {
			between, passed := to.came-from.came, to.ended.Sub(from.began)
			windows := int((passed + window - 1) / window)
			if between > most*windows && between > came {
				came, within = between, passed
			}
		}
	}
	return came, within
}
