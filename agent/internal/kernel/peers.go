package kernel

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"wgsteer/agent/internal/gateway"
	"wgsteer/internal/peer"
)

// SetPeers adds peers that have one allowed IP, or sets it for those that are there.
func (Kernel) SetPeers(wireGuard string, peers []gateway.NewPeer) []error {
	configs := make([]wgtypes.PeerConfig, len(peers))
	for i, p := range peers {
		configs[i] = wgtypes.PeerConfig{
			PublicKey:         wgtypes.Key(p.Key),
			ReplaceAllowedIPs: true,
			AllowedIPs:        []net.IPNet{{IP: p.Address.AsSlice(), Mask: net.CIDRMask(128, 128)}},
		}
	}
	return explain(configure(wireGuard, configs), never, func(i int) string {
		return fmt.Sprintf("add peer %v to %s", peers[i].Key, wireGuard)
	})
}

// RemovePeers removes peers.
func (Kernel) RemovePeers(wireGuard string, keys []peer.Key) []error {
	configs := make([]wgtypes.PeerConfig, len(keys))
	for i, key := range keys {
		configs[i] = wgtypes.PeerConfig{PublicKey: wgtypes.Key(key), Remove: true}
	}
	return explain(configure(wireGuard, configs), noInterface, func(i int) string {
		return fmt.Sprintf("remove peer %v from %s", keys[i], wireGuard)
	})
}

func never(error) bool { return false }

func noInterface(err error) bool { return errors.Is(err, os.ErrNotExist) }

// perMessage is how many peers one configuration holds. wgctrl sends up to this many
// (its peerBatchChunk) in one message to the kernel, and falls back to a message for
// each peer when there is one more.
const perMessage = 32

// perUserspaceMessage is the same for a userspace WireGuard, where each configuration is
// a connection, and nothing limits its length.
const perUserspaceMessage = 1000

func chunkSize(wireGuard string) int {
	if found, err := link(wireGuard); err == nil && found != nil && found.Type() != "wireguard" {
		return perUserspaceMessage
	}
	return perMessage
}

// configure applies the configs of peers, in as few calls as possible. It returns nil or
// one error (or nil) for each.
func configure(wireGuard string, peers []wgtypes.PeerConfig) []error {
	var errs []error
	err := withWireGuard(func(client *wgctrl.Client) error {
		errs = inChunks(peers, chunkSize(wireGuard), func(chunk []wgtypes.PeerConfig) error {
			return client.ConfigureDevice(wireGuard, wgtypes.Config{Peers: chunk})
		})
		return nil
	})
	if err != nil {
		return each(len(peers), err)
	}
	return errs
}

// inChunks applies peers in chunks. WireGuard stops at the first peer of a chunk that
// it cannot configure, so that the peers of a chunk that failed are applied one by one,
// except when the interface is the cause.
func inChunks(peers []wgtypes.PeerConfig, size int, apply func([]wgtypes.PeerConfig) error) []error {
	errs := make([]error, len(peers))
	for start := 0; start < len(peers); start += size {
		end := min(start+size, len(peers))
		err := apply(peers[start:end])
		switch {
		case err == nil:
		case errors.Is(err, os.ErrNotExist), end-start == 1:
			copy(errs[start:], each(end-start, err))
		default:
			copy(errs[start:], inChunks(peers[start:end], 1, apply))
		}
	}
	return errs
}
