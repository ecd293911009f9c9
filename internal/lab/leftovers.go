package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// root holds a folder for each lab of the machine.
const root = "/run/wgsteer-lab"

// namespacePrefix begins the name of each network namespace of a lab.
const namespacePrefix = "wgl-"

// ErrInUse is wrapped by the error of New and Remove for a lab that a living
// process owns.
var ErrInUse = errors.New("a running process owns it")

func folderOf(lab string) string          { return filepath.Join(root, lab) }
func lockOf(lab string) string            { return filepath.Join(folderOf(lab), "lock") }
func keptMark(lab string) string          { return filepath.Join(folderOf(lab), "kept") }
func hostFolder(lab, host string) string  { return filepath.Join(folderOf(lab), "hosts", host) }
func namespaceOf(lab, host string) string { return namespacePrefix + lab + "-" + host }

// Remove removes a lab that was kept. One that is not there is no error.
func Remove(ctx context.Context, name string) error {
	if _, err := os.Stat(folderOf(name)); errors.Is(err, os.ErrNotExist) {
		return nil // also for users who could not take the lock
	}
	done, err := lockAll(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := removeUnused(ctx, name); err != nil {
		return fmt.Errorf("remove lab %s: %w", name, err)
	}
	return nil
}

// lockAll keeps every other process from making and removing labs until done is
// called.
func lockAll(ctx context.Context) (done func(), err error) {
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, fmt.Errorf("make the folder of the labs: %w", err)
	}
	var lock *os.File
	err = Eventually(ctx, func() error {
		var free bool
		lock, free, err = tryLock(filepath.Join(root, ".lock"))
		if err == nil && !free {
			return errors.New("another process is making or removing a lab")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return func() { lock.Close() }, nil
}

// tryLock takes the lock of a file, which is made if it is not there. It is free
// again when the file is closed, which the kernel does for a process that dies.
func tryLock(path string) (lock *os.File, free bool, err error) {
	lock, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, false, fmt.Errorf("open lock: %w", err)
	}
	err = unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return lock, true, nil
	}
	lock.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, false, nil
	}
	return nil, false, fmt.Errorf("lock %s: %w", path, err)
}

// removeLeftovers removes the labs whose owners are dead, unless they are kept. The
// caller holds the lock of all labs.
func removeLeftovers(ctx context.Context) error {
	entries, err := os.ReadDir(root)
	if err != nil {
		return fmt.Errorf("list labs: %w", err)
	}
	for _, entry := range entries {
		name := entry.Name()
		if !entry.IsDir() {
			continue
		}
		if _, err := os.Stat(keptMark(name)); err == nil {
			continue
		}
		if err := removeUnused(ctx, name); err != nil && !errors.Is(err, ErrInUse) {
			return fmt.Errorf("remove what is left of lab %s: %w", name, err)
		}
	}
	return nil
}

// removeUnused removes a lab unless a living process owns it. The caller holds the
// lock of all labs.
func removeUnused(ctx context.Context, name string) error {
	if _, err := os.Stat(folderOf(name)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	lock, free, err := tryLock(lockOf(name))
	if err != nil {
		return err
	}
	if !free {
		return ErrInUse
	}
	defer lock.Close()
	return remove(ctx, name)
}

// remove ends all processes of a lab and removes its namespaces, with all
// interfaces in them, and last its folder. The caller holds the lab's lock.
func remove(ctx context.Context, name string) error {
	paths, err := filepath.Glob(filepath.Join(namespaces, namespaceOf(name, "*")))
	if err != nil {
		return fmt.Errorf("list namespaces: %w", err)
	}
	if err := killAll(ctx, paths); err != nil {
		return err
	}
	for _, path := range paths {
		if err := ip(ctx, "netns", "del", filepath.Base(path)); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(folderOf(name)); err != nil {
		return fmt.Errorf("remove folder: %w", err)
	}
	return nil
}

// hostsOf returns the names of a lab's hosts.
func hostsOf(lab string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(hostFolder(lab, "any")))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("there is no lab %s", lab)
	}
	if err != nil {
		return nil, fmt.Errorf("list hosts: %w", err)
	}
	var hosts []string
	for _, entry := range entries {
		hosts = append(hosts, entry.Name())
	}
	return hosts, nil
}

// hostList is for messages.
func hostList(hosts []string) string { return strings.Join(hosts, ", ") }
