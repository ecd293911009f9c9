package gateway

import (
	"maps"
	"time"

	"wgsteer/internal/peer"
	"wgsteer/internal/report"
)

const (
	// handshakeInterval is the time after which a key that keeps making handshakes is
	// reported again. The server forgets keys after 24 hours without a sign of life.
	handshakeInterval = time.Hour
	// askedSlack is how much earlier than the news that its node has asked a handshake
	// may be, and still follow from that: the news can take longer than the node.
	askedSlack = 2 * time.Second
	// awaitedFor is how long the server waits for a handshake after an exchange, and
	// glanceInterval how often is looked for it meanwhile.
	awaitedFor     = time.Minute
	glanceInterval = 5 * time.Second
)

// handshakes are the keys that have made handshakes, as far as the server has to hear
// of it: when a node connects, at its first handshake after each exchange, every hour
// while it stays connected, and when it no longer is.
type handshakes struct {
	// reported has the handshake by which a key was last reported, of all that the server
	// has as connected.
	reported map[peer.Key]time.Time
	// pending are the keys that are yet to be reported: by this handshake, or, when it is
	// zero, as gone.
	pending map[peer.Key]time.Time
	// asked is when nodes asked whose first handshake since has not been seen.
	asked map[peer.Key]time.Time
}

func newHandshakes() handshakes {
	return handshakes{
		reported: make(map[peer.Key]time.Time),
		pending:  make(map[peer.Key]time.Time),
		asked:    make(map[peer.Key]time.Time),
	}
}

// ask notes that the key's node has asked. What was not reported yet by an earlier
// handshake is not: the server would take it for the one that it waits for.
func (h *handshakes) ask(key peer.Key, now time.Time) {
	h.asked[key] = now
	delete(h.pending, key)
}

// awaits tells whether the server waits for a handshake.
func (h *handshakes) awaits(now time.Time) bool {
	for _, at := range h.asked {
		if now.Sub(at) < awaitedFor {
			return true
		}
	}
	return false
}

// forget drops nodes that asked and did not come. A key that they had before is
// reported every hour anyway.
func (h *handshakes) forget(now time.Time) {
	maps.DeleteFunc(h.asked, func(_ peer.Key, at time.Time) bool { return now.Sub(at) >= handshakeInterval })
}

// note takes all peers as they are now. It tells whether there is any news for the server.
func (h *handshakes) note(peers []Peer, now time.Time) (news bool) {
	connected := make(map[peer.Key]bool, len(peers))
	for _, p := range peers {
		if p.connected(now) {
			connected[p.Key] = true
			news = h.see(p.Key, p.LastHandshake) || news
		}
	}
	for key := range h.reported {
		if !connected[key] {
			h.pending[key] = time.Time{}
			news = true
		}
	}
	maps.DeleteFunc(h.pending, func(key peer.Key, _ time.Time) bool {
		_, reported := h.reported[key]
		return !connected[key] && !reported // came and went between two reports
	})
	return news
}

// see takes the last handshake of a key that is connected. It tells whether that is news.
func (h *handshakes) see(key peer.Key, at time.Time) (news bool) {
	if h.pending[key].IsZero() {
		delete(h.pending, key) // it is back
	}
	asked, waits := h.asked[key]
	last, reported := h.reported[key]
	switch {
	case waits && at.Before(asked.Add(-askedSlack)):
		return false
	case waits:
		delete(h.asked, key)
	case reported && at.Sub(last) < handshakeInterval:
		return false
	}
	h.pending[key] = at
	return true
}

// take returns what is to be reported, and has it as reported.
func (h *handshakes) take() []report.Handshake {
	var news []report.Handshake
	for _, key := range inOrder(maps.Keys(h.pending)) {
		at := h.pending[key]
		if news = append(news, report.Handshake{Key: key, Gone: at.IsZero()}); at.IsZero() {
			delete(h.reported, key)
		} else {
			h.reported[key] = at
		}
	}
	clear(h.pending)
	return news
}

// again has nothing as reported.
func (h *handshakes) again() {
	clear(h.reported)
	maps.DeleteFunc(h.pending, func(_ peer.Key, at time.Time) bool { return at.IsZero() })
}

// Handshakes returns what the server has to hear of the domain's keys: which have made
// handshakes, and which are no longer connected. It counts as told then.
func (g *Gateway) Handshakes(domain string) []report.Handshake {
	d := g.domains[domain]
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.handshakes.take()
}
