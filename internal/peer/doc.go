// Package peer holds what identifies a node of the mesh: its WireGuard public
// key and the IPv6 link-local address and MAC address that follow from it.
package peer
