package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"wgsteer/agent/internal/gateway"
	"wgsteer/internal/peer"
)

// Device reads a WireGuard interface of the kernel's, or a userspace one's.
func (Kernel) Device(wireGuard string) (gateway.Device, error) {
	var device *wgtypes.Device
	err := untilWhole("WireGuard interface "+wireGuard, func() error {
		return withWireGuard(func(client *wgctrl.Client) (err error) {
			device, err = wholeDevice(func() (*wgtypes.Device, error) { return client.Device(wireGuard) })
			return err
		})
	})
	switch {
	case errors.Is(err, os.ErrNotExist):
		return gateway.Device{}, gateway.ErrNoDevice
	case err != nil:
		return gateway.Device{}, err
	}
	return convert(device), nil
}

// wholeDevice reads an interface, or returns errInterrupted.
//
// When peers change while the kernel dumps them, the dump can end early. The kernel
// flags that, but wgctrl drops the flag: only a dump that a second one confirms is
// trusted. Userspace WireGuard answers under a lock.
func wholeDevice(read func() (*wgtypes.Device, error)) (*wgtypes.Device, error) {
	device, err := read()
	if err != nil || device.Type != wgtypes.LinuxKernel {
		return device, err
	}
	again, err := read()
	if err != nil {
		return nil, err
	}
	same := func(p, q wgtypes.Peer) bool {
		return p.PublicKey == q.PublicKey && len(p.AllowedIPs) == len(q.AllowedIPs)
	}
	if !slices.EqualFunc(device.Peers, again.Peers, same) {
		return nil, errInterrupted
	}
	return again, nil
}

// withWireGuard calls do with a client for it alone: a client that was made before the
// WireGuard module was loaded would never find the kernel's interfaces.
func withWireGuard(do func(*wgctrl.Client) error) error {
	client, err := wgctrl.New()
	if err != nil {
		return fmt.Errorf("open WireGuard: %w", err)
	}
	defer client.Close()
	return do(client)
}

func convert(device *wgtypes.Device) gateway.Device {
	converted := gateway.Device{
		Port:  uint16(device.ListenPort),
		Peers: make([]gateway.Peer, len(device.Peers)),
	}
	// For an interface without a private key a public key may be reported, which belongs
	// to the zero key.
	if device.PrivateKey != (wgtypes.Key{}) {
		converted.PublicKey = peer.Key(device.PublicKey)
	}
	total := 0
	for i := range device.Peers {
		total += len(device.Peers[i].AllowedIPs)
	}
	allowed := make([]netip.Prefix, 0, total) // of all peers: one allocation instead of thousands
	for i := range device.Peers {
		p := &device.Peers[i]
		start := len(allowed)
		for _, ipNet := range p.AllowedIPs {
			allowed = append(allowed, prefix(ipNet))
		}
		converted.Peers[i] = gateway.Peer{
			Key:           peer.Key(p.PublicKey),
			AllowedIPs:    allowed[start:len(allowed):len(allowed)],
			LastHandshake: p.LastHandshakeTime,
		}
	}
	return converted
}

// prefix is the zero Prefix for what is none.
func prefix(ipNet net.IPNet) netip.Prefix {
	ip, _ := netip.AddrFromSlice(ipNet.IP)
	ones, _ := ipNet.Mask.Size()
	return netip.PrefixFrom(ip.Unmap(), ones)
}
