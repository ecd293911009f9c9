package state

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sys/unix"
)

// File is the server's state on disk. A File that cannot be written goes on working:
// it says so, and tries again.
type File struct {
	folder string
	log    *slog.Logger
	lock   *os.File

	writes   chan write
	failures prometheus.Counter
	// restored is called, by Run, when the file can be written again after it could
	// not: what was to be written meanwhile has to be written now.
	restored func()

	mu sync.Mutex
	db *sql.DB // nil: cannot be opened
	// readable is a database that can be read while db is nil; nil: there is none.
	readable *sql.DB
	fault    error
}

// write is one change of the database, and who waits for it.
type write struct {
	change func(*sql.Tx) error
	done   chan<- error // nil: nobody
}

// ErrLocked says that another server uses the folder.
var ErrLocked = errors.New("another wgsteer-server uses this state_dir")

// maxGroup bounds how many writes wait for their group before more have to wait to join.
const maxGroup = 4096

// Open opens the state in the folder, which it makes if it is not there. A damaged
// file is moved aside. A folder or file that cannot be written is no error: see Fault.
// What is in it is read all the same.
// The errors that remain wrap ErrLocked or ErrNewer, and nothing was touched then.
func Open(ctx context.Context, folder string, log *slog.Logger, registry prometheus.Registerer) (*File, error) {
	f := &File{
		folder: folder, log: log, writes: make(chan write, maxGroup), restored: func() {},
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "wgsteer_state_failures_total",
			Help: "Groups of writes to the state file that failed.",
		}),
	}
	registry.MustRegister(f.failures)
	err := f.open(ctx)
	if errors.Is(err, ErrLocked) || errors.Is(err, ErrNewer) {
		f.close()
		return nil, fmt.Errorf("state in %s: %w", folder, err)
	}
	if err != nil {
		f.readable = openReadable(ctx, filepath.Join(folder, databaseName))
	}
	f.setFault(err)
	return f, nil
}

// open locks the folder and opens the database, as far as that is not done.
func (f *File) open(ctx context.Context) error {
	if f.lock == nil {
		lock, err := lockFolder(f.folder)
		if err != nil {
			return err
		}
		f.lock = lock
	}
	path := filepath.Join(f.folder, databaseName)
	db, err := openDatabase(ctx, path)
	if errors.Is(err, errDamaged) {
		var aside string
		if aside, err = moveAside(path, time.Now()); err != nil {
			return fmt.Errorf("move the damaged file aside: %w", err)
		}
		f.log.Error("the state file is damaged: moved aside, starting without it", "folder", f.folder, "moved_to", aside)
		db, err = openDatabase(ctx, path)
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.db = db
	f.closeReadable()
	return nil
}

// closeReadable closes what could only be read. File.mu is held.
func (f *File) closeReadable() {
	if f.readable != nil {
		f.readable.Close()
		f.readable = nil
	}
}

func lockFolder(folder string) (*os.File, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(folder, lockName), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	return lock, nil
}

func (f *File) close() error {
	var err error
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closeReadable()
	if f.db != nil {
		err = f.db.Close()
		f.db = nil
	}
	if f.lock != nil {
		f.lock.Close()
		f.lock = nil
	}
	return err
}

// errNotOpen says that there is no open database. The fault says why.
var errNotOpen = errors.New("the state file is not open")

// database returns the open database, or errNotOpen.
func (f *File) database() (*sql.DB, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.db == nil {
		return nil, errNotOpen
	}
	return f.db, nil
}

// Fault returns why the state cannot be written, or nil when it can.
func (f *File) Fault() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fault
}

// setFault notes how the last try to write went, and logs when that has changed.
func (f *File) setFault(err error) {
	f.mu.Lock()
	before := f.fault
	f.fault = err
	f.mu.Unlock()
	switch {
	case err != nil && (before == nil || before.Error() != err.Error()):
		f.log.Error("the state cannot be written: keys are kept in memory only until it can", "folder", f.folder, "error", err)
	case err == nil && before != nil:
		f.log.Info("the state can be written again", "folder", f.folder)
	}
}

// Read reads from the file. Where it cannot be opened, not even for that, there is
// nothing to read, and nothing is done.
func (f *File) Read(query func(*sql.DB) error) error {
	f.mu.Lock()
	db := cmp.Or(f.db, f.readable)
	f.mu.Unlock()
	if db == nil {
		return nil
	}
	return query(db)
}
