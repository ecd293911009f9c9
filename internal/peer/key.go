package peer

import (
	"encoding/base64"
	"errors"
	"fmt"
)

// KeyLen is the length of a WireGuard public key in bytes (Curve25519).
const KeyLen = 32

// encodedLen is the length of a key as base64 text: 43 characters and one "=".
const encodedLen = 44

// Key is a WireGuard public key. The zero value is no valid key.
type Key [KeyLen]byte

// ErrKey is wrapped by every error that ParseKey returns.
var ErrKey = errors.New("not a WireGuard public key")

// encoding refuses stray bits in the last character, which would give one key
// several spellings.
var encoding = base64.StdEncoding.Strict()

// ParseKey reads a key from its base64 text as `wg pubkey` prints it: 44
// characters, nothing before or after, not all zero bytes. Each key has exactly
// one such text. The error wraps ErrKey and never repeats the input.
func ParseKey(text string) (Key, error) {
	if len(text) != encodedLen {
		return Key{}, fmt.Errorf("%w: %d characters long, want %d", ErrKey, len(text), encodedLen)
	}
	// DecodedLen of 44 characters is 33: the decoder may not write past it.
	var buf [KeyLen + 1]byte
	n, err := encoding.Decode(buf[:], []byte(text))
	if err != nil || n != KeyLen {
		return Key{}, fmt.Errorf("%w: not the base64 text of %d bytes", ErrKey, KeyLen)
	}
	key := Key(buf[:KeyLen])
	if key == (Key{}) {
		return Key{}, fmt.Errorf("%w: all bytes are zero", ErrKey)
	}
	return key, nil
}

// String returns the base64 text of the key, the only one ParseKey reads as it.
func (k Key) String() string { return encoding.EncodeToString(k[:]) }

// MarshalText is the text of String.
func (k Key) MarshalText() ([]byte, error) { return encoding.AppendEncode(nil, k[:]), nil }

// UnmarshalText is ParseKey.
func (k *Key) UnmarshalText(text []byte) error {
	key, err := ParseKey(string(text))
	if err != nil {
		return err
	}
	*k = key
	return nil
}
