package main

import (
	"log/slog"
	"net/netip"
	"time"

	"wgsteer/internal/peer"
	"wgsteer/internal/report"
	"wgsteer/internal/steering"
	"wgsteer/loadbalance"
)

// domain is the mesh segment of all nodes.
const domain = "ff_mesh"

// silentAfter is the age of a worker's last report from which on it is not chosen.
const silentAfter = 3 * time.Minute

// server decides where nodes go, by what it is told.
type server interface {
	status(worker string, online bool, now time.Time)
	peers(worker string, count int, now time.Time)
	seen(worker string, handshakes []report.Handshake, now time.Time)
	ask(key peer.Key, now time.Time) (worker string, ok bool)
	// weigh gives workers other weights.
	weigh(weights map[string]uint32)
	// tick happens every second. It returns the nodes that are to leave their workers.
	tick(now time.Time) []steering.Move
}

// ours is what wgsteer-server does.
type ours struct {
	table    *steering.Table
	settings steering.Settings
	log      *slog.Logger
	// auto is auto_rebalance.
	auto bool
	// patience is how long there may be no balance, moving whether nodes are being moved for
	// it.
	patience steering.Patience
	moving   bool
}

// moveInterval is the time between two moves: 60 a minute.
const moveInterval = time.Second

func newOurs(weights map[string]uint32, auto bool, log *slog.Logger) *ours {
	s := &ours{auto: auto, log: log, settings: steering.Settings{
		Domains: []string{domain}, Workers: workers(weights),
		SilentAfter: silentAfter, Settle: 15 * time.Second, RetryWindow: 10 * time.Minute,
		StickyTolerance: 0.1, Memory: 24 * time.Hour,
	}}
	s.table = steering.New(s.settings)
	return s
}

func workers(weights map[string]uint32) map[string]steering.Worker {
	workers := make(map[string]steering.Worker, len(weights))
	for name, weight := range weights {
		workers[name] = steering.Worker{Weight: weight}
	}
	return workers
}

func (s *ours) status(worker string, online bool, now time.Time) {
	if online {
		s.table.SetData(worker, domain, report.Data{
			ExternalAddress: worker, Port: 40000, LinkAddress: netip.MustParseAddr("fe80::1"),
		})
	}
	s.table.SetStatus(worker, online, now)
	if s.moving && !online {
		s.stopMoving()
	}
}

func (s *ours) peers(worker string, count int, now time.Time) {
	s.table.SetPeers(worker, domain, count, now)
}

func (s *ours) seen(worker string, handshakes []report.Handshake, now time.Time) {
	s.table.Seen(worker, domain, handshakes, now)
}

func (s *ours) ask(key peer.Key, now time.Time) (string, bool) {
	a, ok := s.table.Assign(steering.Ask{Domain: domain, Key: key}, now)
	return a.Worker, ok
}

func (s *ours) weigh(weights map[string]uint32) {
	s.settings.Workers = workers(weights)
	s.table.Configure(s.settings)
}

func (s *ours) tick(now time.Time) []steering.Move {
	s.table.Look(now, s.log.With("at", now.Sub(epoch)))
	if !s.auto {
		return nil
	}
	return s.rebalance(now)
}

// rebalance is what the server does with auto_rebalance.
func (s *ours) rebalance(now time.Time) []steering.Move {
	switch {
	case s.moving && now.Sub(epoch)%moveInterval == 0:
		move, left, ok := s.table.Rebalance(steering.Even, now)
		if ok {
			return []steering.Move{move}
		}
		if left == 0 {
			s.stopMoving()
		}
	case !s.moving:
		s.moving = s.patience.Ends(s.table.Imbalance, now)
	}
	return nil
}

// stopMoving ends the moves, as the server also does when a worker goes offline.
func (s *ours) stopMoving() {
	s.moving = false
	s.patience.Renew()
}

// plain is the weighting without a memory: a worker's peers are its last count and the
// nodes that were sent there since, and the next count takes the place of both.
type plain struct {
	weights map[string]uint32
	workers []*plainWorker
	// sent is where the nodes are that were sent somewhere since its last count.
	sent map[peer.Key]*plainWorker
}

type plainWorker struct {
	name   string
	online bool
	count  int
	heard  time.Time
	sent   map[peer.Key]struct{}
}

func newPlain(weights map[string]uint32) *plain {
	return &plain{weights: weights, sent: make(map[peer.Key]*plainWorker)}
}

func (s *plain) worker(name string) *plainWorker {
	for _, w := range s.workers {
		if w.name == name {
			return w
		}
	}
	w := &plainWorker{name: name, sent: make(map[peer.Key]struct{})}
	s.workers = append(s.workers, w)
	return w
}

// settle forgets who was sent to the worker.
func (s *plain) settle(w *plainWorker) {
	for key := range w.sent {
		delete(s.sent, key)
	}
	clear(w.sent)
}

func (s *plain) status(worker string, online bool, _ time.Time) {
	w := s.worker(worker)
	w.online = online
	if !online {
		s.settle(w)
	}
}

func (s *plain) peers(worker string, count int, now time.Time) {
	w := s.worker(worker)
	s.settle(w)
	w.count, w.heard = count, now
}

func (s *plain) ask(key peer.Key, now time.Time) (string, bool) {
	if before := s.sent[key]; before != nil {
		delete(before.sent, key)
	}
	var candidates []loadbalance.Candidate
	for _, w := range s.workers {
		if w.online && !w.heard.IsZero() && now.Sub(w.heard) < silentAfter {
			candidates = append(candidates, loadbalance.Candidate{
				Name: w.name, Weight: s.weights[w.name], Peers: uint32(w.count + len(w.sent)),
			})
		}
	}
	chosen, ok := loadbalance.Choose(candidates)
	if !ok {
		return "", false
	}
	w := s.worker(chosen.Name)
	w.sent[key], s.sent[key] = struct{}{}, w
	return w.name, true
}

func (s *plain) weigh(weights map[string]uint32) { s.weights = weights }

func (s *plain) seen(string, []report.Handshake, time.Time) {}
func (s *plain) tick(time.Time) []steering.Move             { return nil }
