// Package setup_test runs the set-up script of the Makefile where it cannot do its work:
// it has to say what is missing.
package setup_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// basics are the programs that the script itself uses, and that every machine has.
var basics = []string{"cat", "dirname", "id", "mktemp", "rm", "sed", "sh", "sort", "tr", "uname"}

func TestWhatIsMissingIsSaid(t *testing.T) {
	if os.Geteuid() != 0 && os.Getenv("CI") == "" { // where it is to fail
		t.Skip("this test is about what root is told")
	}
	tests := []struct {
		name string
		// programs are scripts on the PATH beside the basics.
		programs map[string]string
		user     uint32
		want     string
	}{
		{"no Go", map[string]string{"git": ""}, 0, "Go is missing"},
		{"an old Go", map[string]string{"git": "", "go": "echo go1.9.7"}, 0, "found go1.9.7"},
		{"a Go that cannot read go.mod", map[string]string{"git": "", "go": "exit 1"}, 0, "or newer is needed"},
		{"no git", map[string]string{"go": "echo go1.99"}, 0, "git is missing"},
		{"not root", map[string]string{"git": "", "go": "echo go1.99"}, 65534, "needs root"},
		{"no Debian", map[string]string{"git": "", "go": "echo go1.99"}, 0, "wireguard-tools"},
		{"no network", map[string]string{"git": "", "go": "echo go1.99", "apt-get": "echo no route to host; exit 100"}, 0,
			"no route to host\nset-up: failed: apt-get update"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cmd := exec.Command(script(t))
			cmd.Args = append(cmd.Args, "demo")
			cmd.Env = []string{"PATH=" + pathWith(t, test.programs)}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: test.user, Gid: test.user}}
			out, err := cmd.CombinedOutput()
			if err == nil {
				t.Errorf("exit code 0")
			}
			if !strings.Contains(string(out), test.want) {
				t.Errorf("it does not say %q but:\n%s", test.want, out)
			}
		})
	}
}

// script returns the path of a copy of the script, in a project that every user can read.
func script(t *testing.T) string {
	t.Helper()
	project := openFolder(t)
	for _, file := range []string{"go.mod", ".ci/setup"} {
		content, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(project, file), string(content))
	}
	return filepath.Join(project, ".ci/setup")
}

// pathWith returns a folder that has the basics, and these scripts.
func pathWith(t *testing.T, programs map[string]string) string {
	t.Helper()
	folder := openFolder(t)
	for _, name := range basics {
		path, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, body := range programs {
		write(t, filepath.Join(folder, name), "#!/bin/sh\n"+body+"\n")
	}
	return folder
}

// openFolder is t.TempDir for every user.
func openFolder(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	if err := os.Chmod(filepath.Dir(folder), 0o755); err != nil {
		t.Fatal(err)
	}
	return folder
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
}
