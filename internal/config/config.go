package config

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"wgsteer/internal/peer"
)

// Config is a whole config file, checked, with every default filled in.
type Config struct {
	// Path is the file that was read.
	Path string
	// Domains are the mesh segments that are served, in the order of the file.
	Domains []Domain
	// Workers are the workers that the file names. A worker that it does not name has
	// DefaultWeight and no location.
	Workers map[string]Worker
	MQTT    MQTT
	Server  Server
	Agent   Agent
	// Notes are what an operator should be told at start.
	Notes []string
}

// Domain is a mesh segment and its interfaces on every gateway that serves it.
type Domain struct {
	Name string
	// WireGuard and VXLAN are interface names: "wg-" and "vx-" before what is left
	// of the name without its prefix.
	WireGuard, VXLAN string
}

// Worker is what the file says of a worker.
type Worker struct {
	// Weight is its share of the peers, relative to other workers' weights.
	Weight uint32
	// Location is where it is, for nodes that prefer one. Empty: nowhere.
	Location string
}

// DefaultWeight is the weight of a worker that the config does not name, or whose
// weight it leaves empty.
const DefaultWeight = 1

// MaxWeight is the largest weight that a worker can have.
const MaxWeight = 1_000_000

// MaxLocation is the longest name of a location, in bytes.
const MaxLocation = 64

// Worker is what holds for the worker of this name.
func (c *Config) Worker(name string) Worker {
	if worker, named := c.Workers[name]; named {
		return worker
	}
	return Worker{Weight: DefaultWeight}
}

// Weight is the worker's share of the peers, relative to other workers' weights.
func (c *Config) Weight(worker string) uint32 { return c.Worker(worker).Weight }

// Locations are those of the workers, each once, sorted.
func (c *Config) Locations() []string {
	locations := []string{}
	for _, worker := range c.Workers {
		if worker.Location != "" {
			locations = append(locations, worker.Location)
		}
	}
	slices.Sort(locations)
	return slices.Compact(locations)
}

// MQTT is how agents and the server meet.
type MQTT struct {
	// Host and Port are where agents find the MQTT server.
	Host string
	Port uint16
	// Username and Password are the account of agents. Without a username there is none.
	Username, Password string
	// Keepalive is the MQTT keepalive interval, in whole seconds.
	Keepalive time.Duration
	// TLS makes agents connect with TLS.
	TLS bool
}

// Server is what only the server uses.
type Server struct {
	// HTTPListen is the address, host:port, that nodes send their exchanges to.
	HTTPListen string
	// MQTTListen is the address, host:port, of the embedded MQTT server.
	MQTTListen string
	// AdminListen is the address, host:port, that serves operators, or UnixPrefix and the
	// path of a socket. Empty: nowhere.
	AdminListen string
	// AdminByDefault tells whether AdminListen is the default: then the server can do
	// without.
	AdminByDefault bool
	// RateLimit is how many exchanges one source address may make per minute: one
	// IPv4 address or one IPv6 /64. 0: as many as it likes.
	RateLimit int
	// StateDir is the folder in which keys and reports survive the process. Empty: they
	// do not.
	StateDir string
	// KeyTTL is how long a key lives after its last exchange or handshake.
	KeyTTL time.Duration
	// SilentAfter is the age of a worker's last report from which on it gets no nodes.
	SilentAfter time.Duration
	// Settle is how long after an exchange a worker's report can contain its node.
	Settle time.Duration
	// RetryWindow is within what time a node that asks again had no luck where it was sent.
	RetryWindow time.Duration
	// StickyTolerance is how far above its target a worker may be, as a part of the target,
	// for nodes to go back to it.
	StickyTolerance float64
	// AutoRebalance is how many nodes a minute are moved when the balance has been wrong
	// for long. 0: none.
	AutoRebalance int
}

// UnixPrefix begins an AdminListen that is the path of a Unix socket.
const UnixPrefix = "unix:"

// Agent is what only the agent uses.
type Agent struct {
	// Worker is the agent's name in topics.
	Worker string
	// ExternalName is the host name or address that nodes reach the gateway by.
	ExternalName string
	// ReportInterval is the time between two reports of connected peers.
	ReportInterval time.Duration
	// SweepInterval is the time between two sweeps of stale peers.
	SweepInterval time.Duration
	// StaleAfter is the age of a peer's last handshake from which on it is stale.
	StaleAfter time.Duration
	// UnusedAfter is how long a peer may be there without any handshake before it is stale.
	UnusedAfter time.Duration
	// LinkAddress is how nodes' addresses follow from their keys.
	LinkAddress peer.Scheme
}

// Side is a program that a config is for. Neither side needs what only the other
// uses, but both check all that is there.
type Side uint8

// The two programs.
const (
	ForServer Side = iota
	ForAgent
)

// defaultPaths are tried in this order when no path is given.
var defaultPaths = []string{"/etc/wgsteer.yaml", "/etc/wgkex.yaml"}

// Find returns the path of the config file: $WGSTEER_CONFIG, else
// $WGKEX_CONFIG_FILE, else the first of /etc/wgsteer.yaml and /etc/wgkex.yaml that
// is there.
func Find(getenv func(string) string) (string, error) {
	for _, name := range []string{"WGSTEER_CONFIG", "WGKEX_CONFIG_FILE"} {
		if path := getenv(name); path != "" {
			return path, nil
		}
	}
	for _, path := range defaultPaths {
		if _, err := os.Stat(path); err == nil {
			return path, nil
		} else if !errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("look for a config file: %w", err)
		}
	}
	return "", fmt.Errorf("no config file: give one with --config, in $WGSTEER_CONFIG or $WGKEX_CONFIG_FILE, or put it at %s (--example-config prints one)",
		strings.Join(defaultPaths, " or "))
}

// Load reads and checks the config file for one side.
func Load(path string, side Side) (*Config, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read config: %w", err)
	}
	cfg, err := Parse(content, side)
	if err != nil {
		// "path:line:column: what", as compilers say it and editors understand it.
		var placed *problem
		if errors.As(err, &placed) && placed.at != (position{}) {
			return nil, fmt.Errorf("%s:%w", path, err)
		}
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	cfg.Path = path
	return cfg, nil
}

// Parse is Load for a file that was read already. The error begins with the line
// and the column of what is wrong, where it is about one place.
func Parse(content []byte, side Side) (*Config, error) {
	f, err := decode(bytes.TrimPrefix(content, []byte("\ufeff"))) // some editors begin with it
	if err != nil {
		return nil, err
	}
	cfg := &Config{}
	for _, step := range []func(file, Side) error{
		cfg.setDomains, cfg.setWorkers, cfg.setMQTT, cfg.setAgent, cfg.setServer,
	} {
		if err := step(f, side); err != nil {
			return nil, err
		}
	}
	cfg.setNotes(f, side)
	return cfg, nil
}

// listenAddress joins host and port after checking both.
func listenAddress(key string, host text, port int64) (string, error) {
	if host.value != "" && net.ParseIP(host.value) == nil && !isHostName(host.value) {
		return "", problemf(host.at, "%s: %q is no IP address or host name", key, host.value)
	}
	return net.JoinHostPort(host.value, strconv.FormatInt(port, 10)), nil
}

// splitListen checks an address host:port that the file gives as one text.
func splitListen(key string, address text) (string, error) {
	host, port, err := net.SplitHostPort(address.value)
	if err != nil {
		return "", problemf(address.at, "%s: %q is no host:port, like 127.0.0.1:1883", key, address.value)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", problemf(address.at, "%s: port %q is not 0 to 65535", key, port)
	}
	return listenAddress(key, text{value: host, at: address.at}, int64(number))
}
