package gateway

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"wgsteer/internal/peer"
	"wgsteer/internal/report"
)

// state is what was last found and said about a domain's interfaces.
type state struct {
	// usable tells whether peers, routes and FDB entries can be applied, usableAt when
	// they last could.
	usable   bool
	usableAt time.Time
	// said is what the log was last told; empty: nothing yet.
	said string
}

// look reads the domain's interfaces and updates the report by them. The result is
// only to be used when the domain is usable.
func (d *domain) look(now time.Time) (Links, Device, bool) {
	links, device, err := d.read()
	d.state.usable = err == nil
	var data report.Data
	if err == nil {
		d.state.usableAt = now
		data, err = d.offer(links, device)
	}
	d.mu.Lock()
	d.links = links
	d.handshakes.forget(now)
	news := d.state.usable && d.handshakes.note(device.Peers, now)
	d.due.afterLook(now, d.state.usable && d.handshakes.awaits(now))
	d.mu.Unlock()
	if news {
		d.tell()
	}
	if err != nil {
		d.withdraw(err)
	} else {
		d.announce(now, data, device)
	}
	d.looked()
	return links, device, d.state.usable
}

// glance only looks, for what comes of that.
func (d *domain) glance(now time.Time) {
	if _, _, usable := d.look(now); !usable {
		d.due.afterEvent(now)
	}
}

// read returns an error that says what keeps the domain from being used.
func (d *domain) read() (Links, Device, error) {
	wg, vx := d.names.WireGuard, d.names.VXLAN
	links, err := d.kernel.Links(wg, vx)
	switch {
	case err != nil:
		return links, Device{}, err
	case links.WireGuard == 0:
		return links, Device{}, fmt.Errorf("%s does not exist", wg)
	case links.VXLAN == 0:
		return links, Device{}, fmt.Errorf("%s does not exist", vx)
	case !links.IsVXLAN:
		return links, Device{}, fmt.Errorf("%s is not a VXLAN interface", vx)
	case !links.Up:
		return links, Device{}, fmt.Errorf("%s is down", wg)
	}
	device, err := d.kernel.Device(wg)
	if errors.Is(err, ErrNoDevice) {
		return links, Device{}, fmt.Errorf("%s is %w", wg, ErrNoDevice)
	}
	return links, device, err
}

// offer returns how nodes reach the domain here, or what is missing for that.
func (d *domain) offer(links Links, device Device) (report.Data, error) {
	wg := d.names.WireGuard
	switch {
	case device.PublicKey == peer.Key{}:
		return report.Data{}, fmt.Errorf("%s has no private key", wg)
	case device.Port == 0:
		return report.Data{}, fmt.Errorf("%s has no listen port", wg)
	}
	address, ok := linkAddress(links.Addresses, device.PublicKey, d.agent.LinkAddress)
	if !ok {
		return report.Data{}, fmt.Errorf("%s has no link-local address; set one: ip address add %v/128 dev %s",
			wg, d.agent.LinkAddress.LinkAddress(device.PublicKey), wg)
	}
	data := report.Data{
		ExternalAddress: d.agent.ExternalName,
		Port:            device.Port,
		PublicKey:       device.PublicKey,
		LinkAddress:     address,
	}
	return data, data.Check()
}

// linkAddress chooses the address that nodes are told: the one that follows from the
// gateway's own key by the configured scheme, else by another, else the lowest that an
// operator set. One that the kernel made up changes with every start of a userspace
// WireGuard: no node could rely on it.
func linkAddress(addresses []Address, own peer.Key, scheme peer.Scheme) (netip.Addr, bool) {
	for _, s := range append([]peer.Scheme{scheme}, peer.Schemes()...) {
		for _, a := range addresses {
			if a.IP == s.LinkAddress(own) {
				return a.IP, true
			}
		}
	}
	var lowest netip.Addr
	for _, a := range addresses {
		if !a.ByKernel && (!lowest.IsValid() || a.IP.Less(lowest)) {
			lowest = a.IP
		}
	}
	return lowest, lowest.IsValid()
}

// announce makes the report offer the domain.
func (d *domain) announce(now time.Time, data report.Data, device Device) {
	d.mu.Lock()
	before := d.report
	d.report.Offered, d.report.Data = true, data
	if !before.Offered {
		d.report.Connected, d.report.Counted = connected(device.Peers, now), now
	}
	d.mu.Unlock()
	if before.Offered && before.Data == data {
		return
	}
	d.tell()
	d.state.said = "offered"
	d.log.Info("domain is offered", "address", data.ExternalAddress, "port", data.Port,
		"key", data.PublicKey, "link_address", data.LinkAddress)
}

// withdraw makes the report offer nothing, and says why when that is news.
func (d *domain) withdraw(reason error) {
	d.mu.Lock()
	offered := d.report.Offered
	d.report = Report{}
	d.mu.Unlock()
	if offered {
		d.tell()
	}
	if why := reason.Error(); d.state.said != why {
		d.state.said = why
		d.log.Warn("domain is not offered", "reason", why)
	}
}

// latest returns the report.
func (d *domain) latest() Report {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.report
}

// connectedWithin is the age of a handshake below which a peer is connected: WireGuard
// makes a new one every two minutes while there is traffic (REKEY_AFTER_TIME), and
// drops the session after three (REJECT_AFTER_TIME).
const connectedWithin = 3 * time.Minute

// connected tells whether the peer is one of ours and connected.
func (p Peer) connected(now time.Time) bool {
	_, ours := p.ours()
	return ours && !p.LastHandshake.IsZero() && now.Sub(p.LastHandshake) < connectedWithin
}

// connected counts the peers of ours that are connected.
func connected(peers []Peer, now time.Time) int {
	count := 0
	for _, p := range peers {
		// A peer that never had a handshake had it in the year 1.
		if _, ours := p.ours(); ours && now.Sub(p.LastHandshake) < connectedWithin {
			count++
		}
	}
	return count
}

// count updates the report's count of connected peers.
func (d *domain) count(now time.Time) {
	_, device, usable := d.look(now)
	if !usable {
		return
	}
	count := connected(device.Peers, now)
	d.mu.Lock()
	offered := d.report.Offered
	if offered {
		d.report.Connected, d.report.Counted = count, now
	}
	d.mu.Unlock()
	if offered {
		d.tell()
	}
}
