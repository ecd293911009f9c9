package lab

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// uplink is a host's interface to the switch.
const uplink = "eth0"

// hostName is a host name of RFC 1123 in lower case, short enough for everybody.
var hostName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,22}[a-z0-9])?$`)

// Host is a machine of the lab. It is safe for concurrent use.
type Host struct {
	place
	owner *Lab
	// number is 1 for the lab's first host.
	number int
}

// place is where a host is, which is known also when another process made it.
type place struct{ lab, name string }

// Host makes a host and plugs it into the switch. It calls itself by its name, of
// lower-case letters, digits and dashes.
func (l *Lab) Host(ctx context.Context, name string) (*Host, error) {
	h, err := l.addHost(name)
	if err != nil {
		return nil, fmt.Errorf("make host %s: %w", name, err)
	}
	if err := h.setUp(ctx); err != nil {
		return nil, fmt.Errorf("make host %s: %w", name, err)
	}
	return h, nil
}

func (l *Lab) addHost(name string) (*Host, error) {
	if !hostName.MatchString(name) || name == switchHost {
		return nil, fmt.Errorf("the name is not 1 to 24 lower-case letters, digits and dashes, or is %q", switchHost)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if slices.ContainsFunc(l.hosts, func(h *Host) bool { return h.name == name }) {
		return nil, fmt.Errorf("it is there already")
	}
	h := &Host{place: place{lab: l.name, name: name}, owner: l, number: len(l.hosts) + 1}
	l.hosts = append(l.hosts, h)
	return h, nil
}

func (h *Host) setUp(ctx context.Context) error {
	if err := os.MkdirAll(h.sockets(), 0o755); err != nil {
		return fmt.Errorf("make its folder: %w", err)
	}
	// The mount point of its sockets, see entry.
	if err := os.MkdirAll(wireGuardSockets, 0o755); err != nil {
		return fmt.Errorf("make the folder of WireGuard sockets: %w", err)
	}
	if err := ip(ctx, "netns", "add", h.namespace()); err != nil {
		return err
	}
	if err := inNetNS(h.namespacePath(), skipDAD); err != nil {
		return err
	}
	if err := ipBatch(ctx, namespaceOf(h.lab, switchHost),
		fmt.Sprintf("link add %s type veth peer name %s netns %s", h.port(), uplink, h.namespace()),
		fmt.Sprintf("link set %s addrgenmode none master %s up", h.port(), bridge),
	); err != nil {
		return err
	}
	return ipBatch(ctx, h.namespace(),
		"link set lo up",
		"link set "+uplink+" up",
		fmt.Sprintf("address add %s/%d dev %s", h.Addr(), underlay4.Bits(), uplink),
		fmt.Sprintf("address add %s/%d dev %s", h.Addr6(), underlay6.Bits(), uplink),
	)
}

// skipDAD turns off duplicate address detection, which keeps each new IPv6 address
// unusable for a second or two, for the interfaces that this network namespace will
// have.
func skipDAD() error {
	for _, scope := range []string{"all", "default"} {
		path := filepath.Join("/proc/sys/net/ipv6/conf", scope, "accept_dad")
		if err := os.WriteFile(path, []byte("0"), 0); err != nil {
			return fmt.Errorf("turn off duplicate address detection: %w", err)
		}
	}
	return nil
}

// Name returns the host's name.
func (h *Host) Name() string { return h.name }

// Folder returns a folder of the host's own, at the same path inside and outside of
// it. It holds the logs of its programs, and whatever a caller puts there.
func (h *Host) Folder() string { return hostFolder(h.lab, h.name) }

// HostFolder is Host.Folder for a lab of another process, which may have been kept.
func HostFolder(lab, host string) string { return hostFolder(lab, host) }

// Addr returns the host's IPv4 address in the underlay.
func (h *Host) Addr() netip.Addr {
	b := underlay4.Addr().As4()
	// Host 250 is followed by 1 in the next block: no address ends in 0 or 255.
	b[2], b[3] = byte((h.number-1)/250), byte((h.number-1)%250+1)
	return netip.AddrFrom4(b)
}

// Addr6 returns the host's IPv6 address in the underlay.
func (h *Host) Addr6() netip.Addr { return withNumber(underlay6, h.number) }

// withNumber returns the address with that number in an IPv6 prefix.
func withNumber(prefix netip.Prefix, number int) netip.Addr {
	b := prefix.Addr().As16()
	binary.BigEndian.PutUint32(b[12:], uint32(number))
	return netip.AddrFrom16(b)
}

// port is the host's interface on the switch.
func (h *Host) port() string { return fmt.Sprintf("port%d", h.number) }

// Unplug takes the host off the switch, as if its cable was pulled.
func (h *Host) Unplug(ctx context.Context) error { return h.setPort(ctx, "down") }

// Plug puts the host back on the switch.
func (h *Host) Plug(ctx context.Context) error { return h.setPort(ctx, "up") }

func (h *Host) setPort(ctx context.Context, state string) error {
	return ip(ctx, "-n", namespaceOf(h.lab, switchHost), "link", "set", h.port(), state)
}

func (p place) namespace() string     { return namespaceOf(p.lab, p.name) }
func (p place) namespacePath() string { return filepath.Join(namespaces, p.namespace()) }
func (p place) sockets() string       { return filepath.Join(hostFolder(p.lab, p.name), "wireguard") }

// Command prepares a program to run inside the host. The caller may set all fields
// of the result but Path, Args and ExtraFiles. A signal to its Process reaches the
// program. As with exec.CommandContext, the program is killed when ctx is done.
func (h *Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return h.command(ctx, 0, name, args)
}

// Command is Host.Command for a lab of another process, which may have been kept.
func Command(ctx context.Context, lab, host, name string, args ...string) (*exec.Cmd, error) {
	hosts, err := hostsOf(lab)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(hosts, host) {
		return nil, fmt.Errorf("lab %s has no host %s: it has %s", lab, host, hostList(hosts))
	}
	return place{lab: lab, name: host}.command(ctx, 0, name, args), nil
}

func (p place) command(ctx context.Context, report int, name string, args []string) *exec.Cmd {
	path, err := exec.LookPath(name)
	if err != nil {
		err = fmt.Errorf("host %s: %w", p.name, err)
	}
	return p.execute(ctx, report, path, append([]string{name}, args...), err)
}

// execute is command for a program whose path and argv[0] differ.
func (p place) execute(ctx context.Context, report int, path string, argv []string, notFound error) *exec.Cmd {
	cmd := exec.CommandContext(ctx, self)
	cmd.Args = entry{
		report: report, namespace: p.namespacePath(), sockets: p.sockets(), hostname: p.name,
		path: path, argv: argv,
	}.args()
	cmd.Err = notFound
	return cmd
}

// Run runs a short command inside the host and returns what it wrote to standard
// output. The error holds what it wrote to standard error.
func (h *Host) Run(ctx context.Context, name string, args ...string) (string, error) {
	return h.runWith(ctx, "", name, args...)
}

// runWith is Run with text for standard input.
func (h *Host) runWith(ctx context.Context, input string, name string, args ...string) (string, error) {
	cmd := h.Command(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := output(cmd)
	if err != nil {
		return out, fmt.Errorf("on host %s: %w", h.name, err)
	}
	return out, nil
}
