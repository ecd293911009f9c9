// Package steering is the weighting table: what workers reported comes in, and the
// worker that a node should use goes out. It lives in memory and is safe for
// concurrent use.
//
// A worker's peers are what it reported, summed over all its domains, and the nodes
// that were sent to it since. Who is chosen among the workers of a domain is decided
// by package loadbalance.
package steering
