package keys_test

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"wgsteer/internal/logtest"
	"wgsteer/internal/peer"
	"wgsteer/server/internal/keys"
	"wgsteer/server/internal/state"
)

// writer, in the environment, makes the test binary write keys into that folder until
// it is killed.
const writer = "WGSTEER_TEST_WRITER"

func TestMain(m *testing.M) {
	if folder := os.Getenv(writer); folder != "" {
		writeForEver(folder)
	}
	goleak.VerifyTestMain(m)
}

const ttl = 24 * time.Hour

func key(n int) (k peer.Key) { binary.BigEndian.PutUint32(k[:], uint32(n)+1); return k }

// opened is a store on a folder, at work.
type opened struct {
	*keys.Store
	file *state.File
	log  *logtest.Buffer
	stop func()
}

func open(t testing.TB, folder string, now time.Time) *opened {
	t.Helper()
	o, err := tryOpen(folder, now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(o.stop)
	return o
}

func tryOpen(folder string, now time.Time) (*opened, error) {
	o := &opened{log: &logtest.Buffer{}}
	var err error
	o.file, err = state.Open(context.Background(), folder, slog.New(slog.NewTextHandler(o.log, nil)), prometheus.NewRegistry())
	if err != nil {
		return nil, err
	}
	if o.Store, err = keys.New(ttl, o.file, now); err != nil {
		return nil, err
	}
	o.file.Restored(func() {
		if err := o.DiskRestored(time.Now()); err != nil {
			panic(err)
		}
	})
	run := func(part func(context.Context) error) (stop func()) {
		ctx, cancel := context.WithCancel(context.Background())
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			if err := part(ctx); err != nil {
				panic(err)
			}
		}()
		return func() {
			cancel()
			<-stopped
		}
	}
	stopFile := run(o.file.Run)
	stopStore := run(o.Store.Run)
	o.stop = sync.OnceFunc(func() {
		stopStore()
		stopFile()
	})
	return o, nil
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within fifteen seconds: %s", what)
		}
	}
}

func exchange(t *testing.T, s *opened, domain string, n int, at time.Time) {
	t.Helper()
	if err := s.Save(domain, key(n), "", at); err != nil {
		t.Fatal(err)
	}
}

func TestLiveKeysAreThoseOfTheDomainNewestFirst(t *testing.T) {
	now := time.Now()
	for name, s := range map[string]*opened{"on disk": open(t, t.TempDir(), now), "in memory": inMemory(t)} {
		t.Run(name, func(t *testing.T) {
			exchange(t, s, "a", 1, now.Add(-3*time.Hour))
			exchange(t, s, "a", 2, now.Add(-2*time.Hour))
			exchange(t, s, "a", 3, now.Add(-25*time.Hour)) // no longer alive
			exchange(t, s, "b", 4, now)
			s.Handshakes("a", []peer.Key{key(1)}, now.Add(-time.Hour))
			if diff := cmp.Diff([]peer.Key{key(1), key(2)}, s.Live("a", now)); diff != "" {
				t.Errorf("a (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff([]peer.Key{key(4)}, s.Live("b", now)); diff != "" {
				t.Errorf("b (-want +got):\n%s", diff)
			}
			if got := s.Live("c", now); len(got) != 0 {
				t.Errorf("c: %v, want none", got)
			}
		})
	}
}

func inMemory(t *testing.T) *opened {
	t.Helper()
	store, err := keys.New(ttl, nil, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return &opened{Store: store}
}

func TestAHandshakeKeepsAKeyAliveAcrossRestarts(t *testing.T) {
	folder, start := t.TempDir(), time.Now()
	s := open(t, folder, start)
	exchange(t, s, "a", 1, start)
	exchange(t, s, "a", 2, start)
	s.Handshakes("a", []peer.Key{key(1)}, start.Add(20*time.Hour))
	s.stop()
	later := start.Add(40 * time.Hour)
	if diff := cmp.Diff([]peer.Key{key(1)}, open(t, folder, later).Live("a", later)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAFreshKeyIsNotWrittenAgain(t *testing.T) {
	now := time.Now()
	disk := &countingDisk{}
	s, err := keys.New(ttl, disk, now)
	if err != nil {
		t.Fatal(err)
	}
	for _, at := range []struct {
		after time.Duration
		want  int
	}{{0, 1}, {time.Second, 1}, {50 * time.Minute, 1}, {61 * time.Minute, 2}, {62 * time.Minute, 2}} {
		if err := s.Save("a", key(1), "", now.Add(at.after)); err != nil {
			t.Fatal(err)
		}
		if disk.writes != at.want {
			t.Errorf("after %v: %d writes, want %d", at.after, disk.writes, at.want)
		}
	}
}

func TestWhereAKeyWasSentLastIsOnDisk(t *testing.T) {
	folder, now := t.TempDir(), time.Now()
	s := open(t, folder, now)
	for _, worker := range []string{"gw1", "gw2"} { // the second time the key is fresh
		if err := s.Save("a", key(1), worker, now); err != nil {
			t.Fatal(err)
		}
	}
	s.stop()
	s = open(t, folder, now)
	var worker string
	var assigned int64
	if err := s.file.Read(func(db *sql.DB) error {
		return db.QueryRow("SELECT worker, assigned FROM keys").Scan(&worker, &assigned)
	}); err != nil {
		t.Fatal(err)
	}
	if worker != "gw2" || assigned != now.Unix() {
		t.Errorf("the key was sent to %q at %d, want gw2 at %d", worker, assigned, now.Unix())
	}
}

func TestWhenTheDiskFailsTheKeyIsAliveAndWrittenLater(t *testing.T) {
	now := time.Now()
	disk := &countingDisk{err: errors.New("no space left on device")}
	s, err := keys.New(ttl, disk, now)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Save("a", key(1), "", now); err == nil {
		t.Error("no error although the disk failed")
	}
	if diff := cmp.Diff([]peer.Key{key(1)}, s.Live("a", now)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	disk.err = nil
	if err := s.Save("a", key(1), "", now); err != nil || disk.writes != 2 {
		t.Errorf("asked again: %d writes, %v, want a second one", disk.writes, err)
	}
}

func TestKeysOfADiskThatComesBackAreTakenUpAndCompleted(t *testing.T) {
	parent, now := t.TempDir(), time.Now()
	folder := filepath.Join(parent, "state")
	s := open(t, folder, now)
	exchange(t, s, "a", 1, now.Add(-time.Hour))
	s.stop()
	// The disk is not there: its mount point is a file.
	away := filepath.Join(parent, "away")
	if err := os.Rename(folder, away); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(folder, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s = open(t, folder, now)
	if err := s.Save("a", key(2), "", now); err == nil || s.Fault() == nil {
		t.Fatalf("error %v, fault %v, want both", err, s.Fault())
	}
	if err := os.Remove(folder); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(away, folder); err != nil {
		t.Fatal(err)
	}
	want := []peer.Key{key(2), key(1)}
	eventually(t, "both keys are alive", func() bool { return cmp.Equal(want, s.Live("a", now)) })
	s.stop()
	if diff := cmp.Diff(want, open(t, folder, now).Live("a", now)); diff != "" {
		t.Errorf("after another restart (-want +got):\n%s", diff)
	}
}

func TestAServerThatIsKilledLosesNoKeyThatItAcknowledged(t *testing.T) {
	folder := t.TempDir()
	total := 0
	for round := range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		child := exec.CommandContext(ctx, os.Args[0])
		child.Env = append(os.Environ(), fmt.Sprintf("%s=%s", writer, folder), fmt.Sprintf("FIRST=%d", total))
		child.Stderr = os.Stderr
		out, err := child.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		// It says every number after the key of that number was acknowledged.
		lines := bufio.NewScanner(out)
		for range 100 + 150*round {
			if !lines.Scan() {
				t.Fatalf("the writer ended by itself: %v", lines.Err())
			}
			total++
		}
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		for lines.Scan() { // what it had said before it was killed
			total++
		}
		_ = child.Wait() // killed
		cancel()
		s := open(t, folder, time.Now())
		live := len(s.Live("a", time.Now()))
		s.stop()
		// One more may have been written and not said yet, in each of the writer's goroutines.
		if live < total {
			t.Fatalf("round %d: %d keys are left of %d acknowledged", round, live, total)
		}
		total = live
	}
}

// writeForEver writes keys and says the number of each that was acknowledged.
func writeForEver(folder string) {
	s, err := tryOpen(folder, time.Now())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var n int
	fmt.Sscan(os.Getenv("FIRST"), &n)
	for ; ; n++ {
		if err := s.Save("a", key(n), "", time.Now()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println(n)
	}
}

func TestAFolderHasOneServer(t *testing.T) {
	folder := t.TempDir()
	open(t, folder, time.Now())
	if _, err := tryOpen(folder, time.Now()); !errors.Is(err, state.ErrLocked) {
		t.Errorf("a second server: %v, want ErrLocked", err)
	}
}

func TestADamagedFileIsMovedAside(t *testing.T) {
	for name, damage := range map[string]func([]byte) []byte{
		"not a database":  func([]byte) []byte { return bytes.Repeat([]byte("garbage "), 1000) },
		"cut short":       func(b []byte) []byte { return b[:50] },
		"a page is wrong": func(b []byte) []byte { copy(b[5000:], bytes.Repeat([]byte{0xff}, 3000)); return b },
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			s := open(t, folder, time.Now())
			for n := range 500 {
				exchange(t, s, "a", n, time.Now())
			}
			s.stop()
			path := filepath.Join(folder, "state.db")
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			broken := damage(content)
			if err := os.WriteFile(path, broken, 0o600); err != nil {
				t.Fatal(err)
			}
			s = open(t, folder, time.Now())
			if !strings.Contains(s.log.String(), "level=ERROR") || !strings.Contains(s.log.String(), "damaged") {
				t.Errorf("the log does not say so at error level:\n%s", s.log)
			}
			exchange(t, s, "a", 1, time.Now()) // it works
			aside, err := filepath.Glob(path + ".damaged-*")
			if err != nil || len(aside) == 0 {
				t.Fatalf("no file was moved aside: %v", err)
			}
			if kept, err := os.ReadFile(aside[0]); err != nil || !bytes.Equal(kept, broken) {
				t.Errorf("what was moved aside is not what was there: %v", err)
			}
		})
	}
}

func TestAFileWithOtherTablesIsMovedAside(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder, time.Now())
	if err := s.file.Write(func(tx *sql.Tx) error {
		_, err := tx.Exec("DROP TABLE keys")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	s.stop()
	s = open(t, folder, time.Now())
	exchange(t, s, "a", 1, time.Now())
	if !strings.Contains(s.log.String(), "moved aside") {
		t.Errorf("the log does not say so:\n%s", s.log)
	}
}

func TestAKeyOfAClockThatWasWrongDiesAllTheSame(t *testing.T) {
	folder, now := t.TempDir(), time.Now()
	s := open(t, folder, now)
	exchange(t, s, "a", 1, now.AddDate(10, 0, 0))
	s.stop()
	s = open(t, folder, now)
	if got := s.Live("a", now); len(got) != 1 {
		t.Errorf("now: %v, want the key", got)
	}
	if got := s.Live("a", now.Add(ttl+time.Minute)); len(got) != 0 {
		t.Errorf("a day later: %v, want none", got)
	}
}

func TestAFileOfANewerVersionIsNotTouched(t *testing.T) {
	folder := t.TempDir()
	s := open(t, folder, time.Now())
	exchange(t, s, "a", 1, time.Now())
	s.stop()
	path := filepath.Join(folder, "state.db")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	binary.BigEndian.PutUint32(content[60:], 99) // the user_version in SQLite's header
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := tryOpen(folder, time.Now()); !errors.Is(err, state.ErrNewer) {
		t.Errorf("error %v, want ErrNewer", err)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(content, after) {
		t.Errorf("the file was changed: %v", err)
	}
	if files, _ := filepath.Glob(filepath.Join(folder, "state.db?*")); len(files) != 0 {
		t.Errorf("files were made: %v", files)
	}
}

// countingDisk writes nothing, and counts.
type countingDisk struct {
	writes int
	err    error
}

func (d *countingDisk) Write(func(*sql.Tx) error) error {
	d.writes++
	return d.err
}

func (d *countingDisk) Read(func(*sql.DB) error) error { return nil }
func (d *countingDisk) Fault() error                   { return d.err }

func TestAssignmentsAreThoseOfKeysThatAreAlive(t *testing.T) {
	now := time.Unix(1_000_000_000, 0)
	store, err := keys.New(ttl, nil, now)
	if err != nil {
		t.Fatal(err)
	}
	save := func(n int, worker string, at time.Time) {
		if err := store.Save("ff_a", key(n), worker, at); err != nil {
			t.Fatal(err)
		}
	}
	save(1, "gw1", now.Add(-ttl-time.Second))
	save(2, "", now) // of the first version of the API: nobody knows where it went
	save(3, "gw1", now.Add(-time.Hour))
	save(4, "gw2", now.Add(-2*time.Hour))
	store.Handshakes("ff_a", []peer.Key{key(4)}, now.Add(-time.Minute))
	want := []keys.Assignment{
		{Domain: "ff_a", Key: key(3), Worker: "gw1", Sent: now.Add(-time.Hour)},
		{Domain: "ff_a", Key: key(4), Worker: "gw2", Sent: now.Add(-2 * time.Hour), Handshake: now.Add(-time.Minute)},
	}
	got := store.Assignments(now)
	slices.SortFunc(got, func(a, b keys.Assignment) int { return bytes.Compare(a.Key[:], b.Key[:]) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
