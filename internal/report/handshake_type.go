package report

import "wgsteer/internal/peer"

// Handshake is what a worker says of a key: that it made a handshake, or is gone.
type Handshake struct {
	Key  peer.Key
	Gone bool
}
