package endtoend_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"wgsteer/internal/peer"
)

// nobody is a user that owns nothing.
const nobody = "65534"

// asNobody are the words before a command that run it as another user, with no
// capabilities but these, like "+net_admin".
func asNobody(capabilities string) []string {
	caps := "-all"
	if capabilities != "" {
		caps += "," + capabilities
	}
	return []string{"setpriv", "--reuid", nobody, "--regid", nobody, "--clear-groups",
		"--bounding-set", caps, "--inh-caps", caps, "--ambient-caps", caps, "--no-new-privs"}
}

func TestTheAgentNeedsNoMoreThanCapNetAdmin(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "setpriv", "unshare", "mount")
	gw1 := m.gateway("gw1", welt, city)
	// A userspace WireGuard's own socket is only for the user who started it.
	relay := gw1.relayWireGuard(func(string) error { return nil })
	m.startServer()
	m.eventually(m.lacks(welt, city)) // it listens: an agent that comes earlier says that it does not
	words := relay.command(append(asNobody("+net_admin"), m.programs.agent, "--config", m.config(gw1.Host))...)
	agent := m.start(gw1.Host, words[0], words[1:]...)
	m.eventually(m.lacks())
	status := m.run(gw1.Host, "grep", "-E", "^(Uid|CapEff|CapBnd):", fmt.Sprintf("/proc/%d/status", agent.PID()))
	if want := "Uid:\t65534\t65534\t65534\t65534\nCapEff:\t0000000000001000\nCapBnd:\t0000000000001000\n"; status != want {
		t.Fatalf("the agent does not run as it should:\n%s", status)
	}

	n := m.node("node1")
	m.ask(n, welt)
	m.connect(n, gw1, welt)
	check(t, gw1.applied(welt, n.Key())())
	if log := agent.Log(); strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") {
		t.Error("the agent complains")
	}
}

func TestWithoutCapNetAdminTheAgentSaysSoAndEnds(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "setpriv")
	gw1 := m.gateway("gw1", welt)
	words := append(asNobody(""), m.programs.agent, "--config", m.config(gw1.Host))
	ctx, cancel := context.WithTimeout(m.ctx, patience)
	defer cancel()
	out, err := gw1.Command(ctx, words[0], words[1:]...).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the agent ends with %v, want exit code 1", err)
	}
	if last := lastLine(string(out)); !strings.HasPrefix(last, "wgsteer-agent: ") || !strings.Contains(last, "CAP_NET_ADMIN") {
		t.Errorf("the agent's last words do not name what is missing:\n%s", out)
	}
}

func lastLine(text string) string {
	lines := linesOf(text)
	return lines[len(lines)-1]
}

func TestAnAgentWithAWrongAccountSaysSoOnceAndGoesOnTrying(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	gw1 := m.gateway("gw1", welt, city)
	server := m.startServer()
	m.eventually(m.lacks(welt, city))
	m.password = "wrong"
	agent := gw1.startAgent("--log-level", "debug")
	attempts := func() int { return strings.Count(agent.Log(), "cannot connect to the MQTT server") }
	m.eventually(logged(server, "MQTT client is not let in"))
	key := newKey()
	if status, body, err := m.exchange("v1", welt, key); status != 200 || err != nil {
		t.Fatalf("the exchange answers %d %s (%v)", status, body, err)
	}
	m.eventually(func() error {
		if n := attempts(); n < 3 {
			return fmt.Errorf("%d attempts", n)
		}
		return nil
	})
	check(t, all(
		logged(agent, `level=WARN msg="cannot connect to the MQTT server; retrying (said once)"`),
		logged(server, "MQTT client is not let in"),
		gw1.gone(welt, key),
		m.lacks(welt, city),
	)())
	if line := agent.Log(); !strings.Contains(line, "not Authorized") && !strings.Contains(line, "bad user name or password") {
		t.Error("the agent does not say that the account is wrong")
	}

	// Its attempts go on: the server gets the account that it has.
	check(t, server.Stop(m.ctx))
	m.startServer() // with the password that the agent has
	m.eventually(m.lacks())
	check(t, m.choices(welt, []peer.Key{key}, map[string]int{"gw1": 1})())
	m.eventually(gw1.applied(welt, key))
}
