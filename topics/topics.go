package topics

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// All stands for the worker in a Key topic that is addressed to every worker. No
// worker can have this name.
const All = "all"

// Kind is what a topic carries.
type Kind uint8

// The kinds of topics. The zero Kind is none of them.
const (
	_ Kind = iota
	// Key carries a node's public key from the server to workers.
	Key
	// ConnectedPeers carries a worker's count of connected peers in a domain.
	ConnectedPeers
	// Status carries whether a worker is online.
	Status
	// Data carries how nodes reach a worker in a domain.
	Data
	// Handshakes carries keys in a domain that a worker has seen handshakes of, and those
	// that are no longer connected to it.
	Handshakes
	// Evict carries keys in a domain that the server wants out of a worker.
	Evict
)

var kindNames = [...]string{
	Key: "key", ConnectedPeers: "connected_peers", Status: "status", Data: "data", Handshakes: "handshakes",
	Evict: "evict",
}

// String returns the kind as logs and metrics name it.
func (k Kind) String() string {
	if int(k) < len(kindNames) && kindNames[k] != "" {
		return kindNames[k]
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Topic is a topic taken apart. Domain is empty for Status.
type Topic struct {
	Kind   Kind
	Domain string
	Worker string
}

// Roots and leaves of the scheme.
const (
	keyRoot     = "wireguard"
	metricsRoot = "wireguard-metrics"
	workerRoot  = "wireguard-worker"
	ownRoot     = "wgsteer"

	peersLeaf      = "connected_peers"
	statusLeaf     = "status"
	dataLeaf       = "data"
	handshakesLeaf = "handshakes"
	evictLeaf      = "evict"
)

var (
	// ErrName is wrapped by the errors for a name that cannot stand in a topic.
	ErrName = errors.New("name cannot stand in an MQTT topic")
	// ErrUnknown is wrapped by Parse's errors for topics that are not in the scheme.
	ErrUnknown = errors.New("not a topic of the mesh")
)

// maxName bounds a name, in bytes, so that every topic stays far below the 65,535
// bytes of MQTT 3.1.1, section 1.5.3. A host name has at most 253 (RFC 1035).
const maxName = 255

// CheckName returns an error that wraps ErrName unless the name of a domain or
// worker can stand in a topic: not empty, at most 255 bytes of UTF-8, no "/", no
// wildcard ("+", "#") and no control character.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrName)
	case len(name) > maxName:
		return fmt.Errorf("%w: %d bytes long, at most %d are allowed", ErrName, len(name), maxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: %.100q is not UTF-8", ErrName, name)
	}
	for _, r := range name {
		if r == '/' || r == '+' || r == '#' || unicode.IsControl(r) {
			return fmt.Errorf("%w: %q holds %q", ErrName, name, r)
		}
	}
	return nil
}

// CheckWorker is CheckName for a worker, which cannot be called All.
func CheckWorker(name string) error {
	if name == All {
		return fmt.Errorf("%w: %q means every worker", ErrName, All)
	}
	return CheckName(name)
}

// check returns an error unless the topic's names can stand in it.
func (t Topic) check() error {
	if t.Kind != Status {
		if err := CheckName(t.Domain); err != nil {
			return fmt.Errorf("domain: %w", err)
		}
	}
	if t.Kind == Key && t.Worker == All {
		return nil
	}
	if err := CheckWorker(t.Worker); err != nil {
		return fmt.Errorf("worker: %w", err)
	}
	return nil
}

// Build returns the topic's text. The error wraps ErrName when a name cannot
// stand in it, and ErrUnknown when the kind is none.
func (t Topic) Build() (string, error) {
	var parts []string
	switch t.Kind {
	case Key:
		parts = []string{keyRoot, t.Domain, t.Worker}
	case ConnectedPeers:
		parts = []string{metricsRoot, t.Domain, t.Worker, peersLeaf}
	case Status:
		parts = []string{workerRoot, t.Worker, statusLeaf}
	case Data:
		parts = []string{workerRoot, t.Worker, t.Domain, dataLeaf}
	case Handshakes:
		parts = []string{ownRoot, t.Domain, t.Worker, handshakesLeaf}
	case Evict:
		parts = []string{ownRoot, t.Domain, t.Worker, evictLeaf}
	default:
		return "", fmt.Errorf("build %v topic: %w", t.Kind, ErrUnknown)
	}
	if err := t.check(); err != nil {
		return "", fmt.Errorf("build %v topic: %w", t.Kind, err)
	}
	return strings.Join(parts, "/"), nil
}

// Parse takes a topic apart. Build gives the same text back. The error wraps
// ErrUnknown when the topic is not in the scheme, and ErrName when a name in it
// could not have been built.
func Parse(topic string) (Topic, error) {
	t, ok := match(topic)
	if !ok {
		return Topic{}, fmt.Errorf("%w: %.100q", ErrUnknown, topic)
	}
	if err := t.check(); err != nil {
		return Topic{}, fmt.Errorf("%v topic: %w", t.Kind, err)
	}
	return t, nil
}

// match finds the topic's kind by its fixed parts, and does not check its names.
func match(topic string) (Topic, bool) {
	part := strings.SplitN(topic, "/", 5)
	switch {
	case len(part) == 3 && part[0] == keyRoot:
		return Topic{Kind: Key, Domain: part[1], Worker: part[2]}, true
	case len(part) == 4 && part[0] == metricsRoot && part[3] == peersLeaf:
		return Topic{Kind: ConnectedPeers, Domain: part[1], Worker: part[2]}, true
	case len(part) == 3 && part[0] == workerRoot && part[2] == statusLeaf:
		return Topic{Kind: Status, Worker: part[1]}, true
	case len(part) == 4 && part[0] == workerRoot && part[3] == dataLeaf:
		return Topic{Kind: Data, Domain: part[2], Worker: part[1]}, true
	case len(part) == 4 && part[0] == ownRoot && part[3] == handshakesLeaf:
		return Topic{Kind: Handshakes, Domain: part[1], Worker: part[2]}, true
	case len(part) == 4 && part[0] == ownRoot && part[3] == evictLeaf:
		return Topic{Kind: Evict, Domain: part[1], Worker: part[2]}, true
	}
	return Topic{}, false
}

// InScheme tells whether a topic is below one of the scheme's roots, where
// everything that does not parse is a mistake.
func InScheme(topic string) bool {
	root, _, _ := strings.Cut(topic, "/")
	return root == keyRoot || root == metricsRoot || root == workerRoot || root == ownRoot
}

// KeyFilter returns the worker in whose Key topics of the domain a subscription to the
// filter is interested: a name, All, or "" for every one. ok is false when the filter
// matches none of them.
func KeyFilter(filter, domain string) (worker string, ok bool) {
	want := []string{keyRoot, domain, ""}
	part := strings.Split(filter, "/")
	for i, level := range want {
		switch {
		case i >= len(part):
			return "", false
		case part[i] == "#" && i == len(part)-1:
			return "", true
		case i == 2:
		case part[i] != "+" && part[i] != level:
			return "", false
		}
	}
	switch {
	case len(part) > 3 && !(len(part) == 4 && part[3] == "#"): // a/b/c/# matches a/b/c, too
		return "", false
	case part[2] == "+":
		return "", true
	}
	return part[2], CheckName(part[2]) == nil
}
