// Package machine turns a host of the lab into a machine for one test: with processes
// and mounts of its own, an empty /run and a first process that the test chooses, such
// as a Docker engine or systemd. When the first process ends, however it ends, all that
// the machine was is gone.
package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"wgsteer/internal/lab"
)

// prologue is what a shell does first in a new machine.
const prologue = `set -e
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
`

// controlGroups begins the name of each machine's control group, before the id of the
// process that made it.
const controlGroups = "wgsteer-machine-"

// Machine is a running machine.
type Machine struct {
	pid int
	log bytes.Buffer
	// ended is closed when the first process has ended, with err.
	ended chan struct{}
	err   error
}

// bootTimeout is how long Eventually tries, on a busy computer.
const bootTimeout = time.Minute

// Boot starts a machine in the host, until the end of the test. The script, of the
// shell, ends with an exec of the first process; $CGROUP is a name for its control
// group that belongs to this machine. What it says is shown if the test fails.
func Boot(t testing.TB, host *lab.Host, script string) *Machine {
	t.Helper()
	removeControlGroups(t)
	m := &Machine{ended: make(chan struct{})}
	// Not the test's context: what cleans up may still need the machine.
	cmd := host.Command(context.WithoutCancel(t.Context()), "sh", "-c", prologue+script)
	cmd.Env = append(os.Environ(), "CGROUP="+controlGroups+strconv.Itoa(os.Getpid()))
	cmd.Stdout, cmd.Stderr = &m.log, &m.log
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID, Setsid: true, Pdeathsig: syscall.SIGKILL}

	started := make(chan error)
	go func() {
		defer close(m.ended)
		// Pdeathsig is sent when the thread that made the process ends: it has to stay.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			m.err = cmd.Wait()
		}
	}()
	if err := <-started; err != nil {
		t.Fatalf("boot a machine: %v", err)
	}
	m.pid = cmd.Process.Pid
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Errorf("stop machine: %v", err)
		}
		<-m.ended
		if t.Failed() {
			t.Logf("the machine ended (%v) and had said:\n%s", m.err, m.log.String())
		}
		removeControlGroups(t)
	})
	return m
}

// Root returns the path of the machine's root folder, as seen from outside of it. Its
// /proc has the machine's processes.
func (m *Machine) Root() string { return fmt.Sprintf("/proc/%d/root", m.pid) }

// Command prepares a program to run inside the machine.
func (m *Machine) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "nsenter", append([]string{"--target", strconv.Itoa(m.pid), "--all", name}, args...)...)
}

// Eventually is lab.Eventually with enough time for a machine to get going. It gives up
// when the machine ends.
func (m *Machine) Eventually(ctx context.Context, attempt func() error) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	go func() {
		select {
		case <-m.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	return lab.Eventually(ctx, attempt)
}

// removeControlGroups removes those of machines that are gone, also of tests that were
// killed: the kernel keeps them.
func removeControlGroups(t testing.TB) {
	var groups []string
	err := filepath.WalkDir("/sys/fs/cgroup", func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // Somebody else's, which went away.
		}
		if err == nil && entry.IsDir() && isLeftOver(path) {
			groups = append(groups, path)
		}
		return err
	})
	if err != nil {
		t.Errorf("look for control groups: %v", err)
	}
	// Inner ones first.
	for _, group := range slices.Backward(groups) {
		if err := os.Remove(group); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("remove control group: %v", err)
		}
	}
}

// isLeftOver tells whether the path is the control group, or inside of one, of a
// process that is gone, or of this one.
func isLeftOver(path string) bool {
	_, rest, found := strings.Cut(path, "/"+controlGroups)
	if !found {
		return false
	}
	id, _, _ := strings.Cut(rest, "/")
	pid, err := strconv.Atoi(id)
	return err == nil && (pid == os.Getpid() || errors.Is(unix.Kill(pid, 0), unix.ESRCH))
}
