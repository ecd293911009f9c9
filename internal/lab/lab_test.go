package lab_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"wgsteer/internal/lab"
	"wgsteer/internal/peer"
)

// crashLab, in the environment, makes the test binary a process that makes the lab
// of that name, says so, and waits to be killed.
const crashLab = "LAB_TEST_CRASH"

// greetAt, in the environment, makes the test binary a server at that address that
// greets one client.
const greetAt = "LAB_TEST_GREET"

func TestMain(m *testing.M) {
	lab.Main()
	if name := os.Getenv(crashLab); name != "" {
		if err := makeAndWait(context.Background(), name); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	if address := os.Getenv(greetAt); address != "" {
		if err := greet(address); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

func greet(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	conn, err := listener.Accept()
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(conn, "hello"); err != nil {
		return err
	}
	return conn.Close()
}

func makeAndWait(ctx context.Context, name string) error {
	l, err := lab.New(ctx, name)
	if err != nil {
		return err
	}
	h, err := l.Host(ctx, "gw1")
	if err != nil {
		return err
	}
	if _, err := h.WireGuard(ctx, "wg-welt"); err != nil {
		return err
	}
	p, err := h.Start(ctx, "sleep", "1000")
	if err != nil {
		return err
	}
	fmt.Println(p.PID())
	select {}
}

// timeout bounds what a test waits for, for machines that are busy.
const timeout = 20 * time.Second

func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](v T, err error) func(t *testing.T) T {
	return func(t *testing.T) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var segment = lab.Segment{WireGuard: "wg-welt", VXLAN: "vx-welt", VNI: 7}

func TestHostsReachEachOther(t *testing.T) {
	l, ctx := lab.ForTest(t), bounded(t)
	a, b := must(l.Host(ctx, "a"))(t), must(l.Host(ctx, "b"))(t)
	for _, to := range []netip.Addr{b.Addr(), b.Addr6()} {
		if _, err := a.Ping(ctx, to); err != nil {
			t.Errorf("ping %v: %v", to, err)
		}
	}
	check(t, b.Unplug(ctx))
	if _, err := a.Ping(ctx, b.Addr()); err == nil {
		t.Error("an unplugged host answers")
	}
	check(t, b.Plug(ctx))
	check(t, lab.Eventually(ctx, func() error { _, err := a.Ping(ctx, b.Addr()); return err }))
}

func TestHostCallsItselfByItsName(t *testing.T) {
	l, ctx := lab.ForTest(t), bounded(t)
	h := must(l.Host(ctx, "gw-1"))(t)
	if got := must(h.Run(ctx, "uname", "-n"))(t); got != "gw-1\n" {
		t.Errorf("host name %q", got)
	}
}

func TestDialReachesAnotherHost(t *testing.T) {
	l, ctx := lab.ForTest(t), bounded(t)
	a, b := must(l.Host(ctx, "a"))(t), must(l.Host(ctx, "b"))(t)
	address := netip.AddrPortFrom(b.Addr(), 5000).String()
	server := must(b.Start(ctx, "env", greetAt+"="+address, must(os.Executable())(t)))(t)
	var got string
	check(t, lab.Eventually(ctx, func() error {
		conn, err := a.DialContext(ctx, "tcp", address)
		if err != nil {
			return err
		}
		defer conn.Close()
		got, err = bufio.NewReader(conn).ReadString('\n')
		return err
	}))
	if got != "hello\n" {
		t.Errorf("got %q", got)
	}
	check(t, server.Err())
}

func TestRunTellsWhatFailed(t *testing.T) {
	l, ctx := lab.ForTest(t), bounded(t)
	h := must(l.Host(ctx, "a"))(t)
	_, err := h.Run(ctx, "ip", "link", "show", "nothing")
	if err == nil || !strings.Contains(err.Error(), "ip link show nothing") || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("error %v names neither the command nor its complaint", err)
	}
	if _, err := h.Run(ctx, "no-such-program"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("error %v, want exec.ErrNotFound", err)
	}
	if _, err := h.Start(ctx, "no-such-program"); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("error %v, want exec.ErrNotFound", err)
	}
}

func TestStopReachesTheProgram(t *testing.T) {
	l, ctx := lab.ForTest(t), bounded(t)
	h := must(l.Host(ctx, "a"))(t)
	p := must(h.Start(ctx, "sh", "-c", `trap 'echo bye; exit 0' TERM; echo hello; while :; do sleep 0.01; done`))(t)
	check(t, lab.Eventually(ctx, func() error {
		if p.Log() != "hello\n" {
			return fmt.Errorf("log %q", p.Log())
		}
		return nil
	}))
	check(t, p.Stop(ctx))
	if got := p.Log(); got != "hello\nbye\n" {
		t.Errorf("log %q", got)
	}
}

func TestCloseTellsOfAProgramThatFailed(t *testing.T) {
	lab.Need(t)
	ctx := bounded(t)
	l := must(lab.New(ctx, fmt.Sprintf("f%d", os.Getpid())))(t)
	h := must(l.Host(ctx, "a"))(t)
	p := must(h.Start(ctx, "sh", "-c", "echo the cause; exit 66"))(t)
	<-p.Done()
	err := l.Close()
	if err == nil || !strings.Contains(err.Error(), "exit status 66") || !strings.Contains(err.Error(), "the cause") {
		t.Errorf("Close() = %v, want the exit status and the log", err)
	}
}

func TestEqualInterfaceNamesDoNotCollide(t *testing.T) {
	l, ctx := lab.ForTest(t), bounded(t)
	var interfaces []*lab.WireGuard
	for _, name := range []string{"gw1", "gw2", "gw3"} {
		h := must(l.Host(ctx, name))(t)
		interfaces = append(interfaces, must(h.WireGuard(ctx, "wg-welt"))(t))
		out := must(h.Run(ctx, "wg", "show", "wg-welt", "public-key"))(t)
		if got, want := strings.TrimSpace(out), interfaces[len(interfaces)-1].Key().String(); got != want {
			t.Errorf("%s has key %s, want %s", name, got, want)
		}
	}
	check(t, interfaces[1].Stop(ctx))
	if _, err := interfaces[0].Peers(ctx); err != nil {
		t.Errorf("gw1's interface went with gw2's: %v", err)
	}
}

func TestInterfaceHasNoAddressOfTheKernelsMaking(t *testing.T) {
	l, ctx := lab.ForTest(t), bounded(t)
	h := must(l.Host(ctx, "gw1"))(t)
	g := must(h.Gateway(ctx, segment))(t)
	out := must(h.Run(ctx, "ip", "-6", "-oneline", "address", "show", "dev", "wg-welt"))(t)
	if strings.Count(out, "\n") != 1 || !strings.Contains(out, g.LinkAddress().String()+"/128") {
		t.Errorf("addresses:\n%s", out)
	}
}

func TestInterfaceComesBackUnderItsName(t *testing.T) {
	l, ctx := lab.ForTest(t), bounded(t)
	h := must(l.Host(ctx, "gw1"))(t)
	g := must(h.Gateway(ctx, segment))(t)
	endpoint := g.Endpoint()
	for name, end := range map[string]func(context.Context) error{
		"stopped": g.Stop, "killed": g.WireGuard().Kill,
		"deleted": func(ctx context.Context) error {
			_, err := h.Run(ctx, "ip", "link", "del", "wg-welt")
			return err
		},
	} {
		check(t, end(ctx))
		for _, dev := range []string{"wg-welt", "vx-welt"} {
			if _, err := h.Run(ctx, "ip", "link", "show", dev); err == nil {
				t.Errorf("%s is there after wg-welt was %s", dev, name)
			}
		}
		check(t, g.Start(ctx))
		if got := g.Endpoint().HostPort(); got != endpoint.HostPort() {
			t.Errorf("after it was %s the endpoint is %s, was %s", name, got, endpoint.HostPort())
		}
	}
}

func TestNodeReachesGatewayThroughVXLAN(t *testing.T) {
	for _, scheme := range peer.Schemes() {
		t.Run(scheme.String(), func(t *testing.T) {
			l, ctx := lab.ForTest(t), bounded(t)
			s := segment
			s.Scheme = scheme
			g := must(must(l.Host(ctx, "gw1"))(t).Gateway(ctx, s))(t)
			n := must(must(l.Host(ctx, "node1"))(t).Node(ctx, scheme))(t)
			check(t, g.AddNode(ctx, n.Key()))
			check(t, n.Connect(ctx, g.Endpoint(), s.VNI))
			check(t, n.AwaitHandshake(ctx, g.WireGuard().Key()))
			took := must(n.AwaitPing(ctx, g.Inner()))(t)
			t.Logf("ping took %v, kernel WireGuard: %v", took, l.KernelWireGuard())
		})
	}
}

func TestNodeChangesGateway(t *testing.T) {
	l, ctx := lab.ForTest(t), bounded(t)
	n := must(must(l.Host(ctx, "node1"))(t).Node(ctx, peer.WGKex))(t)
	for _, name := range []string{"gw1", "gw2"} {
		g := must(must(l.Host(ctx, name))(t).Gateway(ctx, segment))(t)
		check(t, g.AddNode(ctx, n.Key()))
		check(t, n.Connect(ctx, g.Endpoint(), segment.VNI))
		must(n.AwaitPing(ctx, g.Inner()))(t)
	}
}

// crash makes a lab in another process and kills that. It returns the process of a
// program in the lab.
func crash(t *testing.T, name string, alive func(owner *exec.Cmd)) (pid int) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashLab+"="+name)
	out := must(cmd.StdoutPipe())(t)
	check(t, cmd.Start())
	line, _ := bufio.NewReader(out).ReadString('\n')
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the other process says %q", line)
	}
	alive(cmd)
	check(t, cmd.Process.Kill())
	if err := cmd.Wait(); err == nil {
		t.Fatal("the other process ended by itself")
	}
	return pid
}

// running tells whether a process runs: one that has ended but was not waited for
// has no namespace any more.
func running(pid int) bool {
	_, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", pid))
	return err == nil
}

func namespaces(t *testing.T, name string) []string {
	t.Helper()
	return must(filepath.Glob("/run/netns/wgl-" + name + "-*"))(t)
}

func TestLeftoversOfACrashAreRemovedByTheNext(t *testing.T) {
	lab.Need(t)
	name := fmt.Sprintf("c%d", os.Getpid())
	pid := crash(t, name, func(*exec.Cmd) {
		lab.ForTest(t)
		if len(namespaces(t, name)) != 2 {
			t.Error("a lab in use was touched by another process's New")
		}
		if err := lab.Remove(t.Context(), name); !errors.Is(err, lab.ErrInUse) {
			t.Errorf("Remove of a lab in use: %v, want ErrInUse", err)
		}
		if _, err := lab.New(t.Context(), name); !errors.Is(err, lab.ErrInUse) {
			t.Errorf("New of a lab in use: %v, want ErrInUse", err)
		}
	})
	if !running(pid) {
		t.Fatal("the crash left nothing to remove")
	}
	lab.ForTest(t)
	if left := namespaces(t, name); len(left) != 0 {
		t.Errorf("namespaces %v are left", left)
	}
	if running(pid) {
		t.Error("a program is left")
	}
	if _, err := os.Stat("/run/wgsteer-lab/" + name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its folder is left: %v", err)
	}
}

func TestKeptLabStaysUntilItIsRemoved(t *testing.T) {
	lab.Need(t)
	ctx := bounded(t)
	name := fmt.Sprintf("k%d", os.Getpid())
	l := must(lab.New(ctx, name))(t)
	h := must(l.Host(ctx, "a"))(t)
	p := must(h.Start(ctx, "sleep", "1000"))(t)
	check(t, l.Keep())
	check(t, l.Close())

	lab.ForTest(t)
	cmd := must(lab.Command(ctx, name, "a", "uname", "-n"))(t)
	if got := string(must(cmd.Output())(t)); got != "a\n" {
		t.Errorf("uname -n on the kept host says %q", got)
	}
	if _, err := lab.Command(ctx, name, "b", "true"); err == nil || !strings.Contains(err.Error(), "it has a") {
		t.Errorf("error %v does not say which hosts there are", err)
	}
	check(t, lab.Remove(ctx, name))
	<-p.Done()
	if left := namespaces(t, name); len(left) != 0 {
		t.Errorf("namespaces %v are left", left)
	}
	check(t, lab.Remove(ctx, name))
}

func TestNamesThatAreRefused(t *testing.T) {
	l, ctx := lab.ForTest(t), bounded(t)
	for _, name := range []string{"", "a-b", "../x", "A", strings.Repeat("a", 25)} {
		if _, err := lab.New(ctx, name); err == nil {
			t.Errorf("New(%q) made a lab", name)
		}
	}
	must(l.Host(ctx, "a"))(t)
	for _, name := range []string{"", "a", "switch", "../x", "-a", strings.Repeat("a", 25)} {
		if _, err := l.Host(ctx, name); err == nil {
			t.Errorf("Host(%q) made a host", name)
		}
	}
}
