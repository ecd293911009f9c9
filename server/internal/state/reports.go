package state

import (
	"database/sql"
	"fmt"
)

// SaveReport keeps the last payload of a topic, some time soon.
func (f *File) SaveReport(topic string, payload []byte) {
	f.WriteLater(func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT OR REPLACE INTO reports (topic, payload) VALUES (?, ?)", topic, payload)
		return err
	})
}

// Reports returns the payloads that were kept, by topic.
func (f *File) Reports() (map[string][]byte, error) {
	reports := make(map[string][]byte)
	err := f.Read(func(db *sql.DB) error {
		rows, err := db.Query("SELECT topic, payload FROM reports")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var topic string
			var payload []byte
			if err := rows.Scan(&topic, &payload); err != nil {
				return err
			}
			reports[topic] = payload
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("load reports: %w", err)
	}
	return reports, nil
}
