package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"wgsteer/internal/lab"
	"wgsteer/internal/peer"
)

// node is a router that wants a tunnel, and what came of it.
type node struct {
	*lab.Node
	// domain is the index of the node's domain in the config.
	domain int

	// worker is the gateway that the server chose.
	worker string
	// handshake is the time from the request to the first handshake.
	handshake time.Duration
	// ping is the round-trip time through the tunnel.
	ping time.Duration
	// err is what did not work.
	err error
}

func (d *demo) makeNode(ctx context.Context, index int) (*node, error) {
	host, err := d.lab.Host(ctx, fmt.Sprintf("node%d", index+1))
	if err != nil {
		return nil, err
	}
	n, err := host.Node(ctx, peer.WGKex)
	if err != nil {
		return nil, err
	}
	return &node{Node: n, domain: index % len(d.cfg.Domains)}, nil
}

// connectNodes lets every node do what it does at its start. What fails is told by
// report.
func (d *demo) connectNodes(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(atOnce)
	for _, n := range d.nodes {
		group.Go(func() error {
			if n.err = d.connect(ctx, n); n.err != nil {
				d.say("%s failed: %v", n.Name(), n.err)
			} else {
				d.say("%s (%s) has a tunnel to %s", n.Name(), d.cfg.Domains[n.domain].Name, n.worker)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err()
}

// tunnelWithin is how long one node may take. WireGuard repeats a handshake that was
// lost after five seconds.
const tunnelWithin = 20 * time.Second

func (d *demo) connect(ctx context.Context, n *node) error {
	ctx, cancel := context.WithTimeout(ctx, tunnelWithin)
	defer cancel()
	asked := time.Now()
	endpoint, err := n.Exchange(ctx, d.serverURL(), d.cfg.Domains[n.domain].Name)
	if err != nil {
		return err
	}
	worker, segment, err := d.workerOf(endpoint, n.domain)
	if err != nil {
		return err
	}
	n.worker = worker.Name()
	if err := n.Connect(ctx, endpoint, vniOf(n.domain)); err != nil {
		return err
	}
	if err := n.AwaitHandshake(ctx, segment.WireGuard().Key()); err != nil {
		return err
	}
	n.handshake = time.Since(asked)
	n.ping, err = n.AwaitPing(ctx, segment.Inner())
	return err
}
