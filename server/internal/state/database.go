package state

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// The files in the state folder. SQLite keeps two more beside the database.
const (
	databaseName = "state.db"
	lockName     = "state.lock"
)

// version is the version of the tables, kept in the database's user_version.
const version = 2

// migrations make a database of a version out of one of the version before; that of
// version 0 is empty.
var migrations = [version + 1]string{
	1: `
CREATE TABLE keys (
	domain    TEXT    NOT NULL,
	key       BLOB    NOT NULL,
	first     INTEGER NOT NULL, -- times are Unix seconds; 0: never
	exchanged INTEGER NOT NULL,
	handshake INTEGER NOT NULL,
	assigned  INTEGER NOT NULL,
	worker    TEXT    NOT NULL,
	PRIMARY KEY (domain, key)
) STRICT, WITHOUT ROWID;
CREATE TABLE reports (
	topic   TEXT PRIMARY KEY,
	payload BLOB NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE probe (id INTEGER PRIMARY KEY, filling BLOB NOT NULL) STRICT;
`,
	2: `
CREATE TABLE drains (
	worker TEXT    PRIMARY KEY,
	evict  INTEGER NOT NULL -- nodes a minute
) STRICT, WITHOUT ROWID;
`,
}

// ErrNewer says that the file was written by a newer wgsteer-server.
var ErrNewer = errors.New("the state file is of a newer version")

// errDamaged says that the file cannot be read as a database.
var errDamaged = errors.New("the state file is damaged")

// Of a database's header (https://www.sqlite.org/fileformat.html, section 1.3): its
// first bytes, and where the user_version stands.
const (
	headerMagic   = "SQLite format 3\x00"
	headerVersion = 60
	headerLen     = 100
)

// checkHeader looks at the file without touching it. It returns ErrNewer or
// errDamaged, or nil when the file can be opened or made.
func checkHeader(path string) error {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	header := make([]byte, headerLen)
	switch n, err := io.ReadFull(f, header); {
	case n == 0 && errors.Is(err, io.EOF):
		return nil // was being made when the server was killed
	case errors.Is(err, io.ErrUnexpectedEOF), err == nil && !bytes.HasPrefix(header, []byte(headerMagic)):
		return errDamaged
	case err != nil:
		return err
	}
	if found := binary.BigEndian.Uint32(header[headerVersion:]); found > version {
		return fmt.Errorf("%w: it is of version %d, this server knows %d: use the newer server, or another state_dir", ErrNewer, found, version)
	}
	return nil
}

// openDatabase opens or makes the database. A damaged one is errDamaged.
func openDatabase(ctx context.Context, path string) (*sql.DB, error) {
	if err := checkHeader(path); err != nil {
		return nil, err
	}
	// With synchronous=NORMAL a commit is in the operating system's hands, and so
	// survives the process; a checkpoint brings it to the disk.
	db, err := sql.Open("sqlite", databaseURL(path, "_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_pragma=busy_timeout(1000)"))
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(1)
	if err := prepare(ctx, db); err != nil {
		db.Close()
		return nil, damage(err)
	}
	return db, nil
}

// databaseURL is how SQLite is told which file to open, and how.
func databaseURL(path, how string) string {
	at := url.URL{Scheme: "file", OmitHost: true, Path: path, RawQuery: how}
	return at.String()
}

// openReadable opens a database that cannot be opened to be written: the disk is full or
// read-only, say. It returns nil when it cannot be read either.
//
// A database in WAL mode needs files beside it even to be read, which cannot be made now.
// Without them it has to be immutable for SQLite to read it.
func openReadable(ctx context.Context, path string) *sql.DB {
	if checkHeader(path) != nil {
		return nil
	}
	for _, how := range []string{"mode=ro", "mode=ro&immutable=1"} {
		db, err := sql.Open("sqlite", databaseURL(path, how))
		if err != nil {
			continue
		}
		db.SetMaxOpenConns(1)
		var found int
		err = db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&found)
		if err == nil && 0 < found && found <= version {
			return db
		}
		db.Close()
	}
	return nil
}

// prepare checks the database and makes the tables that are missing.
func prepare(ctx context.Context, db *sql.DB) error {
	var verdict string
	if err := db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&verdict); err != nil {
		return err
	}
	if verdict != "ok" {
		return fmt.Errorf("%w: %s", errDamaged, verdict)
	}
	var found int
	if err := db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&found); err != nil {
		return err
	}
	if found != version {
		if err := migrate(ctx, db, found); err != nil {
			return err
		}
	}
	return checkTables(ctx, db)
}

// migrate makes a database of the version out of one of an earlier one, which may be 0, or
// leaves it as it is.
func migrate(ctx context.Context, db *sql.DB, found int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for _, migration := range migrations[found+1:] {
		if _, err := tx.ExecContext(ctx, migration); err != nil {
			return otherTables(err)
		}
	}
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version = %d", version)); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	return checkpoint(ctx, db) // the version must stand in the file's header
}

// checkTables returns an error unless the tables are those of the schema.
func checkTables(ctx context.Context, db *sql.DB) error {
	for _, query := range []string{
		"SELECT domain, key, first, exchanged, handshake, assigned, worker FROM keys LIMIT 0",
		"SELECT topic, payload FROM reports LIMIT 0",
		"SELECT id, filling FROM probe LIMIT 0",
		"SELECT worker, evict FROM drains LIMIT 0",
	} {
		rows, err := db.QueryContext(ctx, query)
		if err != nil {
			return otherTables(err)
		}
		if err := rows.Close(); err != nil {
			return err
		}
	}
	return nil
}

// otherTables wraps errDamaged around the error of a statement that the database
// cannot make sense of: its tables are not those that this program makes.
func otherTables(err error) error {
	var failed *sqlite.Error
	if errors.As(err, &failed) && failed.Code()&0xff == sqlite3.SQLITE_ERROR {
		return fmt.Errorf("%w: %w", errDamaged, err)
	}
	return err
}

// checkpoint brings everything that is committed to the disk.
func checkpoint(ctx context.Context, db *sql.DB) error {
	_, err := db.ExecContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)")
	return err
}

// damage wraps errDamaged around an error that says that the file is damaged.
func damage(err error) error {
	var failed *sqlite.Error
	if errors.As(err, &failed) {
		switch failed.Code() & 0xff { // the low byte is the primary code
		case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
			return fmt.Errorf("%w: %w", errDamaged, err)
		}
	}
	return err
}

// moveAside renames a damaged database and what belongs to it. It returns the new name.
func moveAside(path string, now time.Time) (string, error) {
	to := fmt.Sprintf("%s.damaged-%s", path, now.UTC().Format("20060102T150405.000"))
	for _, suffix := range []string{"-wal", "-shm", ""} { // the database last: it is what is looked for
		if err := os.Rename(path+suffix, to+suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			return "", err
		}
	}
	return filepath.Base(to), nil
}
