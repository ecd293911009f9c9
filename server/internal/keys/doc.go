// Package keys holds the keys that were accepted: the truth of which nodes there are.
// It lives in memory, and on disk where there is a place for it.
//
// A key is alive while it has made an exchange, or a worker has seen a handshake of
// it, within its time to live.
package keys
