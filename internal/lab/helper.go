package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// The names, as argv[0], under which a program that uses the lab runs itself again
// to do one of the lab's jobs. A name and not an environment variable, so that
// callers may set any environment for the command.
const (
	enterJob     = "wgsteer-lab-enter"
	wireGuardJob = "wgsteer-lab-wireguard"
)

// self is the running program, also for a child between fork and exec.
const self = "/proc/self/exe"

// exitHelper is the exit code of a helper that could not do its job: the one that
// shells use for "found, but could not be run".
const exitHelper = 126

// Main must be the first statement of a program's main, or of TestMain, that uses
// the lab. In a process that the lab started as its helper it does the helper's job
// and does not return; in any other it returns at once.
func Main() {
	var err error
	switch os.Args[0] {
	case enterJob:
		err = enterHost(os.Args[1:])
	case wireGuardJob:
		err = runWireGuard(os.Args[1:])
	default:
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "lab: %v\n", err)
		os.Exit(exitHelper)
	}
	os.Exit(0)
}

// entry is how a command enters a host. Its fields travel as arguments.
type entry struct {
	// report is the file descriptor that gets the text of an error, and is closed
	// when the command runs. 0: errors go to standard error.
	report int
	// namespace is the path of the host's network namespace.
	namespace string
	// sockets is the folder of the host's WireGuard sockets.
	sockets string
	// hostname is what the host calls itself.
	hostname string
	// path and argv are the command.
	path string
	argv []string
}

const entryArgs = 5

func (e entry) args() []string {
	return append([]string{enterJob, strconv.Itoa(e.report), e.namespace, e.sockets, e.hostname, e.path}, e.argv...)
}

func parseEntry(args []string) (entry, error) {
	if len(args) <= entryArgs {
		return entry{}, fmt.Errorf("%s: %d arguments, want more than %d", enterJob, len(args), entryArgs)
	}
	report, err := strconv.Atoi(args[0])
	if err != nil {
		return entry{}, fmt.Errorf("%s: file descriptor: %w", enterJob, err)
	}
	return entry{
		report: report, namespace: args[1], sockets: args[2], hostname: args[3],
		path: args[4], argv: args[5:],
	}, nil
}

// enterHost turns this process into the command inside the host. It returns only
// with an error.
func enterHost(args []string) error {
	e, err := parseEntry(args)
	if err != nil {
		return err
	}
	err = e.enter()
	if e.report == 0 {
		return err
	}
	// Whoever started us reads the error from the pipe; if it cannot be written
	// there, it is still our exit code.
	fmt.Fprint(os.NewFile(uintptr(e.report), "report"), err)
	os.Exit(exitHelper)
	return nil
}

func (e entry) enter() error {
	if e.report != 0 {
		unix.CloseOnExec(e.report)
	}
	// Namespaces belong to this thread; exec makes it the whole process.
	runtime.LockOSThread()
	if err := setNetNS(e.namespace); err != nil {
		return err
	}
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("unshare the mount and host name namespaces: %w", err)
	}
	// Slave: our mounts stay here, but what the machine unmounts goes away here too.
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keep mounts to this host: %w", err)
	}
	if err := unix.Mount(e.sockets, wireGuardSockets, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mount %s on %s: %w", e.sockets, wireGuardSockets, err)
	}
	if err := unix.Sethostname([]byte(e.hostname)); err != nil {
		return fmt.Errorf("set the host name to %s: %w", e.hostname, err)
	}
	err := syscall.Exec(e.path, e.argv, os.Environ())
	return fmt.Errorf("run %s: %w", filepath.Base(e.argv[0]), err)
}
