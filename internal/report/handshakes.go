package report

import (
	"bytes"
	"fmt"

	"wgsteer/internal/peer"
)

// MaxHandshakes is the most keys that one payload holds, of handshakes or of an
// eviction: 45 kilobytes of them, so that the MQTT packet stays well below 64.
const MaxHandshakes = 1000

// Handshake is what a worker says of one key: that it has seen a handshake of it, or
// that it is gone, which is no longer connected.
type Handshake struct {
	Key  peer.Key
	Gone bool
}

// goneMark stands before a key that is gone. No key's text begins with it.
const goneMark = "-"

// FormatHandshakes writes a handshakes payload: the text of each key, with "-" before
// one that is gone, and a newline between two. There may be at most MaxHandshakes.
func FormatHandshakes(handshakes []Handshake) []byte {
	return join(len(handshakes), func(i int) string {
		text := handshakes[i].Key.String()
		if handshakes[i].Gone {
			return goneMark + text
		}
		return text
	})
}

// ParseHandshakes reads a handshakes payload. One key that is wrong makes all of it
// wrong.
func ParseHandshakes(payload []byte) ([]Handshake, error) {
	lines, err := split(payload)
	if err != nil {
		return nil, err
	}
	handshakes := make([]Handshake, len(lines))
	for i, line := range lines {
		text, gone := bytes.CutPrefix(line, []byte(goneMark))
		handshakes[i].Gone = gone
		if err := handshakes[i].Key.UnmarshalText(text); err != nil {
			return nil, errLine(i, err)
		}
	}
	return handshakes, nil
}

// FormatEvict writes an evict payload: the text of each key, a newline between two.
// There may be at most MaxHandshakes.
func FormatEvict(keys []peer.Key) []byte {
	return join(len(keys), func(i int) string { return keys[i].String() })
}

// ParseEvict reads an evict payload. One key that is wrong makes all of it wrong.
func ParseEvict(payload []byte) ([]peer.Key, error) {
	lines, err := split(payload)
	if err != nil {
		return nil, err
	}
	keys := make([]peer.Key, len(lines))
	for i, line := range lines {
		if err := keys[i].UnmarshalText(line); err != nil {
			return nil, errLine(i, err)
		}
	}
	return keys, nil
}

// join writes n lines.
func join(n int, line func(i int) string) []byte {
	lines := make([][]byte, n)
	for i := range lines {
		lines[i] = []byte(line(i))
	}
	return bytes.Join(lines, []byte("\n"))
}

// split takes a payload apart into its lines, of which there may be at most
// MaxHandshakes.
func split(payload []byte) ([][]byte, error) {
	lines := bytes.Split(payload, []byte("\n"))
	if len(lines) > MaxHandshakes {
		return nil, fmt.Errorf("%w: %d keys, at most %d are allowed", ErrPayload, len(lines), MaxHandshakes)
	}
	return lines, nil
}

func errLine(i int, err error) error { return fmt.Errorf("%w: line %d: %w", ErrPayload, i+1, err) }
