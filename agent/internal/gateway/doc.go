// Package gateway keeps, for each domain, what should be true on this machine — which
// keys have a peer, a route and an FDB entry — and makes it so.
//
// It works by level, not by edge: what a key's arrival, an interface's return or a
// failed operation triggers is always the same comparison of the desired set with
// what is there. The system itself is behind the interface Kernel.
package gateway
