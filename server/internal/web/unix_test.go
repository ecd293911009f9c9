package web_test

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"wgsteer/server/internal/web"
)

// listen listens at the path, with nothing to say.
func listen(path string) (*web.Server, error) {
	return web.ListenUnix("test server", path, http.NotFoundHandler(), slog.New(slog.DiscardHandler))
}

// run runs a server, and returns what stops it.
func run(t *testing.T, s *web.Server) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- s.Run(ctx) }()
	return func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	}
}

func TestASocketIsForItsOwnerAndGroupAndGoneAfterwards(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	s, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, s)
	info, err := os.Stat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o660 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}
	stop()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("after the stop: error %v, want that it is gone", err)
	}
}

func TestASocketThatADeadServerHasLeftIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	left, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	left.SetUnlinkOnClose(false)
	left.Close()
	s, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, s)
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	stop()
}

func TestASocketThatIsUsedIsAnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	s, err := listen(path)
	if err != nil {
		t.Fatal(err)
	}
	stop := run(t, s)
	defer stop()
	if _, err := listen(path); err == nil || !strings.Contains(err.Error(), "a program listens at "+path) {
		t.Errorf("error %v, want one that says so", err)
	}
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatalf("the first server is out of reach: %v", err)
	}
	conn.Close()
}

func TestAFileInPlaceOfASocketIsNotTouched(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := listen(path); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("error %v, want one that says so", err)
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "precious" {
		t.Errorf("the file holds %q, %v", content, err)
	}
}

func TestAServerIsReachedOnLoopbackWhenItListensEverywhere(t *testing.T) {
	for listen, want := range map[string]string{
		"0.0.0.0:5001": "127.0.0.1:5001", ":5001": "127.0.0.1:5001", "[::]:5001": "[::1]:5001",
		"192.0.2.1:5001": "192.0.2.1:5001", "localhost:5001": "localhost:5001",
	} {
		if got, err := web.Reach(listen); err != nil || got != want {
			t.Errorf("Reach(%q) = %q, %v, want %q", listen, got, err, want)
		}
	}
}
