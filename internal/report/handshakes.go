package report

import (
	"bytes"
	"fmt"

	"wgsteer/internal/peer"
)

// MaxHandshakes is the most keys that one handshakes payload holds: 45 kilobytes of
// them, so that the MQTT packet stays well below 64.
const MaxHandshakes = 1000

// FormatHandshakes writes a handshakes payload: the text of each key, a newline
// between two. There may be at most MaxHandshakes.
func FormatHandshakes(keys []peer.Key) []byte {
	lines := make([][]byte, len(keys))
	for i, key := range keys {
		lines[i] = []byte(key.String())
	}
	return bytes.Join(lines, []byte("\n"))
}

// ParseHandshakes reads a handshakes payload. One key that is wrong makes all of it
// wrong.
func ParseHandshakes(payload []byte) ([]peer.Key, error) {
	lines := bytes.Split(payload, []byte("\n"))
	if len(lines) > MaxHandshakes {
		return nil, fmt.Errorf("%w: %d keys, at most %d are allowed", ErrPayload, len(lines), MaxHandshakes)
	}
	keys := make([]peer.Key, len(lines))
	for i, line := range lines {
		if err := keys[i].UnmarshalText(line); err != nil {
			return nil, fmt.Errorf("%w: line %d: %w", ErrPayload, i+1, err)
		}
	}
	return keys, nil
}
