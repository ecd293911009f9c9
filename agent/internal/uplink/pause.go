package uplink

import (
	"math/rand/v2"
	"time"
)

const (
	// minPause and maxPause bound the time from the start of one attempt to connect to
	// the start of the next, before jitter.
	minPause = 2 * time.Second
	maxPause = 5 * time.Second
	// steady is how long a connection must have lasted for the next attempt to come
	// soon: two agents of the same name take the connection away from each other for ever.
	steady = 10 * time.Second
)

// pauses are the times between attempts to connect. The zero value is ready.
type pauses struct{ next time.Duration }

// after returns how long to wait after a session or an attempt that took so long.
//
// Never less than a fifth of the pause, and anything up to all of it: when the server
// restarts, its agents lose their connections at the same moment, and must not all be
// back at the same moment.
func (p *pauses) after(took time.Duration, connected bool) time.Duration {
	if p.next == 0 || connected && took > steady {
		p.next = minPause
	}
	pause := p.next/5 + rand.N(p.next*4/5)
	p.next = min(2*p.next, maxPause)
	if !connected {
		pause -= took
	}
	return pause
}
