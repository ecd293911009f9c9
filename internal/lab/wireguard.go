package lab

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"wgsteer/internal/peer"
)

// wireGuardSockets is where the wg tool and wgctrl look for userspace WireGuard.
const wireGuardSockets = "/var/run/wireguard"

// mtu of WireGuard interfaces. The underlay's 1500 would leave 1420; Freifunk nodes
// use less, for DSL lines.
const mtu = 1400

// WireGuard is a WireGuard interface of a host. Its methods are not safe for
// concurrent use on the same interface.
type WireGuard struct {
	host    *Host
	name    string
	private wgtypes.Key
	port    uint16
	// daemon is the interface's userspace WireGuard, nil in the kernel.
	daemon *Program
}

// WireGuard makes a WireGuard interface with a new key. It is down, and has no
// address but those that it is given: the kernel makes none up.
func (h *Host) WireGuard(ctx context.Context, name string) (*WireGuard, error) {
	private, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		return nil, fmt.Errorf("make private key: %w", err)
	}
	w := &WireGuard{host: h, name: name, private: private}
	if err := w.Start(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// Name returns the interface's name.
func (w *WireGuard) Name() string { return w.name }

// Key returns the interface's public key.
func (w *WireGuard) Key() peer.Key { return peer.Key(w.private.PublicKey()) }

// Port returns the UDP port, which is chosen when the interface is brought up for
// the first time. Before that it is 0.
func (w *WireGuard) Port() uint16 { return w.port }

// Start makes the interface again after Stop or Kill, or after somebody deleted it,
// with the key and the port that it had, but without its addresses and peers.
func (w *WireGuard) Start(ctx context.Context) error {
	if err := w.create(ctx); err != nil {
		return fmt.Errorf("make WireGuard interface %s on host %s: %w", w.name, w.host.name, err)
	}
	return nil
}

func (w *WireGuard) create(ctx context.Context) error {
	if err := w.createDevice(ctx); err != nil {
		return err
	}
	// Before it is up: a TUN device would get an address that nobody asked for.
	if err := ipBatch(ctx, w.host.namespace(),
		fmt.Sprintf("link set %s addrgenmode none mtu %d", w.name, mtu)); err != nil {
		return err
	}
	_, err := w.host.runWith(ctx, w.private.String()+"\n",
		"wg", "set", w.name, "private-key", "/dev/stdin", "listen-port", strconv.Itoa(int(w.port)))
	return err
}

func (w *WireGuard) createDevice(ctx context.Context) error {
	if w.host.owner.kernelWireGuard {
		return ipBatch(ctx, w.host.namespace(), "link add "+w.name+" type wireguard")
	}
	if w.daemon != nil {
		// It ends by itself when its interface is deleted, but must not take the new
		// one's socket with it.
		if err := w.daemon.Kill(); err != nil {
			return err
		}
	}
	cmd := w.host.execute(context.WithoutCancel(ctx), reportFD, self, []string{wireGuardJob, w.name}, nil)
	daemon, err := w.host.start(ctx, cmd, w.name, true)
	if err != nil {
		return err
	}
	w.daemon = daemon
	return w.awaitDaemon(ctx)
}

// awaitDaemon waits until the daemon answers on its socket, which it makes last.
func (w *WireGuard) awaitDaemon(ctx context.Context) error {
	ctx, cancel := withDeadline(ctx)
	defer cancel()
	return Eventually(ctx, func() error {
		if w.daemon.ended() {
			cancel()
			return w.daemon.Err()
		}
		return dialSocket(filepath.Join(w.host.sockets(), w.name+".sock"))
	})
}

// Up brings the interface up, with an address.
func (w *WireGuard) Up(ctx context.Context, address netip.Prefix) error {
	if err := ipBatch(ctx, w.host.namespace(),
		fmt.Sprintf("address add %s dev %s", address, w.name),
		fmt.Sprintf("link set %s up", w.name)); err != nil {
		return fmt.Errorf("bring up %s on host %s: %w", w.name, w.host.name, err)
	}
	if w.port != 0 {
		return nil
	}
	return w.learnPort(ctx)
}

// learnPort waits for the port that the interface has chosen: userspace WireGuard
// does so a moment after it is up.
func (w *WireGuard) learnPort(ctx context.Context) error {
	return Eventually(ctx, func() error {
		text, err := w.show(ctx, "listen-port")
		if err != nil {
			return err
		}
		port, err := strconv.ParseUint(strings.TrimSpace(text), 10, 16)
		if err != nil || port == 0 {
			return fmt.Errorf("%s on host %s listens on port %q", w.name, w.host.name, strings.TrimSpace(text))
		}
		w.port = uint16(port)
		return nil
	})
}

// Set configures the interface: the arguments are those of `wg set` after its name.
func (w *WireGuard) Set(ctx context.Context, args ...string) error {
	_, err := w.host.Run(ctx, "wg", append([]string{"set", w.name}, args...)...)
	return err
}

// show returns one column of `wg show`.
func (w *WireGuard) show(ctx context.Context, what string) (string, error) {
	return w.host.Run(ctx, "wg", "show", w.name, what)
}

// Handshake returns the time of the last handshake with the peer, in whole seconds.
// It is the zero time when there was none, or no such peer.
func (w *WireGuard) Handshake(ctx context.Context, key peer.Key) (time.Time, error) {
	text, err := w.show(ctx, "latest-handshakes")
	if err != nil {
		return time.Time{}, err
	}
	for line := range strings.Lines(text) {
		of, when, _ := strings.Cut(strings.TrimSpace(line), "\t")
		seconds, err := strconv.ParseInt(when, 10, 64)
		if of != key.String() || err != nil || seconds == 0 {
			continue
		}
		return time.Unix(seconds, 0), nil
	}
	return time.Time{}, nil
}

// Peers returns the keys of the interface's peers.
func (w *WireGuard) Peers(ctx context.Context) ([]peer.Key, error) {
	text, err := w.show(ctx, "peers")
	if err != nil {
		return nil, err
	}
	var keys []peer.Key
	for _, field := range strings.Fields(text) {
		key, err := peer.ParseKey(field)
		if err != nil {
			return nil, fmt.Errorf("peers of %s on host %s: %w", w.name, w.host.name, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// Stop removes the interface as an administrator would, and with it what stands on
// it, like a VXLAN interface.
func (w *WireGuard) Stop(ctx context.Context) error {
	if w.daemon == nil {
		return ipBatch(ctx, w.host.namespace(), "link del "+w.name)
	}
	return w.daemon.Stop(ctx)
}

// Kill removes the interface as a crash of its userspace WireGuard would, which
// leaves the socket behind. In the kernel it is the same as Stop.
func (w *WireGuard) Kill(ctx context.Context) error {
	if w.daemon == nil {
		return w.Stop(ctx)
	}
	return w.daemon.Kill()
}
