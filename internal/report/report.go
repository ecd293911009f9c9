package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"wgsteer/internal/exactjson"
	"wgsteer/internal/peer"
)

// ErrPayload is wrapped by the errors for a payload that is not what its topic
// promises.
var ErrPayload = errors.New("malformed payload")

// The payloads of a worker's status.
const (
	Online  = "1"
	Offline = "0"
)

// ParseStatus reads a status payload: whether the worker is online.
func ParseStatus(payload []byte) (online bool, err error) {
	switch string(payload) {
	case Online:
		return true, nil
	case Offline:
		return false, nil
	}
	return false, fmt.Errorf("%w: a status is 0 or 1", ErrPayload)
}

// Leaving is the count of connected peers by which a worker says that it no
// longer offers the domain.
const Leaving = -1

// MaxPeers bounds a count of connected peers: far above what one machine can carry
// (Linux allows 1,048,576 peers on a WireGuard interface, MAX_PEERS_PER_DEVICE),
// far below where sums overflow.
const MaxPeers = 1 << 24

// maxPeersLen is the length in bytes that the text of MaxPeers has.
const maxPeersLen = 8

// ParsePeers reads a count of connected peers: a decimal number from 0 to
// MaxPeers, or Leaving.
func ParsePeers(payload []byte) (int, error) {
	if string(payload) == "-1" {
		return Leaving, nil
	}
	if len(payload) == 0 || len(payload) > maxPeersLen {
		return 0, fmt.Errorf("%w: a count of peers has 1 to %d digits", ErrPayload, maxPeersLen)
	}
	peers := 0
	for _, b := range payload {
		if b < '0' || b > '9' {
			return 0, fmt.Errorf("%w: a count of peers is a decimal number or -1", ErrPayload)
		}
		peers = 10*peers + int(b-'0')
	}
	if peers > MaxPeers {
		return 0, fmt.Errorf("%w: a count of peers is at most %d", ErrPayload, MaxPeers)
	}
	return peers, nil
}

// FormatPeers writes a count of connected peers, or Leaving.
func FormatPeers(peers int) []byte { return strconv.AppendInt(nil, int64(peers), 10) }

// Data is how nodes reach a worker in one domain. Its JSON is the wire's.
type Data struct {
	// ExternalAddress is the host name or IP address of the WireGuard endpoint.
	ExternalAddress string
	// Port is the UDP port of the WireGuard endpoint.
	Port uint16
	// PublicKey is the worker's key on its WireGuard interface of the domain.
	PublicKey peer.Key
	// LinkAddress is the worker's IPv6 link-local address on that interface,
	// without a zone.
	LinkAddress netip.Addr
}

// maxHost is the longest host name, in bytes (RFC 1035, section 2.3.4).
const maxHost = 255

// Check returns an error that wraps ErrPayload unless the data can be given to a
// node.
func (d Data) Check() error {
	switch {
	case d.ExternalAddress == "" || len(d.ExternalAddress) > maxHost || !isHost(d.ExternalAddress):
		return fmt.Errorf("%w: ExternalAddress is no host name or IP address", ErrPayload)
	case d.Port == 0:
		return fmt.Errorf("%w: Port is missing or 0", ErrPayload)
	case d.PublicKey == peer.Key{}:
		return fmt.Errorf("%w: PublicKey is missing", ErrPayload)
	case !d.LinkAddress.Is6() || !d.LinkAddress.IsLinkLocalUnicast() || d.LinkAddress.Zone() != "":
		return fmt.Errorf("%w: LinkAddress is no IPv6 link-local address without a zone", ErrPayload)
	}
	return nil
}

// isHost tells whether a text has only what host names and IP addresses are written
// with. Nodes write it on a command line.
func isHost(text string) bool {
	for _, r := range text {
		if !('a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-._:", r)) {
			return false
		}
	}
	return true
}

// ParseData reads a data payload. Fields that it does not know are ignored.
func ParseData(payload []byte) (Data, error) {
	var d Data
	err := exactjson.Unmarshal(payload,
		exactjson.Field{Name: "ExternalAddress", Into: &d.ExternalAddress},
		exactjson.Field{Name: "Port", Into: &d.Port},
		exactjson.Field{Name: "PublicKey", Into: &d.PublicKey},
		exactjson.Field{Name: "LinkAddress", Into: &d.LinkAddress},
	)
	if err != nil {
		return Data{}, fmt.Errorf("%w: %w", ErrPayload, err)
	}
	if err := d.Check(); err != nil {
		return Data{}, err
	}
	return d, nil
}

// Format writes the data payload. It returns the error of Check.
func (d Data) Format() ([]byte, error) {
	if err := d.Check(); err != nil {
		return nil, err
	}
	payload, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("data as JSON: %w", err)
	}
	return payload, nil
}
