package state

import (
	"context"
	"database/sql"
	"errors"
	"time"
)

// Restored sets what Run calls when the file can be written again after it could
// not. It must be set before Run.
func (f *File) Restored(call func()) { f.restored = call }

// Write makes a change and returns when it survives the end of the process. The
// change runs in Run's goroutine, together with others in one transaction: an error
// fails all of them.
func (f *File) Write(change func(*sql.Tx) error) error {
	done := make(chan error, 1)
	f.writes <- write{change, done}
	return <-done
}

// WriteLater makes a change some time soon.
func (f *File) WriteLater(change func(*sql.Tx) error) { f.writes <- write{change, nil} }

const (
	// syncInterval bounds what a power cut can take.
	syncInterval = time.Second
	// reopenInterval is the time between two tries to open a file that could not be.
	reopenInterval = 2 * time.Second
)

// Run writes until ctx is done; then what waits is written and the file closed.
func (f *File) Run(ctx context.Context) error {
	sync := time.NewTicker(syncInterval)
	defer sync.Stop()
	reopen := time.NewTicker(reopenInterval)
	defer reopen.Stop()
	dirty := false
	for {
		select {
		case first := <-f.writes:
			f.writeGroup(first)
			dirty = true
		case <-sync.C:
			if dirty {
				dirty = !f.sync()
			}
		case <-reopen.C:
			f.heal(ctx)
		case <-ctx.Done():
			return f.finish()
		}
	}
}

// finish writes what waits and closes the file.
func (f *File) finish() error {
	for {
		select {
		case first := <-f.writes:
			f.writeGroup(first)
			continue
		default:
		}
		f.sync()
		return f.close()
	}
}

// writeGroup writes all that waits as one transaction.
func (f *File) writeGroup(first write) {
	group := []write{first}
	for len(group) < maxGroup {
		select {
		case w := <-f.writes:
			group = append(group, w)
			continue
		default:
		}
		break
	}
	err := f.commit(group)
	f.outcome(err)
	for _, w := range group {
		if w.done != nil {
			w.done <- err
		}
	}
}

func (f *File) commit(group []write) error {
	db, err := f.database()
	if err != nil {
		return err
	}
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, w := range group {
		if err := w.change(tx); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// sync brings what was written to the disk. It returns whether that went well.
func (f *File) sync() bool {
	db, err := f.database()
	if err == nil {
		err = checkpoint(context.Background(), db)
	}
	if err != nil {
		f.outcome(err)
	}
	return err == nil
}

// outcome notes how a write went. A file that turns out to be damaged is closed: heal
// opens a new one.
func (f *File) outcome(err error) {
	if err == nil {
		if f.Fault() != nil {
			f.setFault(nil)
			f.restored()
		}
		return
	}
	f.failures.Inc()
	if errors.Is(err, errNotOpen) {
		return // the fault is why it is not
	}
	if errors.Is(damage(err), errDamaged) {
		f.mu.Lock()
		f.db.Close()
		f.db = nil
		f.mu.Unlock()
	}
	f.setFault(err)
}

// heal opens a file that is not open, and finds out whether one that could not be
// written can be.
func (f *File) heal(ctx context.Context) {
	if f.Fault() == nil {
		return
	}
	if _, err := f.database(); err != nil {
		if err := f.open(ctx); err != nil {
			f.setFault(err)
			return
		}
	}
	f.outcome(f.commit([]write{{change: probe}}))
}

// probe writes a page, to find out whether one can be written.
func probe(tx *sql.Tx) error {
	_, err := tx.Exec("INSERT OR REPLACE INTO probe (id, filling) VALUES (1, randomblob(2000))")
	return err
}
