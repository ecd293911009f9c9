package config

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
	"unicode"

	"wgsteer/topics"
)

// maxInterfaceName is the longest name of a Linux network interface, in bytes:
// IFNAMSIZ (linux/if.h) without the NUL at its end.
const maxInterfaceName = 15

// hostName is a host name as DNS writes it, with the underscore that many use.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?$`)

func isHostName(s string) bool { return hostName.MatchString(s) }

func (c *Config) setDomains(f file, _ Side) error {
	if len(f.Domains) == 0 {
		return problemf(position{}, "domains is missing: list the domains to serve")
	}
	if len(f.DomainPrefixes) == 0 {
		return problemf(position{}, "domain_prefixes is missing: list the prefixes that the domains begin with")
	}
	names := make(map[string]bool)
	owners := make(map[string]string) // interface name → domain
	for _, name := range f.Domains {
		domain, err := newDomain(name, f.DomainPrefixes)
		if err != nil {
			return err
		}
		if names[domain.Name] {
			return problemf(name.at, "domain %q is listed twice", domain.Name)
		}
		names[domain.Name] = true
		if other, taken := owners[domain.WireGuard]; taken {
			return problemf(name.at, "domains %q and %q both mean the interface %s", other, domain.Name, domain.WireGuard)
		}
		owners[domain.WireGuard] = domain.Name
		c.Domains = append(c.Domains, domain)
	}
	return nil
}

func newDomain(name text, prefixes []text) (Domain, error) {
	if err := topics.CheckName(name.value); err != nil {
		return Domain{}, problemf(name.at, "domain: %v", err)
	}
	longest := -1
	for _, prefix := range prefixes {
		if strings.HasPrefix(name.value, prefix.value) {
			longest = max(longest, len(prefix.value))
		}
	}
	if longest < 0 {
		return Domain{}, problemf(name.at, "domain %q begins with none of domain_prefixes", name.value)
	}
	rest := name.value[longest:]
	domain := Domain{Name: name.value, WireGuard: "wg-" + rest, VXLAN: "vx-" + rest}
	switch {
	case rest == "":
		return Domain{}, problemf(name.at, "domain %q is nothing but its prefix: no interface can be named after it", name.value)
	case len(domain.WireGuard) > maxInterfaceName:
		return Domain{}, problemf(name.at, "domain %q means the interface %s: %d bytes long, Linux allows %d",
			name.value, domain.WireGuard, len(domain.WireGuard), maxInterfaceName)
	case strings.ContainsAny(rest, " :%"):
		return Domain{}, problemf(name.at, "domain %q means the interface %q, which Linux does not allow", name.value, domain.WireGuard)
	}
	return domain, nil
}

func (c *Config) setWorkers(f file, _ Side) error {
	c.Workers = make(map[string]Worker, len(f.Workers))
	for _, worker := range f.Workers {
		if err := topics.CheckWorker(worker.name); err != nil {
			return problemf(worker.at, "worker: %v", err)
		}
		weight, err := worker.weight.within(fmt.Sprintf("weight of %q", worker.name), 0, MaxWeight, DefaultWeight)
		if err != nil {
			return err
		}
		location := worker.location
		if len(location.value) > MaxLocation || strings.ContainsFunc(location.value, unicode.IsControl) {
			return problemf(location.at, "location of %q: want at most %d bytes of text, in one line", worker.name, MaxLocation)
		}
		c.Workers[worker.name] = Worker{Weight: uint32(weight), Location: location.value}
	}
	return nil
}

func (c *Config) setMQTT(f file, side Side) error {
	m := f.MQTT
	host := m.BrokerURL
	switch {
	case host.value == "" && side == ForAgent:
		return problemf(host.at, "mqtt.broker_url is missing: the host of wgsteer-server")
	case host.value != "" && net.ParseIP(host.value) == nil && !isHostName(host.value):
		return problemf(host.at, "mqtt.broker_url: want a host name or IP address alone; the port is mqtt.broker_port")
	case m.Username.value == "" && m.Password.value != "":
		return problemf(m.Password.at, "mqtt.password is set, but mqtt.username is not")
	case m.Username.value != "" && m.Password.value == "":
		return problemf(m.Username.at, "mqtt.username is set, but mqtt.password is not: everybody could log in")
	}
	port, err := m.BrokerPort.within("mqtt.broker_port", 1, 65535, 1883)
	if err != nil {
		return err
	}
	// MQTT 3.1.1, section 3.1.2.10, allows 16 bits of seconds; 0 would switch the
	// keepalive off, and a dead gateway would stay online for ever.
	keepalive, err := m.Keepalive.within("mqtt.keepalive", 1, 65535, 5)
	if err != nil {
		return err
	}
	c.MQTT = MQTT{
		Host: host.value, Port: uint16(port), Username: m.Username.value, Password: m.Password.value,
		Keepalive: time.Duration(keepalive) * time.Second, TLS: m.TLS.value,
	}
	return nil
}

func (c *Config) setServer(f file, _ Side) error {
	port, err := f.BrokerListen.Port.within("broker_listen.port", 1, 65535, 5000)
	if err != nil {
		return err
	}
	host := f.BrokerListen.Host
	if host.value == "" {
		host.value = "0.0.0.0"
	}
	if c.Server.HTTPListen, err = listenAddress("broker_listen.host", host, port); err != nil {
		return err
	}
	// Whoever may publish reports steers every node: nobody from outside does
	// without an account.
	c.Server.MQTTListen = fmt.Sprintf("127.0.0.1:%d", c.MQTT.Port)
	if c.MQTT.Username != "" {
		c.Server.MQTTListen = fmt.Sprintf("0.0.0.0:%d", c.MQTT.Port)
	}
	if listen := f.Server.MQTTListen; listen.value != "" {
		if c.Server.MQTTListen, err = splitListen("server.mqtt_listen", listen); err != nil {
			return err
		}
	}
	if err := c.setAdmin(f.Server.AdminListen); err != nil {
		return err
	}
	limit, err := f.Server.RateLimit.within("server.rate_limit", 0, 1_000_000, 0)
	if err != nil {
		return err
	}
	c.Server.RateLimit = int(limit)
	if err := c.setState(f); err != nil {
		return err
	}
	return c.setSteering(f)
}

// setAdmin sets where operators are served.
func (c *Config) setAdmin(listen text) (err error) {
	path, isPath := strings.CutPrefix(listen.value, UnixPrefix)
	switch {
	case listen.value == "":
		c.Server.AdminListen, c.Server.AdminByDefault = "127.0.0.1:5001", true
	case listen.value == "off":
	case isPath && (!filepath.IsAbs(path) || strings.ContainsRune(path, 0) || len(path) > maxSocketPath):
		return problemf(listen.at, "server.admin_listen: %q is no absolute path of at most %d bytes", path, maxSocketPath)
	case isPath:
		c.Server.AdminListen = listen.value
	default:
		c.Server.AdminListen, err = splitListen("server.admin_listen", listen)
	}
	return err
}

// maxSocketPath is the longest path of a Unix socket, in bytes: sun_path (unix(7)) without
// the NUL at its end.
const maxSocketPath = 107

// setSteering sets how nodes are sent to workers.
func (c *Config) setSteering(f file) (err error) {
	if c.Server.Settle, err = f.Server.Settle.within("server.settle", minTime, 10*time.Minute, 15*time.Second); err != nil {
		return err
	}
	if c.Server.RetryWindow, err = f.Server.RetryWindow.within("server.retry_window", minTime, 24*time.Hour, 10*time.Minute); err != nil {
		return err
	}
	percents, err := f.Server.StickyTolerance.within("server.sticky_tolerance", 0, 100, 10)
	if err != nil {
		return err
	}
	c.Server.StickyTolerance = float64(percents) / 100
	moves, err := f.Server.AutoRebalance.within("server.auto_rebalance", 0, MaxRate, 0)
	c.Server.AutoRebalance = int(moves)
	return err
}

// MaxRate is the most nodes that can be moved in a minute.
const MaxRate = 6000

// setState sets what the server keeps, and for how long it holds.
func (c *Config) setState(f file) (err error) {
	if c.Server.StateDir = f.Server.StateDir.value; c.Server.StateDir != "" && (!filepath.IsAbs(c.Server.StateDir) || strings.ContainsRune(c.Server.StateDir, 0)) {
		return problemf(f.Server.StateDir.at, "server.state_dir: %q is no absolute path", c.Server.StateDir)
	}
	if c.Server.KeyTTL, err = f.Server.KeyTTL.within("server.key_ttl", time.Minute, 365*24*time.Hour, 24*time.Hour); err != nil {
		return err
	}
	// Three reports have to be missing.
	c.Server.SilentAfter, err = f.Server.SilentAfter.within("server.silent_after", minTime, maxTime, 3*c.Agent.ReportInterval)
	return err
}

// The times of an agent must lie between these: shorter is a busy loop, longer a
// mistyped unit.
const (
	minTime = time.Second
	maxTime = 30 * 24 * time.Hour
)

// connectedWithin is the age of a handshake up to which a peer counts as connected,
// see gateway: sweeping it earlier would cut working tunnels.
const connectedWithin = 3 * time.Minute

func (c *Config) setAgent(f file, side Side) error {
	a, host := f.Agent, ""
	if side == ForAgent && (a.Worker.value == "" || f.ExternalName.value == "") {
		var err error
		if host, err = os.Hostname(); err != nil {
			return problemf(position{}, "agent.worker or externalName is missing, and the host has no name: %v", err)
		}
	}
	c.Agent.Worker = orDefault(a.Worker, host)
	if side == ForAgent || c.Agent.Worker != "" {
		if err := topics.CheckWorker(c.Agent.Worker); err != nil {
			return problemf(a.Worker.at, "agent.worker: %v", err)
		}
	}
	c.Agent.ExternalName = orDefault(f.ExternalName, host)
	if name := c.Agent.ExternalName; name != "" && net.ParseIP(name) == nil && !isHostName(name) {
		return problemf(f.ExternalName.at, "externalName: %q is no IP address or host name", name)
	}
	for _, setting := range []struct {
		key       string
		from      duration
		to        *time.Duration
		byDefault time.Duration
	}{
		{"agent.report_interval", a.ReportInterval, &c.Agent.ReportInterval, time.Minute},
		{"agent.sweep_interval", a.SweepInterval, &c.Agent.SweepInterval, time.Hour},
		{"agent.stale_after", a.StaleAfter, &c.Agent.StaleAfter, 3 * time.Hour},
		{"agent.unused_after", a.UnusedAfter, &c.Agent.UnusedAfter, 10 * time.Minute},
	} {
		value, err := setting.from.within(setting.key, minTime, maxTime, setting.byDefault)
		if err != nil {
			return err
		}
		*setting.to = value
	}
	if scheme := a.LinkAddress; scheme.value != "" {
		if err := c.Agent.LinkAddress.UnmarshalText([]byte(scheme.value)); err != nil {
			return problemf(scheme.at, "agent.link_address: %v", err)
		}
	}
	return nil
}

func orDefault(t text, byDefault string) string {
	if t.value != "" {
		return t.value
	}
	return byDefault
}

func (c *Config) setNotes(f file, side Side) {
	if f.LoggingConfig != nil {
		c.Notes = append(c.Notes, "logging_config is for Python and not used here: see --log-level and --log-format")
	}
	if side == ForServer && c.Server.StateDir == "" {
		c.Notes = append(c.Notes, "server.state_dir is not set: keys are kept in memory only, and a restart forgets them")
	}
	if side == ForServer && c.MQTT.Username == "" {
		c.Notes = append(c.Notes, c.openNote())
	}
	if side == ForServer && c.MQTT.TLS {
		c.Notes = append(c.Notes, "mqtt.tls is for agents: the embedded MQTT server speaks plain TCP, put a TLS proxy before it")
	}
	if side == ForServer && c.Server.SilentAfter <= c.Agent.ReportInterval {
		c.Notes = append(c.Notes, fmt.Sprintf("server.silent_after is not above agent.report_interval (%v): gateways get no nodes most of the time", c.Agent.ReportInterval))
	}
	if side == ForAgent && c.Agent.StaleAfter < connectedWithin {
		c.Notes = append(c.Notes, fmt.Sprintf("agent.stale_after is below %v: peers that are connected will be swept", connectedWithin))
	}
}

// openNote says what it means that there is no account.
func (c *Config) openNote() string {
	host, _, err := net.SplitHostPort(c.Server.MQTTListen)
	if ip := net.ParseIP(host); err == nil && (ip != nil && ip.IsLoopback() || host == "localhost") {
		return "mqtt.username is not set: the MQTT server listens on " + c.Server.MQTTListen + " only, no gateway on another host reaches it"
	}
	return "mqtt.username is not set: whoever reaches " + c.Server.MQTTListen + " can send nodes to a gateway of their own"
}
