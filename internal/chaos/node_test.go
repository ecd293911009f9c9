package chaos

import (
	"context"
	"fmt"
	"time"

	"wgsteer/internal/lab"
)

// node is a node with a tunnel that pings its gateway all the time.
type node struct {
	*lab.Node
	place place
	pings *pings
	// counted is the last ping that was looked at.
	counted int
	// recovering is when a fault broke the tunnel; zero: it has to work.
	recovering time.Time
}

const (
	// forgetMAC bounds how long nodes keep the MAC address of a VXLAN interface that is
	// no longer there, in milliseconds.
	forgetMAC = "echo 5000 > /proc/sys/net/ipv6/neigh/mesh-vpn/base_reachable_time_ms"
	// recoverWithin is how long a tunnel may take that a fault broke: its node begins a
	// new handshake after 15 s without an answer and repeats it every 5 s.
	recoverWithin = time.Minute
	// settled is how many pings in a row have to be answered for a tunnel to work again.
	settled = 10
)

func (m *mesh) makeNode(ctx context.Context, index int, at place) (*node, error) {
	host, err := m.lab.Host(ctx, fmt.Sprintf("node%d", index+1))
	if err != nil {
		return nil, err
	}
	labNode, err := host.Node(ctx, schemeOf)
	if err != nil {
		return nil, err
	}
	n := &node{Node: labNode, place: at}
	posted := entry{at.domain, n.Key()}
	m.client.want(posted)
	if err := lab.Eventually(ctx, func() error {
		if !m.client.knows(posted) {
			return fmt.Errorf("the key of %s was not accepted", n.Name())
		}
		return nil
	}); err != nil {
		return nil, err
	}
	segment := m.gateways[at.gateway].segments[at.domain]
	if err := n.Connect(ctx, segment.Endpoint(), segments()[at.domain].VNI); err != nil {
		return nil, err
	}
	if _, err := host.Run(ctx, "sh", "-c", forgetMAC); err != nil {
		return nil, err
	}
	if err := n.AwaitHandshake(ctx, segment.WireGuard().Key()); err != nil {
		return nil, err
	}
	if _, err := n.AwaitPing(ctx, segment.Inner()); err != nil {
		return nil, err
	}
	n.pings, err = startPings(host, segment.Inner())
	return n, err
}

// lostNothing waits for late answers to the pings after one, up to another.
func (n *node) lostNothing(ctx context.Context, from, to int) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	return lab.Eventually(ctx, func() error {
		if lost := n.pings.lost(from, to); lost > 0 {
			return fmt.Errorf("%s (%v) lost %d of %d pings because of a fault that does not concern it", n.Name(), n.place, lost, to-from)
		}
		return nil
	})
}

// settle finds out whether a tunnel that a fault broke works again.
func (n *node) settle(last int) error {
	if last > settled && n.pings.lost(last-settled, last) == 0 && n.pings.lastAnswer().After(n.recovering) {
		n.recovering = time.Time{}
		return nil
	}
	if since := time.Since(n.recovering); since > recoverWithin {
		return fmt.Errorf("the tunnel of %s (%v) does not work again after %v", n.Name(), n.place, since)
	}
	return nil
}

// awaitSettled waits for that.
func (n *node) awaitSettled(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, recoverWithin)
	defer cancel()
	return lab.Eventually(ctx, func() error {
		if n.recovering.IsZero() {
			return nil
		}
		if err := n.settle(n.pings.last()); err != nil {
			return err
		}
		if !n.recovering.IsZero() {
			return fmt.Errorf("the tunnel of %s (%v) does not work again", n.Name(), n.place)
		}
		return nil
	})
}
