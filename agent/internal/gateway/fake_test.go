package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"wgsteer/internal/config"
	"wgsteer/internal/logtest"
	"wgsteer/internal/peer"
)

// fakeKernel is a kernel with the interfaces of one domain. Its fields are changed
// with change, and read in the same way.
type fakeKernel struct {
	mu      sync.Mutex
	links   Links
	device  Device // without its peers
	noWG    bool
	peers   map[peer.Key]Peer
	routes  map[netip.Addr]Route
	entries map[Entry]bool
	// broken are the addresses for which changes of these kinds ("peer", "route",
	// "entry", "removal" of a peer) fail.
	broken map[string]netip.Addr
	// dumpErr is the answer to reading routes.
	dumpErr error
	// block, when not nil, is received from by every SetPeers.
	block chan struct{}
	// calls are the changes that were made, as "set 3 peers".
	calls   []string
	changed func(Change)
	// looks and comparisons are how often peers and routes were read.
	looks, comparisons int
}

const (
	wgIndex = 7
	vxIndex = 8
)

var (
	ownPublicKey = testKey(255)
	ownAddress   = peer.WGKex.LinkAddress(ownPublicKey)
)

func testKey(n int) peer.Key {
	return peer.Key{0: 1, 29: byte(n >> 16), 30: byte(n >> 8), 31: byte(n)}
}

func newFakeKernel() *fakeKernel {
	return &fakeKernel{
		links: Links{
			WireGuard: wgIndex, VXLAN: vxIndex, Up: true, IsVXLAN: true,
			Addresses: []Address{{IP: ownAddress}},
		},
		device:  Device{PublicKey: ownPublicKey, Port: 40011},
		peers:   make(map[peer.Key]Peer),
		routes:  make(map[netip.Addr]Route),
		entries: make(map[Entry]bool),
		broken:  make(map[string]netip.Addr),
	}
}

// change changes the kernel behind the gateway's back.
func (k *fakeKernel) change(do func(k *fakeKernel)) {
	k.mu.Lock()
	defer k.mu.Unlock()
	do(k)
}

// addPeer adds a peer with these allowed IPs behind the gateway's back.
func (k *fakeKernel) addPeer(key peer.Key, handshake time.Time, allowed ...netip.Addr) {
	k.change(func(k *fakeKernel) {
		p := Peer{Key: key, LastHandshake: handshake}
		for _, a := range allowed {
			p.AllowedIPs = append(p.AllowedIPs, netip.PrefixFrom(a, 128))
		}
		k.peers[key] = p
	})
}

func (k *fakeKernel) Links(_, _ string) (Links, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.links, nil
}

func (k *fakeKernel) Device(name string) (Device, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.looks++
	if k.noWG || k.links.WireGuard == 0 {
		return Device{}, fmt.Errorf("read %s: %w", name, ErrNoDevice)
	}
	d := k.device
	for _, p := range k.peers {
		d.Peers = append(d.Peers, p)
	}
	return d, nil
}

func (k *fakeKernel) Routes(int) ([]Route, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.comparisons++
	var all []Route
	for _, r := range k.routes {
		all = append(all, r)
	}
	return all, k.dumpErr
}

func (k *fakeKernel) Entries(int) ([]Entry, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	var all []Entry
	for e := range k.entries {
		all = append(all, e)
	}
	return all, nil
}

// each does something with each of n things, and fails for those that are broken.
func (k *fakeKernel) each(kind, call string, n int, address func(i int) netip.Addr, do func(i int)) []error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls = append(k.calls, fmt.Sprintf("%s %d", call, n))
	errs := make([]error, n)
	for i := range n {
		if a := address(i); k.broken[kind] == a && a.IsValid() {
			errs[i] = fmt.Errorf("%s %v: broken", call, a)
			continue
		}
		do(i)
	}
	return errs
}

func (k *fakeKernel) SetPeers(_ string, peers []NewPeer) []error {
	if k.block != nil {
		<-k.block
	}
	return k.each("peer", "set peers", len(peers), func(i int) netip.Addr { return peers[i].Address }, func(i int) {
		p := k.peers[peers[i].Key]
		p.Key, p.AllowedIPs = peers[i].Key, []netip.Prefix{netip.PrefixFrom(peers[i].Address, 128)}
		k.peers[p.Key] = p
	})
}

func (k *fakeKernel) RemovePeers(_ string, keys []peer.Key) []error {
	return k.each("removal", "remove peers", len(keys), func(i int) netip.Addr { return peer.WGKex.LinkAddress(keys[i]) }, func(i int) {
		delete(k.peers, keys[i])
	})
}

func (k *fakeKernel) AddRoutes(_ int, to []netip.Addr) []error {
	return k.each("route", "add routes", len(to), func(i int) netip.Addr { return to[i] }, func(i int) {
		if _, there := k.routes[to[i]]; !there {
			k.routes[to[i]] = Route{To: to[i], Ours: true}
		}
	})
}

func (k *fakeKernel) RemoveRoutes(_ int, routes []Route) []error {
	return k.each("", "remove routes", len(routes), func(int) netip.Addr { return netip.Addr{} }, func(i int) {
		if r := k.routes[routes[i].To]; r.Ours || !routes[i].Ours {
			delete(k.routes, routes[i].To)
		}
	})
}

func (k *fakeKernel) AddEntries(_ int, entries []Entry) []error {
	return k.each("entry", "add entries", len(entries), func(i int) netip.Addr { return entries[i].To }, func(i int) {
		k.entries[entries[i]] = true
	})
}

func (k *fakeKernel) RemoveEntries(_ int, entries []Entry) []error {
	return k.each("", "remove entries", len(entries), func(int) netip.Addr { return netip.Addr{} }, func(i int) {
		for e := range k.entries {
			if e == entries[i] || entries[i].Lost && e.To == entries[i].To {
				delete(k.entries, e)
			}
		}
	})
}

func (k *fakeKernel) Watch(ctx context.Context, changed func(Change)) error {
	k.change(func(k *fakeKernel) { k.changed = changed })
	<-ctx.Done()
	return nil
}

// event tells the gateway of a change.
func (k *fakeKernel) event(c Change) {
	k.mu.Lock()
	changed := k.changed
	k.mu.Unlock()
	changed(c)
}

// complete returns an error unless exactly these keys are there, with all that belongs
// to them, at their addresses of the default scheme.
func (k *fakeKernel) complete(keys ...peer.Key) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var wrong []string
	for _, key := range keys {
		address := peer.WGKex.LinkAddress(key)
		if p := k.peers[key]; len(p.AllowedIPs) != 1 || p.AllowedIPs[0].Addr() != address {
			wrong = append(wrong, fmt.Sprintf("peer %v is %+v", key, p))
		}
		if _, ok := k.routes[address]; !ok {
			wrong = append(wrong, fmt.Sprintf("no route to %v", address))
		}
		if !k.entries[Entry{To: address, Via: k.links.WireGuard}] {
			wrong = append(wrong, fmt.Sprintf("no FDB entry for %v", address))
		}
	}
	if n := len(keys); len(k.peers) != n || len(k.routes) != n || len(k.entries) != n {
		wrong = append(wrong, fmt.Sprintf("%d peers, %d routes, %d entries, want %d of each",
			len(k.peers), len(k.routes), len(k.entries), n))
	}
	if wrong != nil {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

// made returns the changes that were made since the last call.
func (k *fakeKernel) made() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	made := k.calls
	k.calls = nil
	return made
}

// reads returns how often peers were read, and how often routes.
func (k *fakeKernel) reads() (looks, comparisons int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.looks, k.comparisons
}

const testDomain = "ffmuc_welt"

var testAgent = config.Agent{
	ExternalName: "gw04.ext.ffmuc.net", ReportInterval: time.Minute, SweepInterval: time.Hour,
	StaleAfter: 3 * time.Hour, UnusedAfter: 10 * time.Minute,
}

// running is a gateway at work in a bubble of time.
type running struct {
	*Gateway
	kernel *fakeKernel
	log    *lines
}

// run runs a test with a gateway on the kernel, whose time passes as the test sleeps.
func run(t *testing.T, kernel *fakeKernel, test func(t *testing.T, g running)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		log := &lines{}
		cfg := &config.Config{
			Domains: []config.Domain{{Name: testDomain, WireGuard: "wg-welt", VXLAN: "vx-welt"}},
			Agent:   testAgent,
		}
		g := running{New(cfg, kernel, slog.New(slog.NewTextHandler(log, nil))), kernel, log}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- g.Run(ctx) }()
		synctest.Wait()
		test(t, g)
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// pass lets time pass, and everything happen that is due by then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// lines is a log.
type lines struct{ logtest.Buffer }

// count returns how many lines hold all the texts.
func (l *lines) count(texts ...string) int {
	count := 0
	for line := range strings.Lines(l.String()) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			count++
		}
	}
	return count
}

// once fails the test unless exactly one line holds the texts.
func (l *lines) once(t *testing.T, texts ...string) {
	t.Helper()
	if n := l.count(texts...); n != 1 {
		t.Errorf("the log says %q %d times, want once, in:\n%s", texts, n, l.String())
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}
