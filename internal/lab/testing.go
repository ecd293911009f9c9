package lab

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

// tools are the programs that every lab needs, with their packages.
func tools() map[string]string {
	return map[string]string{
		"ip": "iproute2", "bridge": "iproute2", "wg": "wireguard-tools", "ping": "iputils-ping",
	}
}

// Missing returns what this process lacks to run a lab, and which of the other
// programs, each as a plain phrase. It is empty when nothing is missing.
func Missing(others ...string) []string {
	var missing []string
	if os.Geteuid() != 0 {
		missing = append(missing, "to be run by root")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		missing = append(missing, "the device /dev/net/tun")
	}
	packages := tools()
	for _, tool := range slices.Concat(slices.Sorted(maps.Keys(packages)), others) {
		if _, err := exec.LookPath(tool); err == nil {
			continue
		}
		phrase := "the program " + tool
		if pkg := packages[tool]; pkg != "" {
			phrase += " (in Debian's package " + pkg + ")"
		}
		missing = append(missing, phrase)
	}
	return missing
}

// Need skips the test when it is not run by root, or when a tool of the lab or one
// of those given is missing. Where the environment says CI, the test fails instead.
func Need(t testing.TB, tools ...string) {
	t.Helper()
	missing := Missing(tools...)
	if len(missing) == 0 {
		return
	}
	message := "this test needs " + strings.Join(missing, ", ")
	if os.Getenv("CI") != "" {
		t.Fatal(message + "; nothing is skipped in CI")
	}
	t.Skip(message)
}

// ForTest makes a lab for a test, or skips it as Need does. At the test's end the
// lab is closed; then the test fails if a program did not stop cleanly, and if it
// failed the programs' logs are shown.
func ForTest(t testing.TB, tools ...string) *Lab {
	t.Helper()
	Need(t, tools...)
	// The process and the moment, so that tests of all processes can run at once.
	name := fmt.Sprintf("t%dx%x", os.Getpid(), time.Now().UnixNano()&0xffffffff)
	l, err := New(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stopAll(l.Programs()); err != nil {
			t.Error(err)
		}
		if logs := l.Logs(); t.Failed() && logs != "" {
			t.Log(logs)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

// Logs returns what all programs that Start started have written, for a reader.
func (l *Lab) Logs() string {
	var b strings.Builder
	for _, p := range l.Programs() {
		fmt.Fprintf(&b, "\n== %v ==\n%s", p, p.Log())
	}
	return b.String()
}
