package steering

import (
	"math"
	"slices"
	"sync"
	"time"

	"wgsteer/internal/peer"
	"wgsteer/internal/report"
	"wgsteer/loadbalance"
)

// Table is what the server knows of its workers.
type Table struct {
	weight      func(worker string) uint32
	silentAfter time.Duration

	mu      sync.Mutex
	workers map[string]*worker
	// domains has an entry for every configured domain and no other.
	domains map[string]*domain
	// assigned has, for every key that was sent to a worker since the worker's last
	// report for the domain, where it was sent: a key counts once, however often it asks.
	assigned map[peer.Key]*offer
	// workerKeys counts the offers that have a key as the worker's own.
	workerKeys map[peer.Key]int
}

// worker is a gateway as the wire names it.
type worker struct {
	name   string
	weight uint32
	online bool
	// announced tells whether it was logged that the worker is there.
	announced bool
	// heard is when its last count of connected peers came in, and silent whether that
	// was too long ago. It may be online all the same: its session is up.
	heard  time.Time
	silent bool
	// again tells whether it reported after having been silent, which is yet to be logged.
	again  bool
	offers []*offer
}

// offer is what one worker reported for one domain.
type offer struct {
	worker *worker
	domain *domain
	data   report.Data
	// hasData tells whether data was ever reported.
	hasData bool
	// reported is the last count of connected peers: report.Leaving, too, before the
	// first one.
	reported int
	// assigned are the keys sent here since that count.
	assigned map[peer.Key]struct{}
}

// domain is a mesh segment and the workers that reported anything for it.
type domain struct {
	name   string
	offers []*offer
	// served tells whether any worker offered it when that was last logged.
	served bool
	// offering and candidates are the offers that can be chosen now, and room to
	// lay them before loadbalance, kept so that a choice allocates nothing.
	offering   []*offer
	candidates []loadbalance.Candidate
}

// NewTable returns a table of the given domains that knows no worker yet. The
// weight of a worker is asked for once, when the worker is first heard of. A worker
// that has not reported for silentAfter is not chosen; zero is never.
func NewTable(domains []string, weight func(worker string) uint32, silentAfter time.Duration) *Table {
	t := &Table{
		weight: weight, silentAfter: silentAfter,
		workers:    make(map[string]*worker),
		domains:    make(map[string]*domain, len(domains)),
		assigned:   make(map[peer.Key]*offer),
		workerKeys: make(map[peer.Key]int),
	}
	for _, name := range domains {
		t.domains[name] = &domain{name: name}
	}
	return t
}

// Knows tells whether the domain is configured.
func (t *Table) Knows(domain string) bool {
	_, known := t.domains[domain] // never changed after NewTable
	return known
}

// SetStatus records that the worker is online or offline. It returns whether that
// is news.
func (t *Table) SetStatus(name string, online bool) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.worker(name)
	if w.online == online {
		return false
	}
	w.online = online
	for _, o := range w.offers {
		if !online {
			t.forgetAssigned(o)
		}
		o.domain.refresh()
	}
	return true
}

// SetData records how nodes reach the worker in the domain. A domain that is not
// configured is left out.
func (t *Table) SetData(name, domain string, data report.Data) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.offer(name, domain)
	if o == nil {
		return
	}
	if o.hasData {
		t.releaseKey(o.data.PublicKey)
	}
	o.data, o.hasData = data, true
	t.workerKeys[data.PublicKey]++
	o.domain.refresh()
}

func (t *Table) releaseKey(key peer.Key) {
	if t.workerKeys[key]--; t.workerKeys[key] == 0 {
		delete(t.workerKeys, key)
	}
}

// SetPeers records the worker's count of connected peers in the domain, or
// report.Leaving, as reported now. The nodes that were sent there before are part of
// the count from now on.
func (t *Table) SetPeers(name, domain string, peers int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	o := t.offer(name, domain)
	if o == nil {
		return
	}
	t.forgetAssigned(o)
	o.reported = peers
	o.worker.hear(now)
	o.domain.refresh()
}

// IsWorkerKey tells whether a worker reported the key as its own.
func (t *Table) IsWorkerKey(key peer.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.workerKeys[key] > 0
}

// Assignment is where a key was sent.
type Assignment struct {
	Worker string
	// Data is how the node reaches the worker.
	Data report.Data
}

// Assign picks the worker that the node with this key should use in the domain, and
// counts the node as the worker's from now on. A key that asks again moves: it
// counts once. ok is false when no worker offers the domain.
func (t *Table) Assign(domain string, key peer.Key) (a Assignment, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.domains[domain]
	if d == nil || len(d.offering) == 0 {
		return Assignment{}, false
	}
	if before := t.assigned[key]; before != nil {
		delete(before.assigned, key)
	}
	chosen := d.offering[loadbalance.Index(d.lay())]
	chosen.assigned[key] = struct{}{}
	t.assigned[key] = chosen
	return Assignment{Worker: chosen.worker.name, Data: chosen.data}, true
}

// Unserved returns the configured domains that no worker offers, sorted by name.
func (t *Table) Unserved() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	unserved := []string{}
	for name, d := range t.domains {
		if len(d.offering) == 0 {
			unserved = append(unserved, name)
		}
	}
	slices.Sort(unserved)
	return unserved
}

// worker returns the worker of this name, which may be new.
func (t *Table) worker(name string) *worker {
	w := t.workers[name]
	if w == nil {
		w = &worker{name: name, weight: t.weight(name)}
		t.workers[name] = w
	}
	return w
}

// offer returns the worker's offer for the domain, which may be new, or nil when
// the domain is not configured.
func (t *Table) offer(name, domain string) *offer {
	d := t.domains[domain]
	if d == nil {
		return nil
	}
	w := t.worker(name)
	for _, o := range w.offers {
		if o.domain == d {
			return o
		}
	}
	o := &offer{worker: w, domain: d, reported: report.Leaving, assigned: make(map[peer.Key]struct{})}
	w.offers = append(w.offers, o)
	d.offers = append(d.offers, o)
	return o
}

func (t *Table) forgetAssigned(o *offer) {
	for key := range o.assigned {
		delete(t.assigned, key)
	}
	clear(o.assigned)
}

// peers is what the worker carries: the counts of all its domains and the nodes
// that were sent there since.
func (w *worker) peers() uint32 {
	total := 0
	for _, o := range w.offers {
		total += max(o.reported, 0) + len(o.assigned)
	}
	return uint32(min(total, math.MaxUint32))
}

// offered tells whether nodes can be sent there.
func (o *offer) offered() bool {
	return o.worker.online && !o.worker.silent && o.hasData && o.reported >= 0
}

// refresh finds anew which offers can be chosen.
func (d *domain) refresh() {
	d.offering = d.offering[:0]
	for _, o := range d.offers {
		if o.offered() {
			d.offering = append(d.offering, o)
		}
	}
}

// lay returns the offers that can be chosen as candidates, in the same order.
func (d *domain) lay() []loadbalance.Candidate {
	d.candidates = d.candidates[:0]
	for _, o := range d.offering {
		d.candidates = append(d.candidates, loadbalance.Candidate{
			Name: o.worker.name, Weight: o.worker.weight, Peers: o.worker.peers(),
		})
	}
	return d.candidates
}
