// Package container_test builds the container image, runs it with the compose file
// and is a node to it.
package container_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	mqtt "github.com/eclipse/paho.mqtt.golang"

	"wgsteer/internal/lab"
)

func TestMain(m *testing.M) {
	lab.Main()
	os.Exit(m.Run())
}

// user is the user of the image, see Dockerfile.
const user = 65532

const config = `
domains: [ffmuc_welt]
domain_prefixes: [ffmuc_]
mqtt: {broker_url: localhost, username: agent, password: SECRET}
server: {state_dir: /var/lib/wgsteer}
`

func TestContainerServesNodesUnderItsOwnUser(t *testing.T) {
	e := anEngine(t)
	s := up(t, e)
	s.waitHealthy(t)

	t.Run("exchange", func(t *testing.T) {
		body := `{"domain": "ffmuc_welt", "public_key": "o52Ge+Rpj4CUSitVag9mS7pSXUesNM0ESnvj/wwehkg="}`
		status, answer := s.post(t, "/api/v1/wg/key/exchange", body)
		if status != http.StatusOK || strings.TrimSpace(answer) != `{"Message":"OK"}` {
			t.Errorf("answer %d %s", status, answer)
		}
	})
	t.Run("MQTT", func(t *testing.T) {
		client := mqtt.NewClient(mqtt.NewClientOptions().
			AddBroker("tcp://" + s.mqtt).SetUsername("agent").SetPassword("SECRET").
			SetCustomOpenConnectionFn(func(broker *url.URL, _ mqtt.ClientOptions) (net.Conn, error) {
				return e.dial(t.Context(), "tcp", broker.Host)
			}))
		token := client.Connect()
		if !token.WaitTimeout(10 * time.Second) {
			t.Fatal("no answer to CONNECT")
		}
		if err := token.Error(); err != nil {
			t.Fatal(err)
		}
		client.Disconnect(0)
	})
	t.Run("confinement", func(t *testing.T) { s.checkConfinement(t) })
	t.Run("stop", func(t *testing.T) {
		if _, err := run(e.command(t.Context(), "docker", "stop", s.container)); err != nil {
			t.Fatal(err)
		}
		if code := s.inspect(t, "{{.State.ExitCode}}"); code != "0" {
			t.Errorf("exit code %s after SIGTERM, want 0", code)
		}
	})
}

// project names the image, the container and all that belongs to it. It is always the
// same, so that a test finds what one before it left that was interrupted.
const project = "wgsteer-test"

// service is the server's container.
type service struct {
	engine *engine
	// environment is what the compose file takes its values from.
	environment []string
	container   string
	http, mqtt  string
}

// up builds the image and starts the compose file, for the test's time.
func up(t *testing.T, e *engine) *service {
	t.Helper()
	s := &service{engine: e}
	s.environment = []string{"WGSTEER_IMAGE=" + project, "WGSTEER_CONFIG=" + writeConfig(t)}
	if e.private {
		s.http, s.mqtt = "127.0.0.1:5000", "127.0.0.1:1883"
	} else {
		s.http, s.mqtt = freeAddress(t), freeAddress(t)
		s.environment = append(s.environment, "WGSTEER_HTTP="+s.http, "WGSTEER_MQTT="+s.mqtt)
	}
	s.remove(t)
	t.Cleanup(func() {
		if t.Failed() {
			logs, err := s.compose(context.Background(), "logs", "--no-color")
			t.Logf("the container's log (error: %v):\n%s", err, logs)
		}
		s.remove(t)
	})
	if _, err := run(e.command(t.Context(), "make", "image", "IMAGE="+project)); err != nil {
		t.Fatal(err)
	}
	if _, err := s.compose(t.Context(), "up", "--detach", "--no-build"); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.container, err = s.compose(t.Context(), "ps", "--quiet", "wgsteer-server"); err != nil {
		t.Fatal(err)
	}
	return s
}

// remove removes the container, its network, volume and image, if they are there.
func (s *service) remove(t *testing.T) {
	t.Helper()
	// Not the test's context, which is done at the end.
	if _, err := s.compose(context.Background(), "down", "--volumes", "--rmi", "all"); err != nil {
		t.Error(err)
	}
}

// compose runs Docker's compose plugin, else the older program.
func (s *service) compose(ctx context.Context, args ...string) (string, error) {
	words := []string{"docker", "compose"}
	if _, err := run(s.engine.command(ctx, "docker", "compose", "version")); err != nil {
		words = []string{"docker-compose"}
	}
	words = append(words, "--project-name", project)
	words = append(words, args...)
	cmd := s.engine.command(ctx, words[0], words[1:]...)
	cmd.Env = append(cmd.Env, s.environment...)
	return run(cmd)
}

// writeConfig writes a config file as an operator is told to: only the image's user
// can read it.
func writeConfig(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "wgsteer.yaml")
	if err := os.WriteFile(path, []byte(config), 0o400); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(path, user, user); err != nil {
		t.Fatal(err)
	}
	return path
}

func freeAddress(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// inspect returns what the engine knows about the container, in a template.
func (s *service) inspect(t *testing.T, template string) string {
	t.Helper()
	out, err := run(s.engine.command(t.Context(), "docker", "inspect", "--format", template, s.container))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// waitHealthy waits until the image's health check says so.
func (s *service) waitHealthy(t *testing.T) {
	t.Helper()
	deadline := time.After(time.Minute)
	// Each look at the state is a program that runs: not too many of them.
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for {
		state := s.inspect(t, "{{.State.Status}} {{.State.Health.Status}}")
		if state == "running healthy" {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("the container is %s: %s", state, s.inspect(t, "{{json .State.Health.Log}}"))
		}
	}
}

// post sends what a node sends, from the machine that the engine runs on.
func (s *service) post(t *testing.T, path, body string) (status int, answer string) {
	t.Helper()
	client := http.Client{
		Transport: &http.Transport{DialContext: s.engine.dial, DisableKeepAlives: true},
		Timeout:   10 * time.Second,
	}
	response, err := client.Post("http://"+s.http+path, "application/x-www-form-urlencoded", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(content)
}

// checkConfinement looks at the process itself, not at what the engine says of it.
func (s *service) checkConfinement(t *testing.T) {
	proc := filepath.Join(s.engine.root, "proc", s.inspect(t, "{{.State.Pid}}"))
	status := readFile(t, filepath.Join(proc, "status"))
	for _, want := range []string{
		"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000",
		"CapBnd:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1",
	} {
		if !strings.Contains(status, "\n"+want+"\n") {
			t.Errorf("/proc/PID/status lacks %q", want)
		}
	}
	state, err := os.Stat(filepath.Join(proc, "root/var/lib/wgsteer"))
	if err != nil {
		t.Fatal(err)
	}
	owner := state.Sys().(*syscall.Stat_t).Uid
	if ids := fmt.Sprintf("\nUid:\t%d\t%[1]d\t%[1]d\t%[1]d\n", owner); !strings.Contains(status, ids) {
		t.Errorf("the folder of the state belongs to user %d, who does not run the server", owner)
	}
	// An engine that does not run as root makes another user of it.
	if owner == 0 || s.engine.private && owner != user {
		t.Errorf("the server runs as user %d, want %d", owner, user)
	}
	if _, err := os.Stat(filepath.Join(proc, "root/var/lib/wgsteer/state.db")); err != nil {
		t.Errorf("the server keeps no state: %v", err)
	}
	mounts := readFile(t, filepath.Join(proc, "mountinfo"))
	for point, want := range map[string]string{"/": "ro", "/etc/wgsteer.yaml": "ro", "/var/lib/wgsteer": "rw"} {
		// See proc_pid_mountinfo(5): the fifth field is where, the sixth begins with ro or rw.
		if !regexp.MustCompile(`(?m)^(\S+ ){4}` + regexp.QuoteMeta(point) + ` ` + want + `\b`).MatchString(mounts) {
			t.Errorf("%s is not mounted %s", point, want)
		}
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}
