// Package loadbalance picks the worker that gets the next peer, so that every
// worker's peers follow its share of the weights.
//
// With W the sum of all weights and P the sum of all peers over the candidates,
//
//	target = weight / W × P
//	diff   = peers − target
//
// and the candidate with the lowest diff, the one furthest below its target, is
// chosen. Among equal diffs the fewest peers per weight decide, then the name. A
// candidate of weight 0 is chosen only when all have weight 0; then they all
// count as equally heavy.
//
// The package is pure: no I/O, no clock, no lock, and no allocation per choice.
package loadbalance
