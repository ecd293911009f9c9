package loadbalance

import (
	"math"
	"math/bits"
)

// Candidate is a worker that could be chosen.
type Candidate struct {
	// Name tells workers apart and breaks the last ties.
	Name string
	// Weight is the worker's share, relative to the other candidates' weights.
	Weight uint32
	// Peers is how many peers the worker carries now.
	Peers uint32
}

// Standing is a candidate seen against its target.
type Standing struct {
	Candidate
	// Target is how many peers the candidate's weight means now. It need not be whole.
	Target float64
	// Diff is Peers − Target: negative below the target, positive above it.
	Diff float64
}

// sums are the totals that targets are shares of.
type sums struct {
	weight, peers uint64
	// equal says that no candidate has a weight: all count as weight 1.
	equal bool
}

func sum(candidates []Candidate) sums {
	var s sums
	for i := range candidates {
		s.weight += uint64(candidates[i].Weight)
		s.peers += uint64(candidates[i].Peers)
	}
	if s.weight == 0 {
		s.weight, s.equal = uint64(len(candidates)), true
	}
	return s
}

// weightOf is the weight that the candidate has in these sums.
func (s sums) weightOf(c *Candidate) uint64 {
	if s.equal {
		return 1
	}
	return uint64(c.Weight)
}

func (s sums) standing(c *Candidate) Standing {
	target := float64(s.weightOf(c)) / float64(s.weight) * float64(s.peers)
	return Standing{Candidate: *c, Target: target, Diff: float64(c.Peers) - target}
}

// tieBefore tells whether a goes before b when their diffs are equal.
func (s sums) tieBefore(a, b *Candidate) bool {
	// peers/weight compared across, so that nothing is divided.
	perA := uint64(a.Peers) * s.weightOf(b)
	perB := uint64(b.Peers) * s.weightOf(a)
	if perA != perB {
		return perA < perB
	}
	return a.Name < b.Name
}

// Index returns the position of the candidate that gets the next peer, or -1 when
// there is none. It takes time linear in the candidates and allocates nothing; the
// order of the candidates does not matter as long as their names differ.
func Index(candidates []Candidate) int { return sum(candidates).index(candidates) }

// index compares diff × W, as exact integers: equal diffs are equal however the
// weights are scaled.
func (s sums) index(candidates []Candidate) int {
	if bits.Len64(s.weight)+bits.Len64(s.peers) > 63 {
		return s.indexWide(candidates)
	}
	best, lowest := -1, int64(math.MaxInt64)
	for i := range candidates {
		c := &candidates[i]
		if c.Weight == 0 && !s.equal {
			continue
		}
		// Both products are at most weight × peers of the sums, which fit.
		diff := int64(uint64(c.Peers)*s.weight) - int64(s.weightOf(c)*s.peers)
		if diff < lowest || diff == lowest && s.tieBefore(c, &candidates[best]) {
			best, lowest = i, diff
		}
	}
	return best
}

// indexWide is index for sums whose product needs more than 63 bits.
func (s sums) indexWide(candidates []Candidate) int {
	best, lowest := -1, wide{hi: math.MaxInt64}
	for i := range candidates {
		c := &candidates[i]
		if c.Weight == 0 && !s.equal {
			continue
		}
		diff := subProducts(uint64(c.Peers), s.weight, s.weightOf(c), s.peers)
		if diff.below(lowest) || diff == lowest && s.tieBefore(c, &candidates[best]) {
			best, lowest = i, diff
		}
	}
	return best
}

// wide is a 128-bit integer in two's complement.
type wide struct {
	hi int64
	lo uint64
}

// subProducts returns a×b − c×d. Both products must be below 2¹²⁷.
func subProducts(a, b, c, d uint64) wide {
	abHi, abLo := bits.Mul64(a, b)
	cdHi, cdLo := bits.Mul64(c, d)
	lo, borrow := bits.Sub64(abLo, cdLo, 0)
	hi, _ := bits.Sub64(abHi, cdHi, borrow)
	return wide{hi: int64(hi), lo: lo}
}

func (w wide) below(v wide) bool { return w.hi < v.hi || w.hi == v.hi && w.lo < v.lo }

// Choose returns the candidate that gets the next peer, with its target and diff
// before it has got it. ok is false when there is no candidate.
func Choose(candidates []Candidate) (chosen Standing, ok bool) {
	s := sum(candidates)
	i := s.index(candidates)
	if i < 0 {
		return Standing{}, false
	}
	return s.standing(&candidates[i]), true
}

// Stand returns how the candidate at position i stands among the candidates.
func Stand(candidates []Candidate, i int) Standing {
	return sum(candidates).standing(&candidates[i])
}

// Explain returns how every candidate stands, in the order given.
func Explain(candidates []Candidate) []Standing {
	s := sum(candidates)
	standings := make([]Standing, len(candidates))
	for i := range candidates {
		standings[i] = s.standing(&candidates[i])
	}
	return standings
}
