package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"wgsteer/internal/config"
	"wgsteer/internal/lab"
	"wgsteer/internal/peer"
)

// The mesh.
const (
	centralName = "central"
	nodeCount   = 12
)

// gateways are the workers, by their host names. Their weights are in the config.
func gateways() []string { return []string{"gw1", "gw2", "gw3"} }

// vniOf is the VNI of the domain with that index.
func vniOf(domain int) uint32 { return uint32(101 + domain) }

// atOnce is how many nodes do something at the same time: a machine with two cores
// runs a userspace WireGuard for each.
const atOnce = 4

// demo is one run.
type demo struct {
	lab      *lab.Lab
	programs programs
	began    time.Time

	mu  sync.Mutex // guards out
	out io.Writer

	cfg      *config.Config
	central  *lab.Host
	gateways []*gateway
	nodes    []*node
}

// gateway is a gateway host with one segment for each domain, in the config's order.
type gateway struct {
	*lab.Host
	segments []*lab.Gateway
}

// say prints a line of progress.
func (d *demo) say(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	fmt.Fprintf(d.out, "%5.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

// run shows the mesh. The error says that something did not work.
func (d *demo) run(ctx context.Context) error {
	var err error
	if d.cfg, err = readConfig(); err != nil {
		return err
	}
	for _, step := range []func(context.Context) error{
		d.makeHosts, d.startServer, d.startAgents, d.awaitOffers, d.connectNodes,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return d.report()
}

// makeHosts makes the central host, the gateways and the nodes.
func (d *demo) makeHosts(ctx context.Context) (err error) {
	if d.central, err = d.lab.Host(ctx, centralName); err != nil {
		return err
	}
	kind := "userspace"
	if d.lab.KernelWireGuard() {
		kind = "kernel"
	}
	d.say("a switch, and the host %s at %s (WireGuard: %s)", centralName, d.central.Addr(), kind)
	for _, name := range gateways() {
		g, err := d.makeGateway(ctx, name)
		if err != nil {
			return err
		}
		d.gateways = append(d.gateways, g)
		d.say("gateway %s at %s, weight %d, with %s", name, g.Addr(), d.cfg.Weight(name), d.interfaces())
	}
	return d.makeNodes(ctx)
}

func (d *demo) makeGateway(ctx context.Context, name string) (*gateway, error) {
	host, err := d.lab.Host(ctx, name)
	if err != nil {
		return nil, err
	}
	g := &gateway{Host: host}
	for i, domain := range d.cfg.Domains {
		segment, err := host.Gateway(ctx, lab.Segment{
			WireGuard: domain.WireGuard, VXLAN: domain.VXLAN, VNI: vniOf(i), Scheme: peer.WGKex,
		})
		if err != nil {
			return nil, err
		}
		g.segments = append(g.segments, segment)
	}
	return g, nil
}

// interfaces are the names of a gateway's interfaces.
func (d *demo) interfaces() string {
	var names string
	for i, domain := range d.cfg.Domains {
		if i > 0 {
			names += ", "
		}
		names += domain.WireGuard + " and " + domain.VXLAN
	}
	return names
}

func (d *demo) makeNodes(ctx context.Context) error {
	d.nodes = make([]*node, nodeCount)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range d.nodes {
		group.Go(func() (err error) {
			d.nodes[i], err = d.makeNode(ctx, i)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	d.say("%d nodes, each with a key and an interface, and no tunnel yet", nodeCount)
	return nil
}

func (d *demo) startServer(ctx context.Context) error {
	path, err := install(d.programs.server, d.central, d.central)
	if err != nil {
		return err
	}
	if _, err := d.central.Start(ctx, d.programs.server, "--config", path); err != nil {
		return err
	}
	return nil
}

// startAgents starts them before the server is known to listen, as at boot.
func (d *demo) startAgents(ctx context.Context) error {
	for _, g := range d.gateways {
		path, err := install(d.programs.agent, g.Host, d.central)
		if err != nil {
			return err
		}
		if _, err := g.Start(ctx, d.programs.agent, "--config", path); err != nil {
			return err
		}
	}
	d.say("started wgsteer-server on %s, and wgsteer-agent on every gateway", centralName)
	return nil
}

// offersWithin is how long the agents may take to offer all their domains.
const offersWithin = 30 * time.Second

// awaitOffers waits until every worker offers every domain. Without that the first
// nodes would be shared among those who do.
func (d *demo) awaitOffers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, offersWithin)
	defer cancel()
	o := watch(ctx, d.central, d.cfg.MQTT)
	defer o.stop()
	var domains []string
	for _, domain := range d.cfg.Domains {
		domains = append(domains, domain.Name)
	}
	err := lab.Eventually(ctx, func() error {
		if err := d.stillRunning(); err != nil {
			cancel() // no use in waiting
			return err
		}
		return o.missing(gateways(), domains)
	})
	if err != nil {
		return fmt.Errorf("wait for the gateways' offers: %w", err)
	}
	d.say("every gateway offers every domain")
	return nil
}

// stillRunning is an error when a program has ended.
func (d *demo) stillRunning() error {
	for _, p := range d.lab.Programs() {
		select {
		case <-p.Done():
			return cmp.Or(p.Err(), fmt.Errorf("%v has ended", p))
		default:
		}
	}
	return nil
}

// serverURL is where nodes reach the server.
func (d *demo) serverURL() string {
	_, port, _ := net.SplitHostPort(d.cfg.Server.HTTPListen)
	return "http://" + net.JoinHostPort(d.central.Addr().String(), port)
}

// workerOf returns the gateway, and its segment, that an endpoint of the domain is.
func (d *demo) workerOf(endpoint lab.Endpoint, domain int) (*gateway, *lab.Gateway, error) {
	i := slices.IndexFunc(d.gateways, func(g *gateway) bool {
		return g.segments[domain].WireGuard().Key().String() == endpoint.PublicKey
	})
	if i < 0 {
		return nil, nil, fmt.Errorf("no gateway has the key of the endpoint %+v", endpoint)
	}
	return d.gateways[i], d.gateways[i].segments[domain], nil
}
