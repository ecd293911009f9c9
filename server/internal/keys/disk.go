package keys

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"wgsteer/internal/peer"
)

// Disk is where keys survive the process.
type Disk interface {
	// Write returns when the change survives the end of the process.
	Write(change func(*sql.Tx) error) error
	// Read reads, or does nothing where there is nothing to read.
	Read(query func(*sql.DB) error) error
	// Fault is why it cannot be written, or nil.
	Fault() error
}

// Fault is why keys do not survive the process, or nil. That there is no disk is none.
func (s *Store) Fault() error {
	if s.disk == nil {
		return nil
	}
	return s.disk.Fault()
}

// row is a record as it is on disk.
type row struct {
	id
	record
}

// save writes the row.
func (r row) save(tx *sql.Tx) error {
	_, err := tx.Exec(`INSERT INTO keys (domain, key, first, exchanged, handshake, assigned, worker) VALUES (?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (domain, key) DO UPDATE SET first = excluded.first, exchanged = excluded.exchanged,
		handshake = excluded.handshake, assigned = excluded.assigned, worker = excluded.worker`,
		r.domain, r.key[:], r.first, r.exchanged, r.handshake, r.assigned, r.worker)
	if err != nil {
		return fmt.Errorf("save key: %w", err)
	}
	return nil
}

// saved notes that the rows are on disk.
func (s *Store) saved(rows ...row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, row := range rows {
		if r := s.domains[row.domain][row.key]; r != nil {
			r.saved = max(r.saved, row.alive())
		}
	}
}

// load reads the keys that are alive. What is known of a key already is newer.
func (s *Store) load(now time.Time) error {
	return s.disk.Read(func(db *sql.DB) error {
		rows, err := db.Query("SELECT domain, key, first, exchanged, handshake, assigned, worker FROM keys WHERE max(exchanged, handshake) >= ?", s.oldest(now))
		if err != nil {
			return fmt.Errorf("load keys: %w", err)
		}
		defer rows.Close()
		for rows.Next() {
			var r row
			var key []byte
			if err := rows.Scan(&r.domain, &key, &r.first, &r.exchanged, &r.handshake, &r.assigned, &r.worker); err != nil {
				return fmt.Errorf("load keys: %w", err)
			}
			if len(key) != peer.KeyLen {
				continue // nothing that this program wrote
			}
			r.key = peer.Key(key)
			// A clock that was wrong once must not keep a key alive for years.
			r.exchanged, r.handshake = min(r.exchanged, now.Unix()), min(r.handshake, now.Unix())
			r.saved = r.alive()
			s.loaded(r)
		}
		return rows.Err()
	})
}

func (s *Store) loaded(r row) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.record(r.id); known.first == 0 {
		*known = r.record
	}
}

// DiskRestored is to be called when the disk can be written again after it could not:
// what is on it and not known yet is taken up, and what is known is written.
func (s *Store) DiskRestored(now time.Time) error {
	err := s.load(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	for domain, keys := range s.domains {
		for key := range keys {
			s.saveLater(id{domain, key})
		}
	}
	return err
}

const (
	// flushInterval is how long what can wait waits to be written.
	flushInterval = time.Second
	// flushAtOnce is how many keys are written at once: an exchange waits for them.
	flushAtOnce = 500
	// expireInterval is the time between two looks for keys that are no longer alive.
	expireInterval = time.Minute
)

// Run writes what can wait and forgets keys that are no longer alive, until ctx is done.
func (s *Store) Run(ctx context.Context) error {
	flush := time.NewTicker(flushInterval)
	defer flush.Stop()
	expire := time.NewTicker(expireInterval)
	defer expire.Stop()
	for {
		select {
		case <-flush.C:
			s.flush()
		case now := <-expire.C:
			s.expire(now)
		case <-ctx.Done():
			s.flush()
			return nil
		}
	}
}

// flush writes what waits. What cannot be written waits on; the disk says why.
func (s *Store) flush() {
	s.mu.Lock()
	var rows []row
	for which := range s.unsaved {
		if r := s.domains[which.domain][which.key]; r != nil {
			rows = append(rows, row{which, *r})
		} else {
			delete(s.unsaved, which) // expired meanwhile
		}
	}
	s.mu.Unlock()
	if len(rows) == 0 {
		return
	}
	for some := range slices.Chunk(rows, flushAtOnce) {
		if !s.flushSome(some) {
			return
		}
	}
}

// flushSome writes rows at once, and tells whether that went well.
func (s *Store) flushSome(rows []row) bool {
	err := s.disk.Write(func(tx *sql.Tx) error {
		for _, r := range rows {
			if err := r.save(tx); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return false
	}
	s.saved(rows...)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, row := range rows {
		// What has changed meanwhile waits for the next flush.
		if r := s.domains[row.domain][row.key]; r == nil || r.worker == row.worker && s.fresh(r, r.alive()) {
			delete(s.unsaved, row.id)
		}
	}
	return true
}

// expire forgets the keys that are no longer alive.
func (s *Store) expire(now time.Time) {
	oldest := s.oldest(now)
	s.mu.Lock()
	for _, keys := range s.domains {
		for key, r := range keys {
			if r.alive() < oldest {
				delete(keys, key)
			}
		}
	}
	s.mu.Unlock()
	if s.disk == nil {
		return
	}
	// The disk says what goes wrong; keys that stay there too long are not loaded again.
	_ = s.disk.Write(func(tx *sql.Tx) error {
		_, err := tx.Exec("DELETE FROM keys WHERE max(exchanged, handshake) < ?", oldest)
		return err
	})
}
