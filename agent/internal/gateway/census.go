package gateway

import (
	"net/netip"
	"time"

	"wgsteer/internal/peer"
)

// ours tells whether the peer is one of those that agents (wgsteer's or wgkex's) make,
// and at which address: its only allowed IP is its own link address, by any scheme.
func (p Peer) ours() (netip.Addr, bool) {
	if len(p.AllowedIPs) != 1 || !p.AllowedIPs[0].IsSingleIP() {
		return netip.Addr{}, false
	}
	address := p.AllowedIPs[0].Addr()
	for _, scheme := range peer.Schemes() {
		if address == scheme.LinkAddress(p.Key) {
			return address, true
		}
	}
	return netip.Addr{}, false
}

// census is who is on a WireGuard interface.
type census struct {
	// ours are the addresses that our peers have there now.
	ours map[peer.Key]netip.Addr
	// foreign are the other peers, taken the single addresses that those are allowed.
	foreign map[peer.Key]bool
	taken   map[netip.Addr]bool
}

func takeCensus(peers []Peer) census {
	c := census{
		ours:    make(map[peer.Key]netip.Addr, len(peers)),
		foreign: make(map[peer.Key]bool),
		taken:   make(map[netip.Addr]bool),
	}
	for _, p := range peers {
		if address, ours := p.ours(); ours {
			c.ours[p.Key] = address
			continue
		}
		c.foreign[p.Key] = true
		for _, ip := range p.AllowedIPs {
			if ip.IsSingleIP() {
				c.taken[ip.Addr()] = true
			}
		}
	}
	return c
}

// adopt puts the peers of ours that are on the interface into the desired set.
func (d *domain) adopt(c census, now time.Time) {
	adopted := 0
	for key := range c.ours {
		if _, known := d.desired[key]; !known {
			d.desired[key] = want{address: d.agent.LinkAddress.LinkAddress(key), added: now}
			adopted++
		}
	}
	if adopted > 0 {
		d.log.Info("adopted peers that were there already", "peers", adopted)
	}
}

// refusal is why a key does not get into the desired set, or not stay in it.
type refusal string

const (
	ownKey       refusal = "it is this gateway's own key"
	foreignPeer  refusal = "a peer that is not ours has this key"
	takenAddress refusal = "its link address belongs to somebody else"
)

// refuse drops from the desired set those of the keys that must not be applied. Adding
// such a peer would take a foreign peer's settings away, or its allowed IP: WireGuard
// gives an allowed IP to the last peer that claims it.
func (d *domain) refuse(keys []peer.Key, links Links, device Device, c census) {
	holders := make(map[netip.Addr]peer.Key, len(c.ours))
	for key, address := range c.ours {
		holders[address] = key
	}
	for _, a := range links.Addresses {
		holders[a.IP] = device.PublicKey
	}
	for _, key := range keys {
		why, address := refusal(""), d.desired[key].address
		holder, held := holders[address]
		switch {
		case key == device.PublicKey:
			why = ownKey
		case c.foreign[key]:
			why = foreignPeer
		case c.taken[address] || held && holder != key:
			why = takenAddress
		default:
			holders[address] = key
			continue
		}
		delete(d.desired, key)
		if d.refusals[why]++; d.refusals[why] == 1 {
			d.log.Warn("key refused (said once; counted from now on)", "key", key, "reason", why)
		}
	}
}
