package steering

import (
	"math"
	"slices"
	"sync"
	"time"

	"wgsteer/internal/peer"
	"wgsteer/internal/report"
)

// Settings are what an operator decides. All of them can be changed later.
type Settings struct {
	// Domains are those that are configured.
	Domains []string
	// Workers are those that are configured, by name. Others have weight 1.
	Workers map[string]Worker
	// SilentAfter is the age of a worker's last report from which on it is not chosen.
	// Zero: any age will do.
	SilentAfter time.Duration
	// Settle is how long after an assignment a report can contain it.
	Settle time.Duration
	// RetryWindow is within what time a node that asks again had no luck where it was
	// sent, and for how long it is not sent there then.
	RetryWindow time.Duration
	// StickyTolerance is how far above its target a worker may be, as a part of the
	// target, for nodes to go back to it that had their tunnel there. It may be one peer in
	// any case.
	StickyTolerance float64
	// Memory is how long a node is remembered that is not heard of.
	Memory time.Duration
}

// Worker is what is configured for a worker.
type Worker struct {
	// Weight is its share of the peers, relative to other workers' weights.
	Weight uint32
	// Location is where it is, for nodes that prefer one. Empty: nowhere.
	Location string
}

// Table is what the server knows of its workers and of where nodes are.
type Table struct {
	mu       sync.Mutex
	settings Settings
	workers  map[string]*worker
	// domains has an entry for every configured domain and no other.
	domains map[string]*domain
	// workerKeys counts the offers that have a key as the worker's own.
	workerKeys map[peer.Key]int
	// drained are the workers that get no new nodes; it can name workers that are not
	// known yet.
	drained map[string]struct{}
	// waiting are the assignments whose outcome is not known yet, the oldest first.
	waiting []waiting
	// news are the changes of suspicion that are yet to be logged.
	news []Suspicion
	// forgotAt is when nodes were last forgotten.
	forgotAt time.Time
}

// worker is a gateway as the wire names it.
type worker struct {
	Worker
	name    string
	online  bool
	drained bool
	// announced tells whether it was logged that the worker is there.
	announced bool
	// heard is when its last count of connected peers came in, and silent whether that
	// was too long ago. It may be online all the same: its session is up.
	heard  time.Time
	silent bool
	// again tells whether it reported after having been silent, which is yet to be logged.
	again  bool
	offers []*offer
	record record
	influx influx
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
	// inFlight are the nodes that were sent here and that reported cannot contain yet.
	inFlight map[*node]struct{}
	// claims are what the worker says of nodes, and ghosts how many of them are not true:
	// reported contains those all the same.
	claims map[*node]*claim
	ghosts int
	// excluded is why the last choice left it out, for Explain.
	excluded exclusion
}

// domain is a mesh segment and the workers that reported anything for it.
type domain struct {
	name   string
	offers []*offer
	// nodes are what is known of its nodes: one that has tunnels in two domains is two.
	nodes map[peer.Key]*node
	// served tells whether any worker offered it when that was last logged.
	served bool
	// offering are the offers that nodes can be sent to now.
	offering []*offer
	// room is where a choice is made, kept so that it allocates nothing.
	room room
}

// New returns a table that knows no worker yet.
func New(settings Settings) *Table {
	t := &Table{
		workers:    make(map[string]*worker),
		domains:    make(map[string]*domain, len(settings.Domains)),
		workerKeys: make(map[peer.Key]int),
		drained:    make(map[string]struct{}),
	}
	t.Configure(settings)
	return t
}

// Configure changes the settings. Domains are added; those that are not listed any more
// stay.
func (t *Table) Configure(settings Settings) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.settings = settings
	for _, name := range settings.Domains {
		if t.domains[name] == nil {
			t.domains[name] = &domain{name: name, nodes: make(map[peer.Key]*node)}
		}
	}
	for name, w := range t.workers {
		w.Worker = t.configured(name)
	}
}

// Knows tells whether the domain is configured.
func (t *Table) Knows(domain string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.domains[domain] != nil
}

// SetStatus records that the worker is online or offline. It returns whether that
// is news.
func (t *Table) SetStatus(name string, online bool, now time.Time) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	w := t.worker(name)
	if w.online == online {
		return false
	}
	w.online = online
	for _, o := range w.offers {
		if !online {
			t.lose(o, now)
		}
		o.domain.refresh()
	}
	if !online {
		w.record.lose()
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
// report.Leaving, as reported now. It contains the nodes that were sent there long enough
// ago.
func (t *Table) SetPeers(name, domain string, peers int, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.advance(now)
	o := t.offer(name, domain)
	if o == nil {
		return
	}
	for n := range o.inFlight {
		if t.contains(n, now) {
			n.inFlight = false
			delete(o.inFlight, n)
			if n.expected { // it did not come
				n.arrive(nil)
			}
		}
	}
	for _, c := range o.claims {
		if c.ghost && (c.hasLeft || !now.Before(c.until)) {
			c.drop()
		}
	}
	o.reported = peers
	o.worker.hear(now)
	o.domain.refresh()
	t.judgeByCount(o.worker, now)
}

// contains tells whether a report that comes in now can contain the node, which is in
// flight. A worker that tells which nodes are connected says so before it reports their
// count: those that it told are in it.
func (t *Table) contains(n *node, now time.Time) bool {
	age := now.Sub(n.sent)
	if n.expected {
		return age >= t.settings.RetryWindow
	}
	return n.seen || age >= t.settings.Settle
}

// IsWorkerKey tells whether a worker reported the key as its own.
func (t *Table) IsWorkerKey(key peer.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.workerKeys[key] > 0
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

// Offering returns the configured domains, and how many workers nodes can be sent to in each.
func (t *Table) Offering() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	offering := make(map[string]int, len(t.domains))
	for name, d := range t.domains {
		offering[name] = len(d.offering)
	}
	return offering
}

// Drain takes the worker out of the choice, as long as others are there, or back in. It
// may be one that is not known yet. It returns whether that is news.
func (t *Table) Drain(name string, drained bool) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, before := t.drained[name]
	if drained {
		t.drained[name] = struct{}{}
	} else {
		delete(t.drained, name)
	}
	if w := t.workers[name]; w != nil {
		w.drained = drained
	}
	return before != drained
}

// configured is what is configured for a worker.
func (t *Table) configured(name string) Worker {
	if w, listed := t.settings.Workers[name]; listed {
		return w
	}
	return Worker{Weight: 1}
}

// worker returns the worker of this name, which may be new.
func (t *Table) worker(name string) *worker {
	w := t.workers[name]
	if w == nil {
		w = &worker{name: name, Worker: t.configured(name), record: newRecord()}
		_, w.drained = t.drained[name]
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
	if o := d.offerOf(w); o != nil {
		return o
	}
	o := &offer{
		worker: w, domain: d, reported: report.Leaving,
		inFlight: make(map[*node]struct{}), claims: make(map[*node]*claim),
	}
	w.offers = append(w.offers, o)
	d.offers = append(d.offers, o)
	return o
}

// offerOf returns the worker's offer for the domain, or nil.
func (d *domain) offerOf(w *worker) *offer {
	for _, o := range w.offers {
		if o.domain == d {
			return o
		}
	}
	return nil
}

// reported is what the worker reported for all its domains.
func (w *worker) reported() int {
	total := 0
	for _, o := range w.offers {
		total += max(o.reported, 0)
	}
	return total
}

// inFlight is how many peers more, or fewer, the worker has for all its domains than it
// reported.
func (w *worker) inFlight() int {
	total := 0
	for _, o := range w.offers {
		total += len(o.inFlight) - min(o.ghosts, max(o.reported, 0))
	}
	return total
}

// connected is how many nodes have their tunnel to the worker, as far as it says so.
func (w *worker) connected() int {
	total := 0
	for _, o := range w.offers {
		total += len(o.claims) - o.ghosts
	}
	return total
}

// peers is what the worker carries without the node, which may be nil.
func (w *worker) peers(without *node) uint32 {
	total := w.reported() + w.inFlight()
	if n := without; n != nil && (n.inFlight && n.at.worker == w || n.tunnel != nil && n.tunnel.offer.worker == w) {
		total--
	}
	return uint32(min(max(total, 0), math.MaxUint32))
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
