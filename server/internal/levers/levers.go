package levers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"wgsteer/internal/config"
	"wgsteer/internal/peer"
	"wgsteer/internal/steering"
)

// Table is the weighting table.
type Table interface {
	// Drain takes a worker out of the choice, or back in.
	Drain(worker string, drained bool) (changed bool)
	// Evict takes a node away from the worker. ok is false when there is none that can go.
	Evict(worker string, now time.Time) (m steering.Move, ok bool)
	// Imbalance returns the moves after which all workers are so close to their targets.
	Imbalance(within float64, now time.Time) []steering.Move
	// Rebalance makes the first of them, and tells how many are left. If some are and it has
	// made none, it is to be tried again later.
	Rebalance(within float64, now time.Time) (m steering.Move, left int, ok bool)
	// States returns what is known of the workers, heard of or only configured.
	States() []steering.State
	// Trust ends the suspicion of a worker.
	Trust(worker string) (changed bool)
}

// Bus is how workers are told.
type Bus interface {
	// PublishEvict tells a worker to let go of nodes in the domain.
	PublishEvict(worker, domain string, keys []peer.Key) error
}

// Memory is where drains survive the process.
type Memory interface {
	// SaveDrains returns when the nodes a minute that are taken away from each drained
	// worker survive.
	SaveDrains(evict map[string]int) error
	Drains() (evict map[string]int, err error)
}

// Settings are what an operator decides. All of them can be changed later.
type Settings struct {
	// AutoRebalance is how many nodes a minute are moved when the balance has been wrong
	// for long. 0: none.
	AutoRebalance int
}

// Levers are the levers and who works at them.
type Levers struct {
	table  Table
	bus    Bus
	memory Memory // nil: none
	log    *slog.Logger

	evictions *prometheus.CounterVec
	moves     prometheus.Counter

	// wake is signalled when there may be something to do earlier.
	wake chan struct{}
	// saving orders writes of the drains.
	saving sync.Mutex

	mu       sync.Mutex
	settings Settings
	drains   map[string]*drain
	// pulled are the workers whose drain was decided since the start: what is found on disk
	// later is older.
	pulled   map[string]struct{}
	restored bool
	// job is the rebalancing that is under way or was the last.
	job *job
	// patience is how long there may be no balance before one begins by itself.
	patience steering.Patience
}

// New returns the levers, with the drains that are in the memory, which is nil for none.
func New(settings Settings, table Table, bus Bus, memory Memory, log *slog.Logger, registry prometheus.Registerer) *Levers {
	l := &Levers{
		settings: settings, table: table, bus: bus, memory: memory, log: log,
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wgsteer_evictions_total",
			Help: "Nodes that were taken away from a drained worker.",
		}, []string{"worker"}),
		moves: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "wgsteer_moves_total",
			Help: "Nodes that were moved to another worker, to have every worker carry its share.",
		}),
		wake:   make(chan struct{}, 1),
		drains: make(map[string]*drain), pulled: make(map[string]struct{}),
	}
	registry.MustRegister(l.evictions, l.moves)
	l.load()
	return l
}

// Configure changes the settings.
func (l *Levers) Configure(settings Settings) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.settings = settings
}

// lookInterval is the longest time between two looks for something to do.
const lookInterval = time.Second

// Run works the levers until ctx is done.
func (l *Levers) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-l.wake:
		}
		timer.Reset(l.work(time.Now()))
	}
}

// work does what is due. It returns how long there is nothing to do then.
func (l *Levers) work(now time.Time) time.Duration {
	l.takeUpRestored()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lookAtBalance(now)
	next := now.Add(lookInterval)
	for name, d := range l.drains {
		if d.evict > 0 {
			next = earlier(next, l.evict(name, d, now))
		}
	}
	if l.job != nil && l.job.ended.IsZero() {
		next = earlier(next, l.move(l.job, now))
	}
	return next.Sub(now)
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// pace is when something is due that is done so many times a minute, evenly: what was late
// is not made up for.
type pace struct {
	perMinute int
	next      time.Time
}

// due tells whether it is time, and if so, sets when it is time again.
func (p *pace) due(now time.Time) bool {
	if now.Before(p.next) {
		return false
	}
	interval := time.Minute / time.Duration(p.perMinute)
	if p.next = p.next.Add(interval); !p.next.After(now) {
		p.next = now.Add(interval)
	}
	return true
}

// signal has Run look at once.
func (l *Levers) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// tell tells a worker to let go of a node.
func (l *Levers) tell(m steering.Move) {
	if err := l.bus.PublishEvict(m.From, m.Domain, []peer.Key{m.Key}); err != nil {
		l.log.Error("a worker cannot be told to let go of a node", "worker", m.From, "domain", m.Domain, "error", err)
	}
}

// list joins names for a sentence.
func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// ErrRate is wrapped by the error for a rate that cannot be.
var ErrRate = errors.New("not a rate")

// checkRate returns an error unless so many nodes can be moved in a minute.
func checkRate(perMinute, least int) error {
	if perMinute < least || perMinute > config.MaxRate {
		return fmt.Errorf("%w: %d nodes a minute, want %d to %d", ErrRate, perMinute, least, config.MaxRate)
	}
	return nil
}
