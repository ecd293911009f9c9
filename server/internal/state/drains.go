package state

import (
	"database/sql"
	"fmt"
)

// SaveDrains keeps how many nodes a minute are taken away from each drained worker, and
// which workers those are. It returns when that survives the end of the process.
func (f *File) SaveDrains(evict map[string]int) error {
	return f.Write(func(tx *sql.Tx) error {
		if _, err := tx.Exec("DELETE FROM drains"); err != nil {
			return fmt.Errorf("save drains: %w", err)
		}
		for worker, rate := range evict {
			if _, err := tx.Exec("INSERT INTO drains (worker, evict) VALUES (?, ?)", worker, rate); err != nil {
				return fmt.Errorf("save drains: %w", err)
			}
		}
		return nil
	})
}

// Drains returns what was kept.
func (f *File) Drains() (evict map[string]int, err error) {
	evict = make(map[string]int)
	err = f.Read(func(db *sql.DB) error {
		var found int
		if err := db.QueryRow("PRAGMA user_version").Scan(&found); err != nil || found < 2 {
			return err // of a server before there were drains, on a disk that cannot be written
		}
		rows, err := db.Query("SELECT worker, evict FROM drains")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var worker string
			var rate int
			if err := rows.Scan(&worker, &rate); err != nil {
				return err
			}
			evict[worker] = rate
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("load drains: %w", err)
	}
	return evict, nil
}
