package endtoend_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wgsteer/examples"
	"wgsteer/internal/lab"
)

// result is how a program ended.
type result struct {
	exit           int
	stdout, stderr string
}

// runHere runs a program on this machine, outside of all labs.
func runHere(t *testing.T, env []string, name string, args ...string) result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(os.Environ(), "WGSTEER_CONFIG=", "WGKEX_CONFIG_FILE=")
	cmd.Env = append(cmd.Env, env...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// reference is the reference config file.
const reference = "../../examples/wgsteer.yaml"

func TestCommandLine(t *testing.T) {
	t.Parallel()
	p := must(build())(t)
	good := string(must(os.ReadFile(reference))(t))
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "wgsteer.yaml")
		check(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	before, after, _ := strings.Cut(good, "  password: SECRET")
	unknownKey := write(before + "  passwort: SECRET" + after)
	unknownKeyError := fmt.Sprintf(": %s:%d:3: unknown key \"passwort\": take it out; --example-config prints all that there are\n", unknownKey, 1+strings.Count(before, "\n"))
	notYAML := write("domains: [ffmuc_welt\n")
	for name, program := range map[string]string{"wgsteer-server": p.server, "wgsteer-agent": p.agent} {
		for _, tt := range []struct {
			name string
			args []string
			want result // of stderr, the beginning
		}{
			{"check of the reference", []string{"--check", "--config", reference}, result{stdout: "ok\n"}},
			{"example config", []string{"--example-config"}, result{stdout: examples.Config}},
			{"check of an unknown key", []string{"--check", "--config", unknownKey}, result{exit: 1, stderr: name + unknownKeyError}},
			{"start with an unknown key", []string{"--config", unknownKey}, result{exit: 1, stderr: name + unknownKeyError}},
			{"check of what is not YAML", []string{"--check", "--config", notYAML}, result{exit: 1, stderr: name + ": " + notYAML + ":1:10: "}},
			{"check of a file that is not there", []string{"--check", "--config", "/nowhere.yaml"},
				result{exit: 1, stderr: name + ": read config: open /nowhere.yaml: no such file or directory\n"}},
		} {
			t.Run(name+"/"+tt.name, func(t *testing.T) {
				got := runHere(t, nil, program, tt.args...)
				if tt.want.stderr != "" && strings.HasPrefix(got.stderr, tt.want.stderr) {
					got.stderr = tt.want.stderr
				}
				if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(result{})); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			})
		}
		t.Run(name+"/version", func(t *testing.T) {
			got := runHere(t, nil, program, "--version")
			if got.exit != 0 || got.stderr != "" || !regexp.MustCompile(`^`+name+` \S+\n$`).MatchString(got.stdout) {
				t.Errorf("got %+v", got)
			}
		})
		t.Run(name+"/unknown flag", func(t *testing.T) {
			got := runHere(t, nil, program, "--no-such-flag")
			if got.exit == 0 || !strings.Contains(got.stderr, "--no-such-flag") {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// Each place has a config with an error of its own, by which the one that is read is known.
func TestTheConfigIsLookedForInOrder(t *testing.T) {
	t.Parallel()
	lab.Need(t, "unshare", "mount", "cp", "sh")
	p := must(build())(t)
	folder := t.TempDir()
	place := func(name string) string {
		path := filepath.Join(folder, name)
		check(t, os.WriteFile(path, []byte("from-"+name+": true\n"), 0o644))
		return path
	}
	flag, ours, theirs := place("flag"), place("ours"), place("theirs")
	check(t, os.Mkdir(filepath.Join(folder, "etc"), 0o755))
	place("etc/wgsteer.yaml")
	place("etc/wgkex.yaml")
	// An /etc that holds, of the two, these.
	const withEtc = `mount -t tmpfs none /etc && for name in $FILES; do cp "$FOLDER/etc/$name" /etc; done && exec "$@"`
	for program, path := range map[string]string{"wgsteer-server": p.server, "wgsteer-agent": p.agent} {
		for _, tt := range []struct {
			name string
			env  []string
			etc  string
			args []string
			want string // the beginning of the error
		}{
			{"the flag", []string{"WGSTEER_CONFIG=" + ours, "WGKEX_CONFIG_FILE=" + theirs}, "wgsteer.yaml wgkex.yaml", []string{"--config", flag}, flag + ":1:1: "},
			{"then our variable", []string{"WGSTEER_CONFIG=" + ours, "WGKEX_CONFIG_FILE=" + theirs}, "wgsteer.yaml wgkex.yaml", nil, ours + ":1:1: "},
			{"then wgkex's", []string{"WGKEX_CONFIG_FILE=" + theirs}, "wgsteer.yaml wgkex.yaml", nil, theirs + ":1:1: "},
			{"then our file", nil, "wgsteer.yaml wgkex.yaml", nil, "/etc/wgsteer.yaml:1:1: "},
			{"then wgkex's file", nil, "wgkex.yaml", nil, "/etc/wgkex.yaml:1:1: "},
			{"then none", nil, "", nil, "no config file: "},
		} {
			t.Run(program+"/"+tt.name, func(t *testing.T) {
				words := append([]string{"--mount", "sh", "-c", withEtc, "sh", path, "--check"}, tt.args...)
				got := runHere(t, append(tt.env, "FOLDER="+folder, "FILES="+tt.etc), "unshare", words...)
				if got.exit != 1 || got.stdout != "" || !strings.HasPrefix(got.stderr, program+": "+tt.want) {
					t.Errorf("got %+v, want exit code 1 and %q", got, program+": "+tt.want)
				}
			})
		}
	}
}
