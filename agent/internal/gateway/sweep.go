package gateway

import (
	"time"

	"wgsteer/internal/config"
	"wgsteer/internal/peer"
)

// sweep removes the peers of ours that are stale.
func (d *domain) sweep(now time.Time) {
	links, device, usable := d.look(now)
	if !usable {
		d.forget(now)
		return
	}
	var todo plan
	for _, p := range device.Peers {
		address, ours := p.ours()
		w, known := d.desired[p.Key]
		if !ours || !known || !stale(p, w, d.agent, now) || d.isPending(p.Key) {
			continue
		}
		delete(d.desired, p.Key)
		todo.remove(p.Key, address, links)
	}
	if todo.empty() {
		return
	}
	if !d.execute(todo, links) {
		d.due.reconcileBy(now.Add(minRetry))
	}
	d.log.Info("removed stale peers", "peers", len(todo.oldPeers), "left", len(d.desired))
}

// isPending tells whether there is news of the key that is yet to be taken: its node has
// just asked, say.
func (d *domain) isPending(key peer.Key) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, pending := d.pending[key]
	return pending
}

// stale tells whether the peer has been unused for so long that its node is gone. One
// whose node asked within unused_after is not: that node is about to connect, however
// old its last handshake.
func stale(p Peer, w want, agent config.Agent, now time.Time) bool {
	switch {
	case now.Sub(w.received) <= agent.UnusedAfter:
		return false
	case p.LastHandshake.IsZero():
		return now.Sub(w.added) > agent.UnusedAfter
	}
	return now.Sub(p.LastHandshake) >= agent.StaleAfter
}

// forget drops keys of a domain whose interfaces are missing, so that the keys of one
// that is configured here but never set up do not pile up. An interface that is back
// within stale_after gets all its peers back.
func (d *domain) forget(now time.Time) {
	old := func(t time.Time) bool { return now.Sub(t) >= d.agent.StaleAfter }
	for key, w := range d.desired {
		if old(d.state.usableAt) && old(w.added) && old(w.received) {
			delete(d.desired, key)
		}
	}
}
