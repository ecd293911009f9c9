package web

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"

	"golang.org/x/sys/unix"
)

// socketMode lets in the owner and the group of a socket.
const socketMode = 0o660

// ListenUnix is Listen for the path of a Unix socket, which is removed when the server
// stops. One that a dead server has left is replaced.
func ListenUnix(name, path string, handler http.Handler, log *slog.Logger) (*Server, error) {
	listener, err := listenUnix(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return newServer(name, listener, handler, log), nil
}

func listenUnix(path string) (net.Listener, error) {
	listener, err := net.Listen("unix", path)
	if errors.Is(err, unix.EADDRINUSE) {
		if err := removeStale(path); err != nil {
			return nil, err
		}
		listener, err = net.Listen("unix", path)
	}
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, socketMode); err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}

// removeStale removes a socket at which nobody listens.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is there, and no socket: remove it, or listen elsewhere", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		conn.Close()
		return fmt.Errorf("a program listens at %s already", path)
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}
