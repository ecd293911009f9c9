package chaos

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"wgsteer/internal/lab"
	"wgsteer/internal/peer"
)

// The setting: the central host, three gateways with both domains each, and one node with
// a tunnel to each domain of each gateway.
const (
	gatewayCount = 3
	username     = "chaos"
	password     = "not-a-secret"
)

func domainName(domain int) string { return []string{"chaos_city", "chaos_lake"}[domain] }

func segments() []lab.Segment {
	return []lab.Segment{
		{WireGuard: "wg-city", VXLAN: "vx-city", VNI: 201},
		{WireGuard: "wg-lake", VXLAN: "vx-lake", VNI: 202},
	}
}

func gatewayName(gateway int) string { return fmt.Sprintf("gw%d", gateway+1) }

// mesh is a running mesh.
type mesh struct {
	lab      *lab.Lab
	central  *lab.Host
	outside  *lab.Host // where the client and those who mean harm are
	disk     *disk
	server   *program
	gateways []*gateway
	nodes    []*node
	client   *client
	// slowestStart is the longest that a server took from its start to an answer.
	slowestStart time.Duration
	// fullNoticed counts the full disks that the server has spoken of.
	fullNoticed int
}

func (m *mesh) noteStart(took time.Duration) { m.slowestStart = max(m.slowestStart, took) }

// gateway is a gateway host with its agent.
type gateway struct {
	*lab.Host
	agent    *program
	segments []*lab.Gateway
	foreign  []foreign // by domain
}

func newMesh(t *testing.T, l *lab.Lab) *mesh {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	serverPath, agentPath, err := lab.Build(ctx, t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	m := &mesh{lab: l}
	t.Cleanup(m.stopHelpers)
	if err := m.setUp(ctx, serverPath, agentPath); err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *mesh) setUp(ctx context.Context, serverPath, agentPath string) (err error) {
	if m.central, err = m.lab.Host(ctx, "central"); err != nil {
		return err
	}
	if m.outside, err = m.lab.Host(ctx, "outside"); err != nil {
		return err
	}
	if m.disk, err = newDisk(ctx, m.central); err != nil {
		return err
	}
	config, err := m.writeConfig(m.central)
	if err != nil {
		return err
	}
	m.server = &program{host: m.central, argv: append(m.disk.command(), serverPath, "--config", config)}
	for i := range gatewayCount {
		g, err := m.makeGateway(ctx, i, agentPath)
		if err != nil {
			return err
		}
		m.gateways = append(m.gateways, g)
	}
	if err := m.server.start(ctx); err != nil {
		return err
	}
	for _, g := range m.gateways {
		if err := g.agent.start(ctx); err != nil {
			return err
		}
	}
	m.client = newClient(m)
	return m.connectNodes(ctx)
}

func (m *mesh) makeGateway(ctx context.Context, index int, agentPath string) (*gateway, error) {
	host, err := m.lab.Host(ctx, gatewayName(index))
	if err != nil {
		return nil, err
	}
	g := &gateway{Host: host}
	config, err := m.writeConfig(host)
	if err != nil {
		return nil, err
	}
	g.agent = &program{host: host, argv: []string{agentPath, "--config", config}}
	for _, s := range segments() {
		segment, err := host.Gateway(ctx, s)
		if err != nil {
			return nil, err
		}
		f, err := newForeign(ctx, host, s)
		if err != nil {
			return nil, err
		}
		g.segments, g.foreign = append(g.segments, segment), append(g.foreign, f)
	}
	return g, nil
}

// The keys of nobody live longer than the run: whatever is missing was lost.
const configText = `domains: [chaos_city, chaos_lake]
domain_prefixes: [chaos_]
externalName: %v
mqtt: {broker_url: %v, username: ` + username + `, password: ` + password + `, keepalive: 2}
server: {state_dir: %s}
agent: {report_interval: 2s, unused_after: 24h, stale_after: 24h}
`

func (m *mesh) writeConfig(host *lab.Host) (path string, err error) {
	path = filepath.Join(host.Folder(), "wgsteer.yaml")
	text := fmt.Sprintf(configText, host.Addr(), m.central.Addr(), m.disk.stateDir())
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", fmt.Errorf("config of host %s: %w", host.Name(), err)
	}
	return path, nil
}

// connectNodes makes the nodes and waits until each has a tunnel.
func (m *mesh) connectNodes(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(3)
	m.nodes = make([]*node, gatewayCount*len(segments()))
	for i := range m.nodes {
		at := place{i % gatewayCount, i / gatewayCount}
		group.Go(func() (err error) {
			m.nodes[i], err = m.makeNode(ctx, i, at)
			return err
		})
	}
	return group.Wait()
}

// programs are the programs under test.
func (m *mesh) programs() []*program {
	all := []*program{m.server}
	for _, g := range m.gateways {
		all = append(all, g.agent)
	}
	return all
}

// stillRunning is an error when a program has ended by itself.
func (m *mesh) stillRunning() error {
	for _, p := range m.programs() {
		select {
		case <-p.now.Done():
			return cmp.Or(p.now.Err(), fmt.Errorf("%v has ended", p.now))
		default:
		}
	}
	return nil
}

// finish stops everything and looks for what must not have happened.
func (m *mesh) finish(ctx context.Context) error {
	for _, n := range m.nodes {
		if err := n.awaitSettled(ctx); err != nil {
			return err
		}
	}
	m.client.stop()
	errs := []error{m.client.problem()}
	for _, p := range m.programs() {
		errs = append(errs, p.terminate(ctx))
	}
	for _, p := range m.lab.Programs() {
		errs = append(errs, soundLog(p))
	}
	return errors.Join(errs...)
}

// unsound is what tells of a bug in a log.
var unsound = regexp.MustCompile(`DATA RACE|panic:|fatal error:|level=ERROR`)

// fullDisk is the one error that has to be there.
const fullDisk = `level=ERROR msg="the state cannot be written`

// soundLog is an error when a program's log tells of a bug.
func soundLog(p *lab.Program) error {
	text := strings.ReplaceAll(p.Log(), fullDisk, "")
	if at := unsound.FindStringIndex(text); at != nil {
		return fmt.Errorf("the log of %v says:\n%s", p, text[at[0]:min(at[0]+2000, len(text))])
	}
	return nil
}

// stopHelpers stops what is not under test. The lab stops the rest.
func (m *mesh) stopHelpers() {
	if m.client != nil {
		m.client.stop()
	}
	for _, n := range m.nodes {
		if n != nil {
			n.pings.stop()
		}
	}
	if m.disk != nil {
		m.disk.stop()
	}
}

// explain is the end of all logs that are still written, for a round that failed.
func (m *mesh) explain() string {
	var b strings.Builder
	for _, p := range m.programs() {
		lines := strings.Split(strings.TrimSpace(p.now.Log()), "\n")
		fmt.Fprintf(&b, "== %v\n%s\n", p.now, strings.Join(lines[max(0, len(lines)-15):], "\n"))
	}
	return b.String()
}

// schemeOf is how addresses follow from keys in this mesh.
const schemeOf = peer.WGKex
