package endtoend_test

import (
	"bufio"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
)

// relay stands between an agent and the userspace WireGuards of its gateway: it serves
// their sockets in another folder. There is nothing to relay when the kernel has
// WireGuard.
type relay struct {
	gateway *gateway
	folder  string
	inspect func(operation string) error

	mu   sync.Mutex
	errs []error
}

// relayWireGuard makes a relay. inspect is called with each operation before it is
// passed on.
func (g *gateway) relayWireGuard(inspect func(operation string) error) *relay {
	g.mesh.t.Helper()
	r := &relay{gateway: g, folder: filepath.Join(g.Folder(), "relayed"), inspect: inspect}
	if g.mesh.lab.KernelWireGuard() {
		return r
	}
	check(g.mesh.t, os.Mkdir(r.folder, 0o755))
	for _, d := range []domain{welt, city} {
		r.serve(d.WireGuard + ".sock")
	}
	return r
}

// command returns the words of a command that sees the relay's sockets in the place of
// the gateway's.
func (r *relay) command(words ...string) []string {
	if r.gateway.mesh.lab.KernelWireGuard() {
		return words
	}
	return append([]string{"unshare", "--mount", "sh", "-c", `mount --bind "$0" /var/run/wireguard && exec "$@"`, r.folder}, words...)
}

// err returns what went wrong so far.
func (r *relay) err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.errs...)
}

func (r *relay) serve(name string) {
	t, path := r.gateway.mesh.t, filepath.Join(r.folder, name)
	t.Helper()
	listener := must(net.Listen("unix", path))(t)
	check(t, os.Chmod(path, 0o777))
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed at the test's end
			}
			serving.Go(func() {
				if err := r.pass(client, filepath.Join(r.gateway.Folder(), "wireguard", name)); err != nil {
					r.mu.Lock()
					defer r.mu.Unlock()
					r.errs = append(r.errs, err)
				}
			})
		}
	})
	t.Cleanup(func() { listener.Close(); serving.Wait() })
}

// pass passes the operations of a client on to the WireGuard at the path, and what that
// answers back. Each ends with an empty line.
func (r *relay) pass(client net.Conn, path string) error {
	defer client.Close()
	server, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	defer server.Close()
	go func() {
		io.Copy(client, server)
		client.Close()
	}()
	operation := ""
	for lines := bufio.NewScanner(client); lines.Scan(); {
		operation += lines.Text() + "\n"
		if lines.Text() != "" {
			continue
		}
		if err := r.inspect(operation); err != nil {
			return err
		}
		if _, err := io.WriteString(server, operation); err != nil {
			return err
		}
		operation = ""
	}
	return nil
}
