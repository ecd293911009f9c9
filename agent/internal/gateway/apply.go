package gateway

import (
	"bytes"
	"maps"
	"net/netip"
	"slices"
	"time"

	"wgsteer/internal/peer"
)

// add takes a key that was received. It does not block.
func (d *domain) add(key peer.Key, origin Origin) {
	if key != (peer.Key{}) && d.accept(key, origin, time.Now()) {
		signal(d.wake)
	}
}

// accept makes a key pending, unless it is to stay out.
func (d *domain) accept(key peer.Key, origin Origin, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case origin == FromExchange:
		delete(d.evicted, key)
		d.handshakes.ask(key, now)
	case d.evicted.hold(key, now):
		return false
	}
	d.pending[key] = arrival{at: now}
	return true
}

// take moves the pending keys into the desired set or out of it, and returns them in
// their order.
func (d *domain) take(now time.Time) (added, evicted []peer.Key) {
	d.mu.Lock()
	pending := d.pending
	d.pending = make(map[peer.Key]arrival)
	d.evicted.forget(now)
	d.mu.Unlock()
	for _, key := range inOrder(maps.Keys(pending)) {
		received := pending[key]
		if received.evicted {
			delete(d.desired, key)
			evicted = append(evicted, key)
			continue
		}
		w, known := d.desired[key]
		if !known {
			w = want{address: d.agent.LinkAddress.LinkAddress(key), added: received.at}
		}
		w.received = received.at
		d.desired[key] = w
		added = append(added, key)
	}
	if len(evicted) > 0 {
		d.due.countBy(now.Add(countSoon))
	}
	return added, evicted
}

// inOrder sorts keys, so that what fails again is reported as the same.
func inOrder(keys func(func(peer.Key) bool)) []peer.Key {
	return slices.SortedFunc(keys, func(a, b peer.Key) int { return bytes.Compare(a[:], b[:]) })
}

// apply brings all pending keys into the kernel as one batch. What arrives meanwhile
// collects for the next one: the more there is to do, the larger the batches. Routes
// and FDB entries are not read before, for adding one that is there costs little.
func (d *domain) apply(now time.Time) {
	keys, evicted := d.take(now)
	if len(keys)+len(evicted) == 0 || !d.state.usable {
		return // not usable: the comparison that finds it usable applies them
	}
	links, device, usable := d.look(now)
	if !usable {
		d.due.afterEvent(now)
		return
	}
	c := takeCensus(device.Peers)
	if !d.expel(evicted, c, links) {
		d.due.reconcileBy(now.Add(minRetry))
	}
	if len(keys) == 0 {
		return
	}
	d.refuse(keys, links, device, c)
	var todo plan
	for _, key := range keys {
		w, wanted := d.desired[key]
		at, there := c.ours[key]
		switch {
		case !wanted:
			continue
		case !there:
			todo.peers = append(todo.peers, NewPeer{Key: key, Address: w.address})
		case at != w.address: // moving it takes more than this batch knows
			d.due.reconcileBy(now)
			continue
		}
		todo.routes = append(todo.routes, w.address)
		todo.entries = append(todo.entries, Entry{To: w.address, Via: links.WireGuard})
	}
	if d.execute(todo, links) {
		d.log.Debug("keys applied", "keys", len(keys), "new", len(todo.peers), "took", time.Since(now))
	} else {
		d.due.reconcileBy(now.Add(minRetry))
	}
}

// reconcile compares the whole desired set with what is there, and makes it so.
func (d *domain) reconcile(now time.Time) {
	d.take(now)
	links, device, usable := d.look(now)
	if !usable {
		d.due.afterFailure(now)
		return
	}
	c := takeCensus(device.Peers)
	expelled := d.expel(d.evictees(c, now), c, links)
	routes, err := d.kernel.Routes(links.WireGuard)
	if err != nil {
		d.fail(now, err)
		return
	}
	entries, err := d.kernel.Entries(links.VXLAN)
	if err != nil {
		d.fail(now, err)
		return
	}
	d.adopt(c, now)
	d.refuse(inOrder(maps.Keys(d.desired)), links, device, c)
	todo := compare(d.desired, c, links.WireGuard, routes, entries)
	for _, p := range todo.peers {
		// A peer that has to be put back has its time to connect once more.
		w := d.desired[p.Key]
		w.added = now
		d.desired[p.Key] = w
	}
	if !d.execute(todo, links) || !expelled {
		d.due.afterFailure(now)
		return
	}
	d.trouble.over(d.log)
	if d.latest().Offered {
		d.due.afterSuccess(now)
	} else {
		d.due.afterFailure(now) // no event tells when a key or a port is set
	}
	if !todo.empty() {
		d.log.Info("reconciled", "peers", len(todo.peers), "routes", len(todo.routes), "fdb_entries", len(todo.entries),
			"routes_removed", len(todo.oldRoutes), "fdb_entries_removed", len(todo.oldEntries)+len(todo.lost))
	}
}

// fail notes a failure to read, which stops the comparison.
func (d *domain) fail(now time.Time, err error) {
	d.trouble.note(d.log, 1, err)
	d.due.afterFailure(now)
}

// compare returns what has to be done so that the desired set is there and nothing
// else of ours. The desired set holds every peer of the census that is ours.
func compare(desired map[peer.Key]want, c census, wireGuard int, routes []Route, entries []Entry) plan {
	var todo plan
	there := takeStock(wireGuard, routes, entries)
	wanted := make(map[netip.Addr]bool, len(desired))
	released := make(map[netip.Addr]bool) // addresses that our peers are moved from
	for _, key := range inOrder(maps.Keys(desired)) {
		address := desired[key].address
		wanted[address] = true
		if at := c.ours[key]; at != address {
			todo.peers = append(todo.peers, NewPeer{Key: key, Address: address})
			released[at] = true
		}
		if !there.routed[address] {
			todo.routes = append(todo.routes, address)
		}
		if !there.flooded[address] {
			todo.entries = append(todo.entries, Entry{To: address, Via: wireGuard})
		}
	}
	for _, r := range routes {
		if (r.Ours || released[r.To]) && !wanted[r.To] && !c.taken[r.To] {
			todo.oldRoutes = append(todo.oldRoutes, r)
		}
	}
	for _, e := range entries {
		switch {
		case !peer.IsLinkAddress(e.To) || c.taken[e.To]: // somebody else's
		case e.Lost && !there.elsewhere[e.To]:
			todo.lost = append(todo.lost, e)
		case e.Via == wireGuard && !wanted[e.To]:
			todo.oldEntries = append(todo.oldEntries, e)
		}
	}
	return todo
}

// stock is what is there, by address.
type stock struct {
	routed map[netip.Addr]bool
	// flooded are the addresses with the right FDB entry, that stays.
	flooded map[netip.Addr]bool
	// elsewhere are those with an entry over another interface, which is not ours.
	elsewhere map[netip.Addr]bool
}

func takeStock(wireGuard int, routes []Route, entries []Entry) stock {
	there := stock{
		routed:    make(map[netip.Addr]bool, len(routes)),
		flooded:   make(map[netip.Addr]bool, len(entries)),
		elsewhere: make(map[netip.Addr]bool),
	}
	for _, r := range routes {
		there.routed[r.To] = true
	}
	for _, e := range entries {
		if e.Via == wireGuard {
			there.flooded[e.To] = true
		} else if !e.Lost {
			there.elsewhere[e.To] = true
		}
	}
	for _, e := range entries {
		if e.Lost && !there.elsewhere[e.To] {
			delete(there.flooded, e.To) // goes together with the lost one
		}
	}
	return there
}
