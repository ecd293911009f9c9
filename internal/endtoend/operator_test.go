package endtoend_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"wgsteer/internal/lab"
)

// edit changes the text of a config file, from each old to the new that follows it.
func (m *mesh) edit(path string, oldNew ...string) {
	m.t.Helper()
	text := string(must(os.ReadFile(path))(m.t))
	for i := 0; i < len(oldNew); i += 2 {
		if !strings.Contains(text, oldNew[i]) {
			m.t.Fatalf("%s does not hold %q:\n%s", path, oldNew[i], text)
		}
	}
	check(m.t, os.WriteFile(path, []byte(strings.NewReplacer(oldNew...).Replace(text)), 0o644))
}

// reload has a program read its config again.
func (m *mesh) reload(p *lab.Program) {
	m.t.Helper()
	check(m.t, p.Signal(syscall.SIGHUP))
}

// operate runs a command of wgsteer-server on the central host.
func (m *mesh) operate(args ...string) result {
	m.t.Helper()
	cmd := m.central.Command(m.ctx, m.server, append(args, "--config", filepath.Join(m.central.Folder(), "wgsteer.yaml"))...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		m.t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// row returns an attempt that succeeds when a command prints a row with these cells.
func (m *mesh) row(args []string, cells ...string) func() error {
	return func() error {
		got := m.operate(args...)
		for line := range strings.Lines(got.stdout) {
			if strings.Join(strings.Fields(line), " ") == strings.Join(cells, " ") {
				return nil
			}
		}
		return fmt.Errorf("%v: no row %q in %+v", args, cells, got)
	}
}

// healthy returns an attempt that succeeds when the server may send nodes of the domain to
// all these gateways.
func (m *mesh) healthy(d domain, gateways ...string) func() error {
	return func() error {
		got := m.operate("explain", d.name)
		for _, name := range gateways {
			if !slices.ContainsFunc(linesOf(got.stdout), func(line string) bool {
				return strings.HasPrefix(line, name+" ") && slices.Contains(strings.Fields(line), "ok")
			}) {
				return fmt.Errorf("no nodes are sent to %s: %+v", name, got)
			}
		}
		return nil
	}
}

func TestTheServerTakesUpAChangedConfigAndKeepsAWrongOneOut(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	path := m.config(m.central)
	m.edit(path, "["+welt.name+", "+city.name+"]", "["+welt.name+"]", "gw2: {weight: 10}", "gw2: {weight: 10, location: Vienna}")
	server := m.start(m.central, m.server, "--config", path)
	gw1, gw2 := m.gateway("gw1", welt, city), m.gateway("gw2", welt, city)
	gw1.startAgent()
	gw2.startAgent()
	m.eventually(m.healthy(welt, "gw1", "gw2"))
	check(t, m.choices(welt, newKeys(3), map[string]int{"gw1": 2, "gw2": 1})())
	// The agents have reported for the other domain, too: their data and their peers.
	m.eventually(func() error {
		if n := strings.Count(server.Log(), "domain is not configured"); n != 4 {
			return fmt.Errorf("%d reports of a domain that is not configured, want 4", n)
		}
		return nil
	})
	if _, body, err := m.get("/api/v1/locations"); err != nil || body != `{"locations":["Vienna"]}` {
		t.Errorf("the locations are %s, %v", body, err)
	}

	// A config that is wrong changes nothing, and is said with its place.
	good := string(must(os.ReadFile(path))(t))
	m.edit(path, "domain_prefixes", "domain_prefix")
	m.reload(server)
	m.eventually(logged(server, fmt.Sprintf(`level=ERROR msg="config is not reloaded, what was read before stays in force" error="%s:3:1: unknown key`, path)))
	check(t, m.lacks()())

	check(t, os.WriteFile(path, []byte(good), 0o644))
	m.edit(path, "["+welt.name+"]", "["+welt.name+", "+city.name+"]", "gw1: {weight: 20}", "gw1: {weight: 0, location: MUC}")
	m.reload(server)
	m.eventually(logged(server, `msg="config reloaded" changed="[worker gw1 domain ffmuc_city]"`))
	check(t, m.choices(city, newKeys(3), map[string]int{"gw2": 3})())
	if _, body, err := m.get("/api/v1/locations"); err != nil || body != `{"locations":["MUC","Vienna"]}` {
		t.Errorf("after the reload the locations are %s, %v", body, err)
	}
	if got := must(m.chosenNear(city, "MUC"))(t); got != "gw1" {
		t.Errorf("a node that wants to be in MUC is sent to %s", got)
	}
}

// chosenNear is the gateway that a new node is sent to that prefers a location.
func (m *mesh) chosenNear(d domain, location string) (string, error) {
	text := fmt.Sprintf(`{"domain": "%s", "public_key": "%v", "location": "%s"}`, d.name, newKey(), location)
	request, err := http.NewRequestWithContext(m.ctx, http.MethodPost, m.url()+"/api/v2/wg/key/exchange", strings.NewReader(text))
	if err != nil {
		return "", err
	}
	_, body, err := m.do(request)
	if err != nil {
		return "", err
	}
	return m.named(d, body)
}

func TestTheAgentTakesUpAChangedConfigWithoutCuttingTunnels(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.startServer()
	gw1 := m.gateway("gw1", welt, city)
	path := m.config(gw1.Host)
	m.edit(path, "["+welt.name+", "+city.name+"]", "["+welt.name+"]")
	agent := m.start(gw1.Host, m.programs.agent, "--config", path)
	m.eventually(m.lacks(city))
	n := m.node("node1")
	m.ask(n, welt)
	m.connect(n, gw1, welt)
	pings := m.ping(n, gw1, welt)

	m.reload(agent)
	m.eventually(logged(agent, "config reloaded: nothing has changed for the agent"))
	m.edit(path, "keepalive: 5", "keepalive: 0")
	m.reload(agent)
	m.eventually(logged(agent, path+":13:14: mqtt.keepalive is 0"))
	check(t, m.lacks(city)())

	m.edit(path, "keepalive: 0", "keepalive: 5", "["+welt.name+"]", "["+welt.name+", "+city.name+"]")
	m.reload(agent)
	m.eventually(m.lacks())
	m.eventually(gw1.applied(welt, n.Key()))
	check(t, logged(agent, "config reloaded: starting anew with it")())
	pings.lostNone()
}

func TestADrainHoldsUntilItIsUndoneAlsoOverARestart(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.state = filepath.Join(m.central.Folder(), "state")
	server := m.startServer()
	m.gateway("gw1", welt, city).startAgent()
	m.gateway("gw2", welt, city).startAgent()
	m.eventually(all(m.healthy(welt, "gw1", "gw2"), m.healthy(city, "gw1", "gw2")))
	check(t, m.choices(welt, newKeys(3), map[string]int{"gw1": 2, "gw2": 1})())
	check(t, m.row([]string{"workers"}, "gw1", "-", "20", "0", "2", "ok", "-", "ffmuc_city,", "ffmuc_welt")())

	if got := m.operate("drain", "gw3"); got.exit != 1 || !strings.Contains(got.stderr, `no such worker: "gw3"; known are: gw1, gw2, py1`) {
		t.Errorf("a typing error: %+v", got)
	}
	if got := m.operate("drain", "gw1"); got.exit != 0 || got.stdout != "gw1 is drained: it gets no new nodes\n" {
		t.Errorf("drain: %+v", got)
	}
	check(t, m.choices(city, newKeys(3), map[string]int{"gw2": 3})())

	check(t, server.Kill())
	if got := m.operate("workers"); got.exit != 1 || !strings.Contains(got.stderr, "does wgsteer-server run on this machine") {
		t.Errorf("without a server: %+v", got)
	}
	m.startServer()
	m.eventually(m.choices(city, newKeys(3), map[string]int{"gw2": 3}))
	explained := m.operate("explain", welt.name)
	if explained.exit != 0 || !strings.HasSuffix(explained.stdout, "\ngw2 would be chosen: the only one left\n") {
		t.Errorf("explain: %+v", explained)
	}
	if got := m.operate("explain", welt.name, newKey().String(), "--location", "MUC"); got.exit != 0 || !strings.Contains(got.stdout, "gw2 would be chosen") {
		t.Errorf("explain for a key: %+v", got)
	}
	if got := m.operate("undrain", "gw1"); got.exit != 0 || got.stdout != "gw1 is no longer drained: it gets new nodes\n" {
		t.Errorf("undrain: %+v", got)
	}
	if got := must(m.chosen(city, newKey()))(t); got != "gw1" {
		t.Errorf("after the undrain a node is sent to %s", got)
	}
	if got := m.operate("rebalance", "--dry-run"); got.exit != 0 {
		t.Errorf("rebalance: %+v", got)
	}
}

func TestOperatorsAreServedOverASocketOrNotAtAll(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	path := m.config(m.central)
	socket := filepath.Join(t.TempDir(), "admin.sock") // the host's folder can have a longer path than a socket may
	m.edit(path, "server:", "server:\n  admin_listen: unix:"+socket)
	server := m.start(m.central, m.server, "--config", path)
	m.eventually(m.row([]string{"workers"}, "gw1", "-", "20", "0", "0", "never", "heard", "of", "-", "-"))
	m.edit(path, "unix:"+socket, "off")
	if got := m.operate("workers"); got.exit != 1 || !strings.Contains(got.stderr, "server.admin_listen: off") {
		t.Errorf("with admin_listen: off: %+v", got)
	}
	m.reload(server)
	m.eventually(logged(server, `msg="config: a changed setting needs a restart of the server" setting=server.admin_listen`))
}

func TestNodesAreTakenAwayFromADrainedGatewayAsSoonAsTheyHaveSomewhereToGo(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.agent = "  report_interval: 3s\n"
	m.startServer()
	ear := m.listen()
	gw1, gw2 := m.gateway("gw1", city), m.gateway("gw2", welt)
	gw1.startAgent()
	gw2.startAgent()
	m.eventually(m.lacks())
	n := m.node("node1")
	m.ask(n, city)
	m.connect(n, gw1, city)
	m.eventually(m.row([]string{"workers"}, "gw1", "-", "20", "1", "0", "ok", "-", "ffmuc_city"))

	drain := m.start(m.central, m.server, "drain", "gw1", "--evict", "60", "--config", filepath.Join(m.central.Folder(), "wgsteer.yaml"))
	m.eventually(logged(drain, "gw1 is drained: it gets no new nodes", "gw1: 1 connected, 0 on their way, 0 taken away; none can go now"))
	check(t, drain.Signal(syscall.SIGINT))
	check(t, drain.Err())
	check(t, logged(drain, `the drain stays in force, "wgsteer-server undrain gw1" ends it`)())

	gw2.addSegment(city)
	m.eventually(ear.says("wgsteer/ffmuc_city/gw1/evict", n.Key().String()))
	m.eventually(gw1.gone(city, n.Key()))
	if got := m.operate("drain", "gw1", "--evict", "60"); got.exit != 0 || !strings.HasSuffix(got.stdout, "gw1 is empty; nodes taken away from it: 1; when it is to have nodes again: wgsteer-server undrain gw1\n") {
		t.Errorf("a drain of a gateway that is as good as empty: %+v", got)
	}
}
