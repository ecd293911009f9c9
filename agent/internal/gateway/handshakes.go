package gateway

import (
	"maps"
	"time"

	"wgsteer/internal/peer"
)

// handshakeInterval is the time after which a key that keeps making handshakes is
// reported again. The server forgets keys after 24 hours without a sign of life.
const handshakeInterval = time.Hour

// handshakes are the keys that have made handshakes, as far as the server has to hear
// of it: when a node connects, and every hour while it stays connected.
type handshakes struct {
	// reported has the handshake by which a key was last reported, pending the keys that
	// are yet to be.
	reported, pending map[peer.Key]time.Time
}

func newHandshakes() handshakes {
	return handshakes{reported: make(map[peer.Key]time.Time), pending: make(map[peer.Key]time.Time)}
}

// note takes the handshakes of the peers that are connected. It tells whether any is
// new for the server.
func (h *handshakes) note(peers []Peer, now time.Time) (news bool) {
	there := make(map[peer.Key]bool, len(peers))
	for _, p := range peers {
		there[p.Key] = true
		if !p.connected(now) {
			continue
		}
		if last, known := h.reported[p.Key]; !known || p.LastHandshake.Sub(last) >= handshakeInterval {
			h.pending[p.Key] = p.LastHandshake
			news = true
		}
	}
	gone := func(key peer.Key, _ time.Time) bool { return !there[key] }
	maps.DeleteFunc(h.reported, gone)
	maps.DeleteFunc(h.pending, gone)
	return news
}

// take returns the keys that are to be reported, and has them as reported.
func (h *handshakes) take() []peer.Key {
	keys := inOrder(maps.Keys(h.pending))
	maps.Copy(h.reported, h.pending)
	clear(h.pending)
	return keys
}

// Handshakes returns the keys of the domain whose handshakes the server has to hear of,
// which it then counts as told.
func (g *Gateway) Handshakes(domain string) []peer.Key {
	d := g.domains[domain]
	if d == nil {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.handshakes.take()
}

// ReportHandshakesAgain makes the handshakes of all connected peers news: for a server
// that may not have heard of them.
func (g *Gateway) ReportHandshakesAgain() {
	for _, d := range g.domains {
		d.mu.Lock()
		clear(d.handshakes.reported)
		d.mu.Unlock()
	}
}
