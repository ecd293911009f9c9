package chaos

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	_ "modernc.org/sqlite" // reads the server's state

	"wgsteer/internal/lab"
	"wgsteer/internal/peer"
)

// disk is a small file system that holds the server's state and can be filled. It is
// mounted only where its holder and the server are, and is gone with them, however the
// test ends.
type disk struct {
	holder *lab.Program
	at     string
}

// diskSize leaves room for some thousand keys.
const diskSize = "16m"

func newDisk(ctx context.Context, host *lab.Host) (*disk, error) {
	d := &disk{at: filepath.Join(host.Folder(), "disk")}
	if err := os.Mkdir(d.at, 0o755); err != nil {
		return nil, err
	}
	var err error
	d.holder, err = host.Start(ctx, "sh", "-c", `mount -t tmpfs -o size=`+diskSize+` tmpfs "$0" && mkdir "$0/state" && exec sleep infinity`, d.at)
	if err != nil {
		return nil, err
	}
	return d, lab.Eventually(ctx, func() error {
		_, err := os.Stat(d.seen("state"))
		return err
	})
}

func (d *disk) stop() { _ = d.holder.Kill() }

// stateDir is the folder as the server sees it.
func (d *disk) stateDir() string { return filepath.Join(d.at, "state") }

// seen is a file of the disk as this process sees it.
func (d *disk) seen(path string) string {
	return filepath.Join("/proc", strconv.Itoa(d.holder.PID()), "root", d.at, path)
}

// command begins the command line of a program that sees the disk.
func (d *disk) command() []string {
	return []string{"nsenter", "--mount=/proc/" + strconv.Itoa(d.holder.PID()) + "/ns/mnt", "--"}
}

const fillerName = "filler"

// refillInterval is the time after which what the server has given up is taken, too.
const refillInterval = 5 * time.Millisecond

// fill leaves no byte free until free is called.
func (d *disk) fill() (free func() error, err error) {
	f, err := os.OpenFile(d.seen(fillerName), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return nil, fmt.Errorf("fill the disk: %w", err)
	}
	if err := takeAll(f); err != nil {
		return nil, err
	}
	var filling sync.WaitGroup
	stop := make(chan struct{})
	filling.Go(func() {
		tick := time.NewTicker(refillInterval)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				_ = takeAll(f) // went well once
			}
		}
	})
	return func() error {
		close(stop)
		filling.Wait()
		return errors.Join(f.Close(), os.Remove(f.Name()))
	}, nil
}

// takeAll writes until there is no space left.
func takeAll(f *os.File) (err error) {
	page := make([]byte, 4096)
	for err == nil {
		_, err = f.Write(page)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("fill the disk: %w", err)
	}
	return nil
}

// keys reads the keys that are on disk from a copy: SQLite would follow the path through
// /proc to this process's own files. A copy that was taken in the middle of a write may
// be an error.
func (d *disk) keys(ctx context.Context) (map[entry]bool, error) {
	folder, err := os.MkdirTemp("", "wgsteer-chaos-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	for _, name := range []string{"state.db", "state.db-wal"} {
		content, err := os.ReadFile(d.seen(filepath.Join("state", name)))
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o600); err != nil {
			return nil, err
		}
	}
	db, err := sql.Open("sqlite", filepath.Join(folder, "state.db"))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	rows, err := db.QueryContext(ctx, "SELECT domain, key FROM keys")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	found := make(map[entry]bool)
	for rows.Next() {
		var domain string
		var key []byte
		if err := rows.Scan(&domain, &key); err != nil {
			return nil, err
		}
		if len(key) != peer.KeyLen {
			return nil, fmt.Errorf("a key on disk has %d bytes", len(key))
		}
		for i := range segments() {
			if domainName(i) == domain {
				found[entry{i, peer.Key(key)}] = true
			}
		}
	}
	return found, rows.Err()
}
