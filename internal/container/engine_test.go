package container_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"wgsteer/internal/lab"
	"wgsteer/internal/machine"
)

// engine is a Docker engine.
type engine struct {
	// private says that the engine is the test's own, on a machine of its own.
	private bool
	// host is what DOCKER_HOST must be to reach it. Empty: what it is by itself.
	host string
	// root is the root folder of where the engine runs.
	root string
	// dial connects from where the engine runs.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// anEngine returns the engine that runs on this machine, else one that the test starts.
func anEngine(t *testing.T) *engine {
	t.Helper()
	lab.Need(t, "docker", "make")
	if exec.CommandContext(t.Context(), "docker", "version").Run() == nil {
		t.Log("using the Docker engine that is running")
		return &engine{root: "/", dial: new(net.Dialer).DialContext}
	}
	return startEngine(t)
}

// engineScript runs a Docker engine that reads no daemon.json, works on any file
// system, and makes control groups without asking a systemd.
const engineScript = `
echo '{}' >/run/daemon.json
exec dockerd --config-file=/run/daemon.json --log-level=warn \
	--host=unix:///run/docker.sock --pidfile=/run/docker.pid \
	--data-root=/run/docker/data --exec-root=/run/docker/exec \
	--storage-driver=vfs --exec-opt=native.cgroupdriver=cgroupfs --cgroup-parent="$CGROUP"
`

// startEngine starts a private engine for the test.
func startEngine(t *testing.T) *engine {
	t.Helper()
	l := lab.ForTest(t, "dockerd")
	host, err := l.Host(t.Context(), "docker")
	if err != nil {
		t.Fatal(err)
	}
	m := machine.Boot(t, host, engineScript)
	e := &engine{private: true, host: "unix://" + m.Root() + "/run/docker.sock", root: m.Root(), dial: host.DialContext}
	if err := m.Eventually(t.Context(), func() error {
		_, err := run(e.command(t.Context(), "docker", "version"))
		return err
	}); err != nil {
		t.Fatalf("wait for the Docker engine: %v", err)
	}
	return e
}

// command prepares a command that talks to the engine, in the repository's root.
func (e *engine) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = "../.."
	for _, variable := range os.Environ() {
		// They would make an inner make act as a part of the outer one.
		if !strings.HasPrefix(variable, "MAKE") && !strings.HasPrefix(variable, "MFLAGS") {
			cmd.Env = append(cmd.Env, variable)
		}
	}
	if e.host != "" {
		cmd.Env = append(cmd.Env, "DOCKER_HOST="+e.host)
	}
	return cmd
}

// run runs the command and returns what it wrote to standard output. The error holds
// all that it wrote.
func run(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%v: %w: %s%s", cmd.Args, err, stdout.String(), stderr.String())
	}
	return strings.TrimSpace(stdout.String()), nil
}
