package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"wgsteer/internal/peer"
)

// The interfaces of a node, as Gluon names them.
const (
	nodeWireGuard = "wg_mesh"
	nodeVXLAN     = "mesh-vpn"
)

// UserAgent is what a node says of itself in its requests.
const UserAgent = "gluon/v2023.2 (tplink,archer-c7-v2) OpenWrt/23.05.3 (kernel/5.15.150; ath79/generic) firmware/v2024.3"

// Node is a host that does what a Gluon node does: it asks a server for a gateway,
// and connects to it.
type Node struct {
	*Host
	scheme peer.Scheme
	wg     *WireGuard
}

// Node makes the host a node with a new key, not connected to anything.
func (h *Host) Node(ctx context.Context, scheme peer.Scheme) (*Node, error) {
	wg, err := h.WireGuard(ctx, nodeWireGuard)
	if err != nil {
		return nil, err
	}
	n := &Node{Host: h, scheme: scheme, wg: wg}
	// Gluon's /64 makes the route to the gateway's link address.
	return n, wg.Up(ctx, netip.PrefixFrom(n.LinkAddress(), 64))
}

// Key returns the node's public key.
func (n *Node) Key() peer.Key { return n.wg.Key() }

// WireGuard returns the node's WireGuard interface.
func (n *Node) WireGuard() *WireGuard { return n.wg }

// LinkAddress returns the node's link address.
func (n *Node) LinkAddress() netip.Addr { return n.scheme.LinkAddress(n.wg.Key()) }

// maxAnswer bounds the answer that a node reads, in bytes.
const maxAnswer = 1 << 16

// Post sends the node's key to the server at base, like http://10.77.0.1:5000, as
// OpenWrt's wget does: JSON that is declared to be a form. version is "v1" or "v2".
// It returns the answer's status and body.
func (n *Node) Post(ctx context.Context, base, version, domain string) (status int, body []byte, err error) {
	request, err := json.Marshal(map[string]string{"domain": domain, "public_key": n.Key().String()})
	if err != nil {
		return 0, nil, fmt.Errorf("exchange of node %s: %w", n.Name(), err)
	}
	url := base + "/api/" + version + "/wg/key/exchange"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(string(request)))
	if err != nil {
		return 0, nil, fmt.Errorf("exchange of node %s: %w", n.Name(), err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("User-Agent", UserAgent)
	resp, err := n.Client().Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("exchange of node %s: %w", n.Name(), err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, nil, fmt.Errorf("exchange of node %s: read the answer: %w", n.Name(), err)
	}
	return resp.StatusCode, body, nil
}

// Exchange asks the server at base for a gateway, by the second version of its API.
func (n *Node) Exchange(ctx context.Context, base, domain string) (Endpoint, error) {
	status, body, err := n.Post(ctx, base, "v2", domain)
	if err != nil {
		return Endpoint{}, err
	}
	var answer struct{ Endpoint Endpoint }
	if status == http.StatusOK {
		err = json.Unmarshal(body, &answer)
	} else {
		err = fmt.Errorf("status %d", status)
	}
	if err != nil {
		return Endpoint{}, fmt.Errorf("exchange of node %s: %w: %s", n.Name(), err, body)
	}
	return answer.Endpoint, nil
}

// Connect configures the tunnel to a gateway as a node does, in place of the one it
// had. It does not wait for a handshake.
func (n *Node) Connect(ctx context.Context, to Endpoint, vni uint32) error {
	gateway, err := to.LinkAddress()
	if err != nil {
		return fmt.Errorf("connect node %s: %w", n.Name(), err)
	}
	if err := n.Disconnect(ctx); err != nil {
		return err
	}
	if err := n.wg.Set(ctx, "peer", to.PublicKey, "persistent-keepalive", "25",
		"allowed-ips", gateway.String()+"/128", "endpoint", to.HostPort()); err != nil {
		return err
	}
	_, err = n.VXLAN(ctx, VXLAN{
		Name: nodeVXLAN, WireGuard: nodeWireGuard, VNI: vni, Local: n.LinkAddress(), Remote: gateway,
	})
	return err
}

// Disconnect takes the tunnel down, if there is one. The key stays.
func (n *Node) Disconnect(ctx context.Context) error {
	keys, err := n.wg.Peers(ctx)
	if err != nil || len(keys) == 0 {
		return err
	}
	for _, key := range keys {
		if err := n.wg.Set(ctx, "peer", key.String(), "remove"); err != nil {
			return err
		}
	}
	return ipBatch(ctx, n.namespace(), "link del "+nodeVXLAN)
}

// AwaitHandshake waits for the first handshake with the gateway.
func (n *Node) AwaitHandshake(ctx context.Context, gateway peer.Key) error {
	return Eventually(ctx, func() error {
		last, err := n.wg.Handshake(ctx, gateway)
		if err == nil && last.IsZero() {
			err = fmt.Errorf("node %s has had no handshake with gateway %v", n.Name(), gateway)
		}
		return err
	})
}

// AwaitPing pings an address inside of the tunnel until an answer comes, and returns
// how long that one took.
func (n *Node) AwaitPing(ctx context.Context, inner netip.Addr) (time.Duration, error) {
	var took time.Duration
	err := Eventually(ctx, func() (err error) {
		took, err = n.Ping(ctx, inner)
		return err
	})
	return took, err
}

// pingTime is where ping says how long it took, in milliseconds.
var pingTime = regexp.MustCompile(`time=([0-9.]+ ms)`)

// Ping sends one ping from the host and returns the round-trip time.
func (h *Host) Ping(ctx context.Context, to netip.Addr) (time.Duration, error) {
	out, err := h.Run(ctx, "ping", "-n", "-c", "1", "-W", "1", to.String())
	if err != nil {
		return 0, errors.Join(err, errors.New(strings.TrimSpace(out)))
	}
	match := pingTime.FindStringSubmatch(out)
	if match == nil {
		return 0, fmt.Errorf("ping %s from host %s: no time in: %s", to, h.name, out)
	}
	took, err := time.ParseDuration(strings.ReplaceAll(match[1], " ", ""))
	if err != nil {
		return 0, fmt.Errorf("ping %s from host %s: %w", to, h.name, err)
	}
	return took, nil
}
