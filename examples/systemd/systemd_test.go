// Package systemd_test runs the unit files of this folder under a real systemd.
package systemd_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"wgsteer/internal/lab"
	"wgsteer/internal/machine"
	"wgsteer/internal/peer"
)

func TestMain(m *testing.M) {
	lab.Main()
	os.Exit(m.Run())
}

var units = []string{"wgsteer-server.service", "wgsteer-agent.service"}

// maxExposure is what `systemd-analyze security` may say of a unit at most, of 100.
const maxExposure = "20"

func TestUnitsAreHardened(t *testing.T) {
	lab.Need(t, "systemd-analyze")
	for _, unit := range units {
		t.Run(unit, func(t *testing.T) {
			if out, err := run(exec.CommandContext(t.Context(), "systemd-analyze",
				"security", "--no-pager", "--offline=true", "--threshold="+maxExposure, unit)); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// bootScript boots a systemd with nothing but a journal and what is in the folder $1:
// the programs, the units and the config. The rest of the machine's /etc and units are
// out of its sight, and it cannot change the kernel's settings.
const bootScript = `
boot() {
	mkdir /run/cgroup
	mount -t cgroup2 cgroup2 /run/cgroup
	mkdir "/run/cgroup/$CGROUP"
	echo 0 >"/run/cgroup/$CGROUP/cgroup.procs"
	exec unshare --cgroup sh -ec "$inside" sh "$1"
}
inside='
	umount /run/cgroup
	umount --lazy /sys/fs/cgroup
	mount -t cgroup2 cgroup2 /sys/fs/cgroup
	mount --bind /proc/sys /proc/sys
	mount -o remount,bind,ro /proc/sys
	mkdir -p /run/etc/systemd/system /run/units
	cp /etc/passwd /etc/group /etc/nsswitch.conf /run/etc
	cd /lib/systemd/system
	cp systemd-journald.service systemd-journald.socket systemd-journald-dev-log.socket /run/units
	cd "$1"
	cp etc/* /run/etc
	cp units/* /run/etc/systemd/system
	for target in basic multi-user network-online shutdown; do
		printf "[Unit]\nDefaultDependencies=no\n" >/run/units/$target.target
	done
	printf "[Unit]\nDefaultDependencies=no\nWants=systemd-journald.service" >/run/units/sysinit.target
	printf "[Journal]\nStorage=volatile\nReadKMsg=no\nAudit=no\n" >/run/etc/systemd/journald.conf
	echo 0123456789abcdef0123456789abcdef >/run/etc/machine-id
	mount --bind /run/etc /etc
	mount --bind /run/units /lib/systemd/system
	mount --bind bin /usr/local/bin
	mount -t tmpfs tmpfs /var/lib
	cd /
	mount --make-rshared /
	export container=wgsteer-test
	exec /lib/systemd/systemd --system --unit=sysinit.target --log-target=journal --show-status=no
'
boot `

// segment is what the gateway of the test serves.
var segment = lab.Segment{WireGuard: "wg-welt", VXLAN: "vx-welt", VNI: 7, Scheme: peer.WGKex}

func TestUnitsBringNodesIn(t *testing.T) {
	l := lab.ForTest(t, "systemctl", "systemd-analyze", "unshare", "nsenter")
	host := must(l.Host(t.Context(), "gateway"))(t)
	gateway := must(host.Gateway(t.Context(), segment))(t)
	c := boot(t, host)
	if !l.KernelWireGuard() {
		letIn(t, filepath.Join(c.Root(), "run/wireguard"), filepath.Join(host.Folder(), "wireguard"))
	}
	for _, unit := range units {
		if out := c.run(t, "systemd-analyze", "verify", "--man=no", unit); out != "" {
			t.Errorf("systemd-analyze verify says:\n%s", out)
		}
		c.run(t, "systemctl", "enable", unit)
	}
	c.run(t, "systemctl", "start", "multi-user.target")

	t.Run("a node gets a tunnel", func(t *testing.T) {
		house := must(l.Host(t.Context(), "node"))(t)
		node := must(house.Node(t.Context(), segment.Scheme))(t)
		var endpoint lab.Endpoint
		if err := c.Eventually(t.Context(), func() (err error) {
			// 503 until the agent has reported.
			endpoint, err = node.Exchange(t.Context(), "http://"+host.Addr().String()+":5000", "ffmuc_welt")
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := node.Connect(t.Context(), endpoint, segment.VNI); err != nil {
			t.Fatal(err)
		}
		must(node.AwaitPing(t.Context(), gateway.Inner()))(t)
	})
	t.Run("the server is confined", func(t *testing.T) {
		c.checkConfinement(t, "wgsteer-server.service", "0000000000000000")
	})
	t.Run("the agent is confined", func(t *testing.T) {
		const netAdmin = "0000000000001000" // capability 12
		c.checkConfinement(t, "wgsteer-agent.service", netAdmin)
	})
	t.Run("the server keeps its state", func(t *testing.T) {
		c.run(t, "systemctl", "restart", "wgsteer-server.service")
		c.awaitJournal(t, "wgsteer-server.service", `msg="state is kept" folder=/var/lib/wgsteer keys=1`)
	})
	t.Run("a reload brings the config in", func(t *testing.T) {
		c.addToConfig(t, "workers: {gateway: {weight: 7}}\n")
		for unit, want := range map[string]string{
			"wgsteer-server.service": `msg="config reloaded" changed="[worker gateway]"`,
			"wgsteer-agent.service":  `msg="config reloaded: nothing has changed for the agent"`,
		} {
			c.run(t, "systemctl", "reload", unit)
			c.awaitJournal(t, unit, want)
		}
	})
	for _, unit := range units {
		t.Run(unit+" stops cleanly", func(t *testing.T) {
			c.run(t, "systemctl", "stop", unit)
			got := c.run(t, "systemctl", "show", "--property=Result,ExecMainCode,ExecMainStatus,NRestarts", unit)
			want := "Result=success\nNRestarts=0\nExecMainCode=1\nExecMainStatus=0\n" // code 1: it exited
			if got != want {
				t.Errorf("after stop:\n%swant:\n%s", got, want)
			}
		})
	}
}

// computer is a machine that runs systemd.
type computer struct{ *machine.Machine }

// boot boots systemd in the host, with our programs and units installed.
func boot(t *testing.T, host *lab.Host) computer {
	t.Helper()
	c := computer{machine.Boot(t, host, bootScript+install(t))}
	if err := c.Eventually(t.Context(), func() error {
		_, err := run(c.Command(t.Context(), "systemctl", "is-active", "systemd-journald.service"))
		return err
	}); err != nil {
		t.Fatalf("wait for systemd: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			out, err := run(c.Command(context.Background(), "journalctl", "--no-pager", "--lines=200"))
			t.Logf("the journal (error: %v):\n%s", err, out)
		}
	})
	return c
}

// run runs a command inside and returns all that it wrote.
func (c computer) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	return must(run(c.Command(t.Context(), name, args...)))(t)
}

// awaitJournal waits until a unit has said something.
func (c computer) awaitJournal(t *testing.T, unit, want string) {
	t.Helper()
	if err := c.Eventually(t.Context(), func() error {
		out, err := run(c.Command(t.Context(), "journalctl", "--no-pager", "--unit="+unit))
		if err == nil && !strings.Contains(out, want) {
			err = fmt.Errorf("the journal does not say %q:\n%s", want, out)
		}
		return err
	}); err != nil {
		t.Error(err)
	}
}

// addToConfig adds lines to the config of the machine, as root does.
func (c computer) addToConfig(t *testing.T, lines string) {
	t.Helper()
	c.run(t, "sh", "-ec", `printf %s "$1" >>/etc/wgsteer.yaml`, "sh", lines)
}

// checkConfinement looks at a unit's process: it is not root, and has these capabilities.
func (c computer) checkConfinement(t *testing.T, unit, capabilities string) {
	t.Helper()
	pid := strings.TrimSpace(c.run(t, "systemctl", "show", "--property=MainPID", "--value", unit))
	status := string(must(os.ReadFile(filepath.Join(c.Root(), "proc", pid, "status")))(t))
	for _, want := range []string{
		"CapPrm:\t" + capabilities, "CapEff:\t" + capabilities, "CapBnd:\t" + capabilities,
		"NoNewPrivs:\t1", "Seccomp:\t2",
	} {
		if !strings.Contains(status, "\n"+want+"\n") {
			t.Errorf("/proc/PID/status lacks %q", want)
		}
	}
	if strings.Contains(status, "\nUid:\t0\t") {
		t.Error("it runs as root")
	}
}

// install puts the programs, units and config into a folder as bootScript expects it,
// and returns its name quoted for the shell.
func install(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if _, _, err := lab.Build(t.Context(), filepath.Join(folder, "bin"), false); err != nil {
		t.Fatal(err)
	}
	for _, unit := range units {
		write(t, filepath.Join(folder, "units", unit), 0o644, must(os.ReadFile(unit))(t))
	}
	write(t, filepath.Join(folder, "etc", "wgsteer.yaml"), 0o600, []byte(config))
	return "'" + folder + "'\n"
}

// config is for both programs on one machine. Its file can be read by root alone.
const config = `
domains: [ffmuc_welt]
domain_prefixes: [ffmuc_]
externalName: 10.77.0.1
mqtt: {broker_url: 127.0.0.1, username: agent, password: SECRET}
server: {state_dir: /var/lib/wgsteer}
`

func write(t *testing.T, path string, mode os.FileMode, content []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content, mode); err != nil {
		t.Fatal(err)
	}
}

// letIn makes the socket of the WireGuard program in the folder from, which lets in only
// root, one for everybody in the folder to. The kernel's WireGuard asks for CAP_NET_ADMIN
// instead; with this, a WireGuard program asks for nothing more.
func letIn(t *testing.T, to, from string) {
	t.Helper()
	const socket = "wg-welt.sock"
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	listener := must(net.Listen("unix", filepath.Join(to, socket)))(t)
	if err := os.Chmod(filepath.Join(to, socket), 0o666); err != nil {
		t.Fatal(err)
	}
	var forwarding sync.WaitGroup
	t.Cleanup(func() {
		listener.Close()
		forwarding.Wait()
	})
	forwarding.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // It is closed.
			}
			forwarding.Go(func() { forward(client, filepath.Join(from, socket)) })
		}
	})
}

// forward carries a conversation, until the client ends it, to the socket at the path.
func forward(client net.Conn, path string) {
	defer client.Close()
	server, err := net.Dial("unix", path)
	if err != nil {
		return // The client sees that nobody answers.
	}
	var answering sync.WaitGroup
	answering.Go(func() {
		io.Copy(client, server)
		client.Close()
	})
	io.Copy(server, client)
	server.Close()
	answering.Wait()
}

// run runs the command and returns all that it wrote.
func run(cmd *exec.Cmd) (string, error) {
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%v: %w: %s", cmd.Args, err, out.String())
	}
	return out.String(), nil
}

// must returns the value, or fails the test.
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}
