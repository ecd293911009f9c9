package gateway

import (
	"log/slog"
	"net/netip"
	"sync"

	"wgsteer/internal/peer"
)

// plan is what has to be done for a domain.
type plan struct {
	// lost goes first: removing these may take some of entries away.
	lost []Entry

	peers   []NewPeer
	routes  []netip.Addr
	entries []Entry

	oldEntries []Entry
	oldRoutes  []Route
	oldPeers   []peer.Key
}

func (p plan) empty() bool {
	return len(p.lost)+len(p.peers)+len(p.routes)+len(p.entries)+len(p.oldEntries)+len(p.oldRoutes)+len(p.oldPeers) == 0
}

// remove plans to take a peer of ours apart that is at this address. Whose protocol number
// its route has does not matter: wgkex, which may have made it, uses another one.
func (p *plan) remove(key peer.Key, address netip.Addr, links Links) {
	p.oldEntries = append(p.oldEntries, Entry{To: address, Via: links.WireGuard})
	p.oldRoutes = append(p.oldRoutes, Route{To: address})
	p.oldPeers = append(p.oldPeers, key)
}

// execute does what is planned. It tells whether all went well; what did not is left
// to the next comparison.
func (d *domain) execute(todo plan, links Links) bool {
	k, wg := d.kernel, d.names.WireGuard
	failed, last := 0, error(nil)
	note := func(errs []error) {
		for _, err := range errs {
			if err != nil {
				failed, last = failed+1, err
			}
		}
	}
	note(onSome(todo.lost, func(e []Entry) []error { return k.RemoveEntries(links.VXLAN, e) }))
	// WireGuard takes most of the time, and the kernel's routes and entries do not wait for it.
	var adding sync.WaitGroup
	var peerErrs []error
	adding.Go(func() {
		peerErrs = onSome(todo.peers, func(peers []NewPeer) []error { return k.SetPeers(wg, peers) })
	})
	note(onSome(todo.routes, func(to []netip.Addr) []error { return k.AddRoutes(links.WireGuard, to) }))
	note(onSome(todo.entries, func(e []Entry) []error { return k.AddEntries(links.VXLAN, e) }))
	adding.Wait()
	note(peerErrs)
	// A peer is taken apart in this order, so that nothing is flooded to or routed to a
	// peer that is gone.
	note(onSome(todo.oldEntries, func(e []Entry) []error { return k.RemoveEntries(links.VXLAN, e) }))
	note(onSome(todo.oldRoutes, func(r []Route) []error { return k.RemoveRoutes(links.WireGuard, r) }))
	note(onSome(todo.oldPeers, func(keys []peer.Key) []error { return k.RemovePeers(wg, keys) }))
	if failed > 0 {
		d.trouble.note(d.log, failed, last)
	}
	return failed == 0
}

// onSome calls do unless there is nothing to do it with.
func onSome[T any](things []T, do func([]T) []error) []error {
	if len(things) == 0 {
		return nil
	}
	return do(things)
}

// trouble is what goes wrong in a domain. Failures are retried for as long as they
// last, so each is logged when it begins, not at every try.
type trouble struct {
	// failures counts operations that failed.
	failures uint64
	last     string
}

func (t *trouble) note(log *slog.Logger, failed int, last error) {
	t.failures += uint64(failed)
	if text := last.Error(); t.last != text {
		t.last = text
		log.Warn("changing the kernel failed; retrying", "operations", failed, "failures", t.failures, "error", last)
	}
}

// over notes that everything is as it should be.
func (t *trouble) over(log *slog.Logger) {
	if t.last != "" {
		log.Info("everything is applied again", "failures", t.failures)
	}
	t.last = ""
}
