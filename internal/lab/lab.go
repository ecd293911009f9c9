package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"
)

// switchHost is the namespace of the switch. Hosts cannot have its name.
const switchHost = "switch"

// bridge is the switch's interface inside its namespace.
const bridge = "br0"

// The underlay: the network that plays the internet between the hosts.
var (
	underlay4 = netip.MustParsePrefix("10.77.0.0/16")
	underlay6 = netip.MustParsePrefix("fdc4:7767:7374:1::/64")
)

// labName leaves no dash, which separates it from the host's name in a namespace.
var labName = regexp.MustCompile(`^[a-z0-9]{1,24}$`)

// closeTimeout bounds how long Close waits for programs to stop by themselves, and
// then for what is left to be removed.
const closeTimeout = 10 * time.Second

// Lab is a switch with hosts plugged into it. It is safe for concurrent use.
type Lab struct {
	name string
	lock *os.File
	// kernelWireGuard says that the kernel has WireGuard.
	kernelWireGuard bool

	mu       sync.Mutex
	hosts    []*Host
	programs []*Program
	kept     bool
	closed   bool
}

// New makes an empty lab. Its name, of lower-case letters and digits, must not be in
// use by a living process; a lab of that name that was kept, and all that crashed
// processes left, is removed first.
func New(ctx context.Context, name string) (*Lab, error) {
	l, err := create(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("make lab %s: %w", name, err)
	}
	if err := l.makeSwitch(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("make lab %s: %w", name, err), l.Close())
	}
	return l, nil
}

// create makes the lab's folder and takes its lock.
func create(ctx context.Context, name string) (*Lab, error) {
	if !labName.MatchString(name) {
		return nil, errors.New("a lab's name is 1 to 24 lower-case letters and digits")
	}
	done, err := lockAll(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := removeLeftovers(ctx); err != nil {
		return nil, err
	}
	if err := removeUnused(ctx, name); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(folderOf(name), "hosts"), 0o755); err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	lock, free, err := tryLock(lockOf(name))
	if err != nil {
		return nil, err
	}
	if !free {
		return nil, errors.New("its new lock is taken")
	}
	return &Lab{name: name, lock: lock}, nil
}

func (l *Lab) makeSwitch(ctx context.Context) error {
	ns := namespaceOf(l.name, switchHost)
	if err := ip(ctx, "netns", "add", ns); err != nil {
		return err
	}
	// Without a querier a snooping bridge may lose the neighbour discovery of IPv6.
	if err := ipBatch(ctx, ns,
		"link add "+bridge+" type bridge mcast_snooping 0",
		"link set "+bridge+" addrgenmode none up",
	); err != nil {
		return err
	}
	l.kernelWireGuard = ip(ctx, "-n", ns, "link", "add", "probe", "type", "wireguard") == nil
	if l.kernelWireGuard {
		return ip(ctx, "-n", ns, "link", "del", "probe")
	}
	return nil
}

// Name returns the lab's name.
func (l *Lab) Name() string { return l.name }

// Folder returns the folder that holds the lab's state, which Close removes.
func (l *Lab) Folder() string { return folderOf(l.name) }

// KernelWireGuard tells whether the lab's WireGuard interfaces are the kernel's, and
// not those of a program.
func (l *Lab) KernelWireGuard() bool { return l.kernelWireGuard }

// Keep makes Close leave the lab as it is, with its programs running, until Remove,
// or New with the same name.
func (l *Lab) Keep() error {
	if err := os.WriteFile(keptMark(l.name), nil, 0o644); err != nil {
		return fmt.Errorf("keep lab %s: %w", l.name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept = true
	return nil
}

// Close stops the programs that Start started, ends all other processes in the lab
// and removes it. The error tells of programs that did not end with exit code 0,
// unless their Stop, Kill or Err has told the caller. A lab that is kept is only let
// go.
func (l *Lab) Close() error {
	l.mu.Lock()
	closed, kept, programs := l.closed, l.kept, slices.Clone(l.programs)
	l.closed = true
	l.mu.Unlock()
	if closed {
		return nil
	}
	defer l.lock.Close()
	if kept {
		return nil
	}
	// Not the caller's context: whatever made it give up, what it made has to go.
	err := stopAll(programs)
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	err = errors.Join(err, l.removeAlone(ctx))
	for _, p := range programs {
		if p.daemon {
			err = errors.Join(err, p.Kill())
		}
	}
	if err != nil {
		return fmt.Errorf("close lab %s: %w", l.name, err)
	}
	return nil
}

// removeAlone removes what the lab made while nobody looks for leftovers, who would
// find half of it.
func (l *Lab) removeAlone(ctx context.Context) error {
	done, err := lockAll(ctx)
	if err != nil {
		return err
	}
	defer done()
	return remove(ctx, l.name)
}

// stopAll stops the programs at the same time, and returns what went wrong with them
// that nobody has been told.
func stopAll(programs []*Program) error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	errs := make([]error, len(programs))
	var stopping sync.WaitGroup
	for i, p := range programs {
		// A daemon ends with the lab.
		if p.daemon || p.ended() && p.told.Load() {
			continue
		}
		stopping.Go(func() { errs[i] = p.Stop(ctx) })
	}
	stopping.Wait()
	return errors.Join(errs...)
}

// addProgram hands a program to the lab, which waits for it in Close.
func (l *Lab) addProgram(p *Program) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.programs = append(l.programs, p)
}

// Programs returns the programs that Start started, in that order, ended ones
// included.
func (l *Lab) Programs() []*Program {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(l.programs), func(p *Program) bool { return p.daemon })
}
