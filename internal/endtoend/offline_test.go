package endtoend_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

func TestAWorkerWhoseAgentIsKilledIsNotChosenAnyMore(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	gw1, gw2 := m.gateway("gw1", welt, city), m.gateway("gw2", welt)
	m.startServer()
	agent := gw1.startAgent()
	gw2.startAgent()
	ear := m.listen()
	m.eventually(all(ear.offers(gw1), ear.offers(gw2)))
	check(t, m.choices(welt, newKeys(3), map[string]int{"gw1": 2, "gw2": 1})())

	check(t, agent.Kill())
	m.within(promptly, m.retained("wireguard-worker/gw1/status", "0"))
	check(t, m.choices(welt, newKeys(3), map[string]int{"gw2": 3})())
	check(t, m.lacks(city)())

	gw1.startAgent()
	m.eventually(m.lacks())
}

// grace is what the server may be later than one and a half keepalives, for machines
// that are busy: less than another half.
const grace = time.Second

func TestAWorkerWhoseCableIsPulledIsOfflineUntilItIsBack(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.keepalive = 4
	gw1, gw2 := m.gateway("gw1", welt, city), m.gateway("gw2", welt)
	m.startServer()
	agent := gw1.startAgent()
	gw2.startAgent()
	ear := m.listen()
	m.eventually(all(ear.offers(gw1), ear.offers(gw2)))

	check(t, gw1.Unplug(m.ctx))
	limit := time.Duration(m.keepalive)*time.Second*3/2 + grace
	m.within(limit, m.lacks(city))
	check(t, m.choices(welt, newKeys(3), map[string]int{"gw2": 3})())
	m.eventually(logged(agent, "lost the connection to the MQTT server"))

	check(t, gw1.Plug(m.ctx))
	m.eventually(m.lacks())
	check(t, m.choices(welt, newKeys(3), map[string]int{"gw1": 3})())
}

func TestATakeoverDoesNotTakeAWorkerOffline(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.keepalive = 600 // the server never misses those that are frozen
	gw1 := m.gateway("gw1", welt, city)
	m.startServer()
	latest := gw1.startAgent()
	m.eventually(m.lacks())

	watch := m.watchChoices()
	for range 3 {
		before := latest
		m.freeze(before) // as if its host had lost power: it does not close its connection
		latest = gw1.startAgent()
		m.eventually(logged(latest, "connected to the MQTT server"))
		watch.more()
		check(t, before.Kill())
		watch.more()
	}
	// A client of another make, which says nothing at all.
	m.freeze(latest)
	other := m.subscribe(gw1.Host, "gw1", "-t", "wireguard/#",
		"--will-topic", "wireguard-worker/gw1/status", "--will-payload", "0", "--will-qos", "1", "--will-retain")
	watch.more()
	check(t, latest.Kill())
	watch.more()
	watch.stop()

	// The last session is the one that counts.
	check(t, m.lacks()())
	check(t, other.Kill())
	m.within(promptly, m.lacks(welt, city))
}

// watch asks for a gateway again and again, as one node.
type watch struct {
	mesh   *mesh
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu    sync.Mutex
	asked int
	err   error // the first one
}

func (m *mesh) watchChoices() *watch {
	ctx, cancel := context.WithCancel(m.ctx)
	w := &watch{mesh: m, cancel: cancel}
	key := newKey()
	w.done.Go(func() {
		for ctx.Err() == nil {
			_, err := m.chosen(welt, key)
			w.mu.Lock()
			w.asked++
			if w.err == nil && err != nil {
				w.err = fmt.Errorf("exchange %d: %w", w.asked, err)
			}
			w.mu.Unlock()
		}
	})
	m.t.Cleanup(w.end)
	return w
}

// more returns when some more exchanges have been made.
func (w *watch) more() {
	w.mesh.t.Helper()
	w.mu.Lock()
	want := w.asked + 20
	w.mu.Unlock()
	var failed error
	w.mesh.eventually(func() error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if failed = w.err; failed == nil && w.asked < want {
			return fmt.Errorf("%d exchanges were made, want %d", w.asked, want)
		}
		return nil
	})
	check(w.mesh.t, failed)
}

// stop fails the test when any of the exchanges failed.
func (w *watch) stop() {
	w.mesh.t.Helper()
	w.end()
	check(w.mesh.t, w.err)
	w.mesh.t.Logf("%d exchanges", w.asked)
}

func (w *watch) end() {
	w.cancel()
	w.done.Wait()
}
