// Package steering is the weighting table: what workers reported comes in, and the
// worker that a node should use goes out. It lives in memory, is safe for concurrent use
// and has no clock: everything takes the time that it is.
//
// A worker's peers are what it reported, summed over all its domains, and the nodes that
// were sent to it and cannot be in that count yet. Package loadbalance decides by weight
// and peers; before that, the candidates of a node are narrowed down, in this order, each
// step only as far as candidates are left:
//
//  1. drained workers are left out,
//  2. suspect workers (to which nodes are sent in vain) are left out, but for a probe a
//     minute,
//  3. workers that the node could not use lately are left out,
//  4. workers of another location than the node's are left out,
//  5. a node goes back to where it had its tunnel, if that is not overloaded.
package steering
