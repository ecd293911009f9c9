package kernel_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"wgsteer/internal/lab"
)

// inside, in the environment, says that this process runs inside a host of a lab.
const inside = "KERNEL_TEST_INSIDE"

func TestMain(m *testing.M) {
	lab.Main()
	if os.Getenv(applyKeys) != "" {
		if err := applyInside(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// timeout bounds a test, for machines that are busy.
const timeout = time.Minute

// onHost runs the test's body in a process of its own inside a host of a new lab, for
// a network namespace belongs to a thread, not to a process. setUp, which may be nil,
// prepares the host from outside.
func onHost(t *testing.T, setUp func(ctx context.Context, h *lab.Host) error, body func(t *testing.T)) {
	if os.Getenv(inside) != "" {
		body(t)
		return
	}
	l := lab.ForTest(t)
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	h, err := l.Host(ctx, "gw1")
	if err != nil {
		t.Fatal(err)
	}
	if setUp != nil {
		if err := setUp(ctx, h); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := h.Command(ctx, self, "-test.run", "^"+t.Name()+"$", "-test.v")
	// A program built with -race sleeps for a second before it exits, unless told not to.
	cmd.Env = append(os.Environ(), inside+"=1", "GORACE=atexit_sleep_ms=0")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("inside the host: %v\n%s", err, out)

	}
}

// sh runs a command in this process's namespace and returns what it wrote.
func sh(t testing.TB, format string, args ...any) string {
	t.Helper()
	line := fmt.Sprintf(format, args...)
	out, err := exec.CommandContext(t.Context(), "sh", "-c", line).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", line, err, out)
	}
	return string(out)
}
