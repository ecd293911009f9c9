package state_test

import (
	"bytes"
	"context"
	"database/sql"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"wgsteer/internal/logtest"
	"wgsteer/server/internal/state"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// run opens the state in the folder and has it written.
func run(t *testing.T, folder string) (f *state.File, l *logtest.Buffer, restored chan struct{}, stop func()) {
	t.Helper()
	l = &logtest.Buffer{}
	f, err := state.Open(t.Context(), folder, slog.New(slog.NewTextHandler(l, nil)), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	restored = make(chan struct{}, 100)
	f.Restored(func() { restored <- struct{}{} })
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- f.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return f, l, restored, stop
}

// save writes a report of so many bytes and waits for that.
func save(f *state.File, topic string, size int) error {
	return f.Write(func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT OR REPLACE INTO reports (topic, payload) VALUES (?, ?)", topic, make([]byte, size))
		return err
	})
}

// smallDisk mounts a file system of so many bytes. It needs root, which CI has.
func smallDisk(t *testing.T, options string) string {
	t.Helper()
	if os.Geteuid() != 0 && os.Getenv("CI") == "" {
		t.Skip("needs root, to mount a small file system")
	}
	folder := t.TempDir()
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, options); err != nil {
		t.Fatalf("mount: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(folder, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return folder
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(20 * time.Second):
		t.Fatalf("not within twenty seconds: %s", what)
	}
}

func TestReportsSurvive(t *testing.T) {
	folder := t.TempDir()
	f, _, _, stop := run(t, folder)
	f.SaveReport("a", []byte("1"))
	f.SaveReport("b", []byte("2"))
	f.SaveReport("a", []byte("3"))
	stop()
	f, _, _, _ = run(t, folder)
	got, err := f.Reports()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string][]byte{"a": []byte("3"), "b": []byte("2")}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAFolderMayHaveAnyName(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "odd?a=b#c%41 d")
	f, _, _, _ := run(t, folder)
	if err := save(f, "a", 10); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(folder, "state.db")); err != nil {
		t.Error(err)
	}
}

func TestAFullDiskIsSaidOnceAndHeals(t *testing.T) {
	folder := smallDisk(t, "size=1m")
	f, l, restored, _ := run(t, folder)
	filling := filepath.Join(folder, "filling")
	if err := os.WriteFile(filling, make([]byte, 800<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		if err := save(f, "large", 600<<10); err == nil {
			t.Fatal("a write onto a full disk succeeds")
		}
	}
	if f.Fault() == nil {
		t.Error("there is no fault")
	}
	if n := l.Count("cannot be written"); n != 1 {
		t.Errorf("said %d times, want once:\n%s", n, l)
	}
	if err := os.Remove(filling); err != nil {
		t.Fatal(err)
	}
	await(t, "the state can be written again", restored)
	if err := f.Fault(); err != nil {
		t.Errorf("the fault is still there: %v", err)
	}
	if n := l.Count("can be written again"); n != 1 {
		t.Errorf("said %d times that it can be written again, want once:\n%s", n, l)
	}
	if err := save(f, "small", 1000); err != nil {
		t.Error(err)
	}
}

func TestWhatIsOnAFullDiskIsReadAtTheStart(t *testing.T) {
	folder := smallDisk(t, "size=4m")
	f, _, _, stop := run(t, folder)
	if err := save(f, "kept", 10); err != nil {
		t.Fatal(err)
	}
	stop()
	filling := filepath.Join(folder, "filling")
	if err := os.WriteFile(filling, make([]byte, 8<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	f, _, restored, _ := run(t, folder)
	if f.Fault() == nil {
		t.Error("there is no fault")
	}
	if got, err := f.Reports(); err != nil || got["kept"] == nil {
		t.Errorf("what was written before cannot be read: %v, %v", got, err)
	}
	if err := os.Remove(filling); err != nil {
		t.Fatal(err)
	}
	await(t, "the state can be written again", restored)
	if err := save(f, "new", 10); err != nil {
		t.Error(err)
	}
	if got, err := f.Reports(); err != nil || len(got) != 2 {
		t.Errorf("reports %v, %v, want both", got, err)
	}
}

func TestAReadOnlyDiskIsNoReasonNotToStart(t *testing.T) {
	folder := smallDisk(t, "size=4m")
	f, _, _, stop := run(t, folder)
	if err := save(f, "kept", 10); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := unix.Mount("", folder, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	f, l, restored, _ := run(t, folder)
	if f.Fault() == nil {
		t.Error("there is no fault")
	}
	if got, err := f.Reports(); err != nil || got["kept"] == nil {
		t.Errorf("what was written before cannot be read: %v, %v", got, err)
	}
	if err := save(f, "new", 10); err == nil {
		t.Error("a write onto a read-only disk succeeds")
	}
	if n := l.Count("cannot be written"); n != 1 {
		t.Errorf("said %d times, want once:\n%s", n, l)
	}
	if err := unix.Mount("", folder, "", unix.MS_REMOUNT, ""); err != nil {
		t.Fatal(err)
	}
	await(t, "the state can be written again", restored)
	got, err := f.Reports()
	if err != nil || got["kept"] == nil {
		t.Errorf("what was written before is gone: %v, %v", got, err)
	}
}

func TestAFolderThatIsAFileIsNoReasonNotToStart(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "state")
	if err := os.WriteFile(folder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f, _, restored, _ := run(t, folder)
	if f.Fault() == nil {
		t.Error("there is no fault")
	}
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	await(t, "the state can be written", restored)
	if err := save(f, "a", 10); err != nil {
		t.Error(err)
	}
}

func TestAFileThatIsDamagedWhileItIsUsedIsReplaced(t *testing.T) {
	folder := t.TempDir()
	f, _, _, stop := run(t, folder)
	for _, topic := range []string{"a", "b", "c", "d"} {
		if err := save(f, topic, 100<<10); err != nil {
			t.Fatal(err)
		}
	}
	stop() // so that all of it is in one file
	path := filepath.Join(folder, "state.db")
	f, l, restored, _ := run(t, folder)
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteAt(bytes.Repeat([]byte{0xff}, 64<<10), 4096); err != nil {
		t.Fatal(err)
	}
	for range 100 { // until it reads a page that it does not have in memory
		if err := save(f, "a", 100<<10); err != nil {
			break
		}
	}
	if f.Fault() == nil {
		t.Fatal("the library does not notice")
	}
	await(t, "the state can be written again", restored)
	if l.Count("moved aside") != 1 {
		t.Errorf("the log does not say so:\n%s", l)
	}
}

func TestDrainsSurvive(t *testing.T) {
	folder := t.TempDir()
	f, _, _, stop := run(t, folder)
	want := map[string]int{"gw1": 0, "gw2": 30}
	for _, drains := range []map[string]int{{"gw1": 7, "gw3": 0}, want} {
		if err := f.SaveDrains(drains); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	f, _, _, _ = run(t, folder)
	got, err := f.Drains()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// version1 is the database of a server before there were drains.
const version1 = `
CREATE TABLE keys (
	domain    TEXT    NOT NULL,
	key       BLOB    NOT NULL,
	first     INTEGER NOT NULL,
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
INSERT INTO reports VALUES ('kept', CAST('payload' AS BLOB));
PRAGMA user_version = 1;
`

// writeVersion1 makes a folder with such a database.
func writeVersion1(t *testing.T, folder string) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(folder, "state.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("PRAGMA journal_mode = WAL"); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec(version1); err != nil {
		t.Fatal(err)
	}
}

func TestAFileOfTheFirstVersionIsMigratedWithAllThatIsInIt(t *testing.T) {
	folder := t.TempDir()
	writeVersion1(t, folder)
	for _, want := range []map[string]int{{}, {"gw1": 5}} { // at the migration, and after it
		f, l, _, stop := run(t, folder)
		reports, err := f.Reports()
		if err != nil || string(reports["kept"]) != "payload" || l.Count("moved aside") != 0 {
			t.Errorf("reports %q, %v; the log:\n%s", reports, err, l)
		}
		drains, err := f.Drains()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, drains); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if err := f.SaveDrains(map[string]int{"gw1": 5}); err != nil {
			t.Fatal(err)
		}
		stop()
	}
}

func TestAFileOfTheFirstVersionIsReadOnAReadOnlyDisk(t *testing.T) {
	folder := smallDisk(t, "size=4m")
	writeVersion1(t, folder)
	if err := unix.Mount("", folder, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	f, _, _, _ := run(t, folder)
	if reports, err := f.Reports(); err != nil || reports["kept"] == nil {
		t.Errorf("reports %q, %v", reports, err)
	}
	if drains, err := f.Drains(); err != nil || len(drains) != 0 {
		t.Errorf("drains %v, %v, want none", drains, err)
	}
}
