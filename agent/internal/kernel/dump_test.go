package kernel

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

func TestAnInterruptedDumpIsRepeated(t *testing.T) {
	other := errors.New("other")
	tests := map[string]struct {
		answers []error
		want    error
		tries   int
	}{
		"whole":                      {[]error{nil}, nil, 1},
		"interrupted twice":          {[]error{errInterrupted, errInterrupted, nil}, nil, 3},
		"interrupted by EINTR":       {[]error{fmt.Errorf("dump: %w", unix.EINTR), nil}, nil, 2},
		"interrupted, then an error": {[]error{errInterrupted, other}, other, 2},
		"interrupted all the time":   {nil, errInterrupted, maxDumps},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			tries := 0
			err := untilWhole("things", func() error {
				tries++
				if tries > len(test.answers) {
					return errInterrupted
				}
				return test.answers[tries-1]
			})
			if !errors.Is(err, test.want) || tries != test.tries {
				t.Errorf("%v after %d tries, want %v after %d", err, tries, test.want, test.tries)
			}
		})
	}
}

func TestADumpOfWireGuardIsTrustedWhenASecondOneConfirmsIt(t *testing.T) {
	dump := func(kind wgtypes.DeviceType, peers ...byte) *wgtypes.Device {
		d := &wgtypes.Device{Type: kind}
		for _, p := range peers {
			d.Peers = append(d.Peers, wgtypes.Peer{PublicKey: wgtypes.Key{p}})
		}
		return d
	}
	const inKernel, userspace = wgtypes.LinuxKernel, wgtypes.Userspace
	tests := map[string]struct {
		dumps []*wgtypes.Device
		peers int
		err   error
	}{
		"the same twice":        {[]*wgtypes.Device{dump(inKernel, 1, 2), dump(inKernel, 1, 2)}, 2, nil},
		"the first ended early": {[]*wgtypes.Device{dump(inKernel, 1), dump(inKernel, 1, 2)}, 0, errInterrupted},
		"another peer":          {[]*wgtypes.Device{dump(inKernel, 1, 2), dump(inKernel, 1, 3)}, 0, errInterrupted},
		"userspace":             {[]*wgtypes.Device{dump(userspace, 1, 2)}, 2, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			left := test.dumps
			device, err := wholeDevice(func() (*wgtypes.Device, error) {
				next := left[0]
				left = left[1:]
				return next, nil
			})
			if !errors.Is(err, test.err) || err == nil && len(device.Peers) != test.peers || len(left) != 0 {
				t.Errorf("got %+v, %v with %d dumps left", device, err, len(left))
			}
		})
	}
}

func FuzzMessages(f *testing.F) {
	f.Add([]byte{20, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{1, 0, 0, 0})
	f.Fuzz(func(t *testing.T, packet []byte) {
		for len(packet) > 0 {
			header, payload, rest, err := nextMessage(packet)
			if err != nil {
				return
			}
			if len(rest) >= len(packet) {
				t.Fatal("no progress")
			}
			_ = answer(header, payload)
			linkLocal(payload, 1)
			hostRoute(payload, 1)
			floodEntry(payload, 1)
			packet = rest
		}
	})
}
