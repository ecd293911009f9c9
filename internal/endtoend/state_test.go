package endtoend_test

import (
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"wgsteer/internal/peer"
)

// A gateway that was not there when the keys were accepted, by a server that was killed
// since, gets all of them.
func TestAGatewayThatComesBackGetsAllKeysThatAreAlive(t *testing.T) {
	m := newMesh(t)
	m.state = filepath.Join(m.central.Folder(), "state")
	server := m.startServer()
	m.eventually(func() error { _, _, err := m.get("/healthz"); return err })
	// Race-built programs may have 8,128 goroutines; userspace WireGuard has two for
	// each peer of an interface.
	const each = 2500
	keys := map[domain][]peer.Key{welt: newKeys(each), city: newKeys(each)}
	for d, k := range keys {
		m.post("v1", d, k)
	}
	check(t, server.Kill())
	m.startServer()

	gw1 := m.gateway("gw1", welt, city)
	gw1.startAgent()
	for d, k := range keys {
		m.within(timeout, everySecond(t, gw1.applied(d, k...)))
	}
}

// everySecond returns an attempt that is made no more often, for a look that costs what
// is looked at as much as its work does.
func everySecond(t testing.TB, attempt func() error) func() error {
	tick := time.NewTicker(time.Second)
	t.Cleanup(tick.Stop)
	return func() error {
		<-tick.C
		return attempt()
	}
}

func TestARestartedServerAnswersFromWhatItKnewAndForgetsWhoDoesNotComeBack(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.state = filepath.Join(m.central.Folder(), "state")
	gw1, gw2 := m.gateway("gw1", welt, city), m.gateway("gw2", welt)
	server := m.startServer()
	lost, agent := gw1.startAgent(), gw2.startAgent()
	m.eventually(m.healthy(welt, "gw1", "gw2"))
	m.eventually(m.lacks())
	// What the gateways reported is written before these keys.
	check(t, m.choices(welt, newKeys(3), map[string]int{"gw1": 2, "gw2": 1})())

	check(t, server.Kill())
	m.freeze(lost)
	m.freeze(agent)
	m.startServer()
	m.within(promptly, m.choices(welt, newKeys(3), map[string]int{"gw1": 2, "gw2": 1}))
	check(t, m.lacks()())

	check(t, agent.Signal(syscall.SIGCONT))
	m.within(timeout/2, m.lacks(city)) // 30 seconds
	check(t, m.choices(welt, newKeys(3), map[string]int{"gw2": 3})())
}
