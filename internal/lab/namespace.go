package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// namespaces is where `ip netns` keeps the network namespaces that have a name.
const namespaces = "/run/netns"

// setNetNS moves the calling thread, which must be locked, into a network namespace.
func setNetNS(path string) error {
	ns, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open network namespace: %w", err)
	}
	defer ns.Close()
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	return nil
}

// inNetNS calls f on a thread that is in the network namespace. f may open sockets
// and files, which stay in the namespace, but must not hand work to goroutines.
func inNetNS(path string, f func() error) error {
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open own network namespace: %w", err)
	}
	defer home.Close()
	if err := setNetNS(path); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = f()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		// The thread stays locked: it ends with its goroutine and misleads no other.
		return errors.Join(err, fmt.Errorf("leave network namespace %s: %w", path, back))
	}
	runtime.UnlockOSThread()
	return err
}

// ip runs the ip tool, outside of all hosts.
func ip(ctx context.Context, args ...string) error {
	_, err := output(exec.CommandContext(ctx, "ip", args...))
	return err
}

// ipBatch runs lines of arguments of the ip tool inside a network namespace.
func ipBatch(ctx context.Context, namespace string, lines ...string) error {
	cmd := exec.CommandContext(ctx, "ip", "-n", namespace, "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if _, err := output(cmd); err != nil {
		return fmt.Errorf("in namespace %s: %q: %w", namespace, lines, err)
	}
	return nil
}

// output runs the command and returns what it wrote to standard output. The error
// holds what it wrote to standard error.
func output(cmd *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", commandLine(cmd), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// commandLine is the command as a user would write it, without how it enters a host.
func commandLine(cmd *exec.Cmd) string {
	args := cmd.Args
	if args[0] == enterJob {
		args = args[1+entryArgs:]
	}
	return strings.Join(args, " ")
}

// killAll ends every process in the network namespaces, which are paths, and
// returns when none is left.
func killAll(ctx context.Context, paths []string) error {
	return Eventually(ctx, func() error {
		pids, err := processesIn(paths)
		if err != nil {
			return err
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill process %d: %w", pid, err)
			}
		}
		if len(pids) > 0 {
			return fmt.Errorf("processes %v are still running", pids)
		}
		return nil
	})
}

// processesIn returns the processes, without this one, whose network namespace is
// one of those at the paths.
func processesIn(paths []string) ([]int, error) {
	wanted := make(map[uint64]bool)
	for _, path := range paths {
		if inode, err := inodeOf(path); err == nil {
			wanted[inode] = true
		}
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		// A process that has ended in the meantime has no namespace.
		if inode, err := inodeOf(filepath.Join("/proc", entry.Name(), "ns/net")); err == nil && wanted[inode] {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// inodeOf tells namespaces apart: all of them are in one file system.
func inodeOf(path string) (uint64, error) {
	var stat unix.Stat_t
	if err := unix.Stat(path, &stat); err != nil {
		return 0, err
	}
	return stat.Ino, nil
}
