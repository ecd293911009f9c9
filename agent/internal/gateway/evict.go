package gateway

import (
	"maps"
	"slices"
	"time"

	"wgsteer/internal/peer"
)

// The server has keys evicted whose nodes should go to another gateway. Such a key is
// taken out and stays out, though the replays of the server hold it and its peer may
// still be found here, until its node asks again.

const (
	// evictedFor is how long a key stays out at most. A node that has not asked again by
	// then is gone.
	evictedFor = time.Hour
	// countSoon is when the connected peers are counted after an eviction, for the server
	// to see what it has done. Evictions that follow do not put it off.
	countSoon = time.Second
)

// evictions are the keys that stay out, and since when.
type evictions map[peer.Key]time.Time

func (e evictions) hold(key peer.Key, now time.Time) bool {
	at, evicted := e[key]
	return evicted && now.Sub(at) < evictedFor
}

func (e evictions) forget(now time.Time) {
	maps.DeleteFunc(e, func(key peer.Key, _ time.Time) bool { return !e.hold(key, now) })
}

// evict takes keys that are to go. It does not block.
func (d *domain) evict(keys []peer.Key) {
	now := time.Now()
	d.mu.Lock()
	for _, key := range keys {
		d.evicted[key] = now
		d.pending[key] = arrival{at: now, evicted: true}
		delete(d.handshakes.asked, key)
	}
	d.mu.Unlock()
	signal(d.wake)
}

// evictees returns those of our peers that should not be there.
func (d *domain) evictees(c census, now time.Time) []peer.Key {
	d.mu.Lock()
	defer d.mu.Unlock()
	var keys []peer.Key
	for key := range c.ours {
		if d.evicted.hold(key, now) {
			keys = append(keys, key)
		}
	}
	return inOrder(slices.Values(keys))
}

// expel removes those of the keys that are peers of ours, and takes them out of the
// census, for they are not to be adopted. It tells whether all went well; what did not
// is left to the next comparison.
func (d *domain) expel(keys []peer.Key, c census, links Links) bool {
	var todo plan
	for _, key := range keys {
		delete(d.desired, key) // as well when it was evicted after the last take
		if address, ours := c.ours[key]; ours {
			todo.remove(key, address, links)
			delete(c.ours, key)
			d.log.Debug("peer evicted", "key", key)
		}
	}
	if !d.execute(todo, links) {
		return false
	}
	d.expelled += len(todo.oldPeers)
	return true
}

// tellExpelled logs how many peers were evicted since the last time.
func (d *domain) tellExpelled() {
	if d.expelled > 0 {
		d.log.Info("evicted peers: the server wants their nodes elsewhere", "peers", d.expelled, "left", len(d.desired))
		d.expelled = 0
	}
}

// BeginSession forgets what was said to and by a server in an earlier session, which
// may be lost or outdated: the handshakes of all connected peers are news again, and no
// key stays out. It is to be called before the first key of the session can arrive.
func (g *Gateway) BeginSession() {
	for _, d := range g.domains {
		d.mu.Lock()
		d.handshakes.again()
		clear(d.evicted)
		d.mu.Unlock()
	}
}
