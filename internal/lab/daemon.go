package lab

import (
	"context"
	"fmt"
	"net"
	"os/signal"
	"sync"
	"syscall"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/ipc"
	"golang.zx2c4.com/wireguard/tun"
)

// runWireGuard is the job of a userspace WireGuard daemon: it makes the interface of
// that name and serves it until SIGTERM, or until the interface or its socket
// is removed.
func runWireGuard(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s: want the name of an interface", wireGuardJob)
	}
	if err := serveWireGuard(args[0]); err != nil {
		return fmt.Errorf("userspace WireGuard %s: %w", args[0], err)
	}
	return nil
}

func serveWireGuard(name string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()

	tunnel, err := tun.CreateTUN(name, mtu)
	if err != nil {
		return fmt.Errorf("make TUN device: %w", err)
	}
	dev := device.NewDevice(tunnel, conn.NewDefaultBind(), device.NewLogger(device.LogLevelError, name+": "))
	defer dev.Close()

	file, err := ipc.UAPIOpen(name)
	if err != nil {
		return fmt.Errorf("make configuration socket: %w", err)
	}
	socket, err := ipc.UAPIListen(name, file)
	if err != nil {
		return fmt.Errorf("listen on configuration socket: %w", err)
	}
	// Only the listener's own copy of the descriptor is used from here on.
	file.Close()

	var serving sync.WaitGroup
	defer serving.Wait()
	defer socket.Close()
	gone := make(chan struct{})
	serving.Go(func() {
		defer close(gone)
		acceptConfig(socket, dev)
	})
	select {
	case <-ctx.Done():
	case <-dev.Wait():
	case <-gone:
	}
	return nil
}

// acceptConfig serves `wg` and its like until the socket is gone.
func acceptConfig(socket net.Listener, dev *device.Device) {
	for {
		conn, err := socket.Accept()
		if err != nil {
			return
		}
		go dev.IpcHandle(conn)
	}
}
