package steering

import "time"

const (
	// balanceInterval is the time between two looks at the balance.
	balanceInterval = 10 * time.Second
	// unbalancedFor is how long there must be no balance before nodes are moved for it: what
	// new nodes bring right needs no moves.
	unbalancedFor = 10 * time.Minute
)

// Patience is how long the balance may be wrong before nodes are moved for it without
// anybody asking. The zero Patience is ready.
type Patience struct{ since, looked time.Time }

// Ends tells whether the balance has been wrong for so long, without a break. It is to be
// called again and again, and asks for the moves that the balance demands when it is time.
func (p *Patience) Ends(imbalance func(within float64, now time.Time) []Move, now time.Time) bool {
	if now.Sub(p.looked) < balanceInterval {
		return false
	}
	p.looked = now
	switch {
	case len(imbalance(Balanced, now)) == 0:
		p.Renew()
	case p.since.IsZero():
		p.since = now
	}
	return !p.since.IsZero() && now.Sub(p.since) >= unbalancedFor
}

// Renew has it begin anew: nodes are being moved, say.
func (p *Patience) Renew() { p.since = time.Time{} }
