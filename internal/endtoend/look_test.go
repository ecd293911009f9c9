package endtoend_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"wgsteer/internal/lab"
	"wgsteer/internal/peer"
)

// url is where nodes reach the server.
func (m *mesh) url() string { return "http://" + net.JoinHostPort(m.central.Addr().String(), "5000") }

// get asks the server for a path.
func (m *mesh) get(path string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(m.ctx, http.MethodGet, m.url()+path, nil)
	if err != nil {
		return 0, "", err
	}
	return m.do(request)
}

// exchange asks the server as a node with this key does. version is v1 or v2.
func (m *mesh) exchange(version string, d domain, key peer.Key) (status int, body string, err error) {
	text := fmt.Sprintf(`{"domain": "%s", "public_key": "%v"}`, d.name, key)
	request, err := http.NewRequestWithContext(m.ctx, http.MethodPost,
		m.url()+"/api/"+version+"/wg/key/exchange", strings.NewReader(text))
	if err != nil {
		return 0, "", err
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return m.do(request)
}

func (m *mesh) do(request *http.Request) (status int, body string, err error) {
	response, err := m.central.Client().Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// lacks returns an attempt that succeeds when the server says that no worker offers
// these domains, and that others are served.
func (m *mesh) lacks(domains ...domain) func() error {
	wantStatus, quoted := http.StatusOK, []string{}
	for _, d := range domains {
		wantStatus, quoted = http.StatusServiceUnavailable, append(quoted, strconv.Quote(d.name))
	}
	slices.Sort(quoted)
	want := `{"domains_without_worker":[` + strings.Join(quoted, ",") + `]}`
	return func() error {
		status, body, err := m.get("/readyz")
		if err == nil && (status != wantStatus || body != want) {
			err = fmt.Errorf("readyz answers %d %s, want %d %s", status, body, wantStatus, want)
		}
		return err
	}
}

// chosen returns the name of the gateway that a node with this key is sent to.
func (m *mesh) chosen(d domain, key peer.Key) (string, error) {
	status, body, err := m.exchange("v2", d, key)
	if err != nil {
		return "", err
	}
	if status == http.StatusOK {
		return m.named(d, body)
	}
	return "", fmt.Errorf("the exchange answers %d %s", status, body)
}

// named returns the name of the gateway that the body of an answer is about, to the byte.
func (m *mesh) named(d domain, body string) (string, error) {
	for _, g := range m.gateways {
		if segment := g.segments[d.name]; segment != nil && body == answerOf(segment) {
			return g.Name(), nil
		}
	}
	return "", fmt.Errorf("the exchange answers what fits no gateway: %s", body)
}

// ask makes the node do an exchange of the second version, and returns the gateway that
// it is sent to.
func (m *mesh) ask(n *lab.Node, d domain) *gateway {
	m.t.Helper()
	status, body, err := n.Post(m.ctx, m.url(), "v2", d.name)
	check(m.t, err)
	if status != http.StatusOK {
		m.t.Fatalf("%s: the exchange answers %d %s", n.Name(), status, body)
	}
	name := must(m.named(d, string(body)))(m.t)
	return m.gateways[slices.IndexFunc(m.gateways, func(g *gateway) bool { return g.Name() == name })]
}

// answerOf is the answer that sends nodes to a gateway.
func answerOf(segment *lab.Gateway) string {
	e := segment.Endpoint()
	return fmt.Sprintf(`{"Endpoint":{"Address":"%s","Port":"%s","AllowedIPs":["%v"],"PublicKey":"%s"}}`,
		e.Address, e.Port, segment.LinkAddress(), e.PublicKey)
}

// dataOf is the payload by which a gateway says how nodes reach it.
func dataOf(segment *lab.Gateway) string {
	e := segment.Endpoint()
	return fmt.Sprintf(`{"ExternalAddress":"%s","Port":%s,"PublicKey":"%s","LinkAddress":"%v"}`,
		e.Address, e.Port, e.PublicKey, segment.LinkAddress())
}

// choices returns an attempt that asks with all the keys, one after the other, and
// succeeds when every gateway gets so many of them.
func (m *mesh) choices(d domain, keys []peer.Key, want map[string]int) func() error {
	return func() error {
		got := make(map[string]int)
		for _, key := range keys {
			name, err := m.chosen(d, key)
			if err != nil {
				return err
			}
			got[name]++
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("nodes are sent to %v, want %v", got, want)
		}
		return nil
	}
}

// applied returns an attempt that succeeds when the gateway has all that belongs to the
// keys: for each its peer, its route and its FDB entry.
func (g *gateway) applied(d domain, keys ...peer.Key) func() error {
	looks := map[string][]string{}
	for _, key := range keys {
		address := g.mesh.scheme.LinkAddress(key)
		for command, want := range map[string]string{
			"wg show " + d.WireGuard + " allowed-ips":       fmt.Sprintf("%v\t%v/128", key, address),
			"ip -6 route show proto 119 dev " + d.WireGuard: fmt.Sprintf("%v metric 1024 pref medium", address),
			"bridge fdb show dev " + d.VXLAN:                fmt.Sprintf("00:00:00:00:00:00 dst %v via %s self permanent", address, d.WireGuard),
		} {
			looks[command] = append(looks[command], want)
		}
	}
	return func() error {
		for command, want := range looks {
			lines, err := g.lines(command)
			if err != nil {
				return err
			}
			for _, line := range want {
				if _, found := slices.BinarySearch(lines, line); !found {
					return fmt.Errorf("%s, on host %s: no line %q in %q", command, g.Name(), line, lines)
				}
			}
		}
		return nil
	}
}

// gone returns an attempt that succeeds when the gateway has nothing that belongs to the keys.
func (g *gateway) gone(d domain, keys ...peer.Key) func() error {
	return func() error {
		for _, command := range []string{
			"wg show " + d.WireGuard + " allowed-ips", "ip -6 route show dev " + d.WireGuard, "bridge fdb show dev " + d.VXLAN,
		} {
			lines, err := g.lines(command)
			if err != nil {
				return err
			}
			// What the VXLAN interface has learned from packets is not the agent's.
			text := strings.Join(slices.DeleteFunc(lines, func(line string) bool { return strings.HasSuffix(line, " self") }), "\n")
			for _, key := range keys {
				address := g.mesh.scheme.LinkAddress(key).String()
				if strings.Contains(text, address) || strings.Contains(text, key.String()) {
					return fmt.Errorf("%s, on host %s: still about %s:\n%s", command, g.Name(), address, text)
				}
			}
		}
		return nil
	}
}

// lines runs a command on the gateway and returns the lines that it writes, sorted and
// without space at their ends.
func (g *gateway) lines(command string) ([]string, error) {
	words := strings.Fields(command)
	out, err := g.Run(g.mesh.ctx, words[0], words[1:]...)
	if err != nil {
		return nil, err
	}
	lines := linesOf(out)
	slices.Sort(lines)
	return lines, nil
}

func linesOf(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		lines = append(lines, strings.TrimSpace(line))
	}
	return lines
}

// logged returns an attempt that succeeds when each of the texts is in exactly one line
// of the program's log.
func logged(p *lab.Program, texts ...string) func() error {
	return func() error {
		lines := linesOf(p.Log())
		for _, text := range texts {
			found := 0
			for _, line := range lines {
				if strings.Contains(line, text) {
					found++
				}
			}
			if found != 1 {
				return fmt.Errorf("%q is in %d lines of the log of %v", text, found, p)
			}
		}
		return nil
	}
}

// ear is mosquitto_sub, which hears what is published: a client like any other.
type ear struct {
	mesh *mesh
	*lab.Program
}

// account are mosquitto_sub's and mosquitto_pub's flags to reach the MQTT server.
func (m *mesh) account() []string {
	return []string{"-h", m.central.Addr().String(), "-u", username, "-P", m.password}
}

// listen starts an ear for everything, as soon as the MQTT server listens.
func (m *mesh) listen() *ear {
	m.t.Helper()
	m.eventually(func() error {
		conn, err := m.central.DialContext(m.ctx, "tcp", net.JoinHostPort(m.central.Addr().String(), "1883"))
		if err != nil {
			return err
		}
		return conn.Close()
	})
	return &ear{m, m.subscribe(m.central, "ear", "-q", "1", "-t", "#")}
}

// subscribe starts mosquitto_sub as a client of this id and returns when it is
// subscribed. Among other things it logs "topic payload" of what it gets.
func (m *mesh) subscribe(h *lab.Host, id string, flags ...string) *lab.Program {
	m.t.Helper()
	// stdbuf: without it, it would say only at its end that it is subscribed.
	args := append([]string{"-oL", "mosquitto_sub", "-d", "-F", "%t %p", "-i", id}, append(m.account(), flags...)...)
	p := m.startUntilKilled(h, "stdbuf", args...)
	m.eventually(logged(p, "Subscribed (mid: "))
	return p
}

// heard returns "topic payload" of all that was published, in order, and before that of
// what was retained.
func (e *ear) heard() []string {
	return slices.DeleteFunc(linesOf(e.Log()), func(line string) bool {
		return strings.HasPrefix(line, "Client ear ") || strings.HasPrefix(line, "Subscribed ")
	})
}

// says returns an attempt that succeeds when the last payload on the topic is this one.
func (e *ear) says(topic, payload string) func() error {
	return func() error {
		last := ""
		for _, line := range e.heard() {
			if strings.HasPrefix(line, topic+" ") {
				last = line
			}
		}
		if last != topic+" "+payload {
			return fmt.Errorf("last on topic %s: %q, want %q", topic, last, payload)
		}
		return nil
	}
}

// offers returns an attempt that succeeds when the gateway offers all its domains and has
// no peer that is connected.
func (e *ear) offers(g *gateway) func() error {
	attempts := []func() error{e.says("wireguard-worker/"+g.Name()+"/status", "1")}
	for _, d := range []domain{welt, city} {
		if segment := g.segments[d.name]; segment != nil {
			attempts = append(attempts,
				e.says("wireguard-worker/"+g.Name()+"/"+d.name+"/data", dataOf(segment)),
				e.says("wireguard-metrics/"+d.name+"/"+g.Name()+"/connected_peers", "0"))
		}
	}
	return all(attempts...)
}

// publish publishes with mosquitto_pub.
func (m *mesh) publish(h *lab.Host, topic, payload string, flags ...string) {
	m.t.Helper()
	m.run(h, "mosquitto_pub", append(append(m.account(), flags...), "-q", "1", "-t", topic, "-m", payload)...)
}

// retained returns an attempt that succeeds when this is retained on the topic, to the byte.
func (m *mesh) retained(topic, payload string) func() error {
	return func() error {
		args := append(m.account(), "--retained-only", "-C", "1", "-W", "1", "-N", "-t", topic)
		got, err := m.central.Run(m.ctx, "mosquitto_sub", args...)
		if err != nil {
			return fmt.Errorf("%s: nothing is retained: %w", topic, err)
		}
		if got != payload {
			return fmt.Errorf("%s: %q is retained, want %q", topic, got, payload)
		}
		return nil
	}
}

// pings is a program that pings through a tunnel, ten times a second.
type pings struct {
	mesh *mesh
	path string // of what it writes, which is too much for the lab's logs
}

// ping begins to ping from the node through its tunnel to the gateway.
func (m *mesh) ping(n *lab.Node, g *gateway, d domain) *pings {
	m.t.Helper()
	p := &pings{m, filepath.Join(n.Folder(), "ping.txt")}
	file := must(os.Create(p.path))(m.t)
	defer file.Close()
	cmd := n.Command(context.WithoutCancel(m.ctx), "ping", "-n", "-i", "0.1", g.segments[d.name].Inner().String())
	cmd.Stdout, cmd.Stderr = file, file
	check(m.t, cmd.Start())
	m.t.Cleanup(func() {
		check(m.t, cmd.Process.Kill())
		_ = cmd.Wait() // the error is that it was killed
	})
	return p
}

var pingNumber = regexp.MustCompile(`icmp_seq=(\d+) ttl`)

// answered returns the numbers of the pings that were answered.
func (p *pings) answered() []int {
	p.mesh.t.Helper()
	text := must(os.ReadFile(p.path))(p.mesh.t)
	var numbers []int
	for _, match := range pingNumber.FindAllSubmatch(text, -1) {
		number, _ := strconv.Atoi(string(match[1]))
		numbers = append(numbers, number)
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// lostNone fails the test unless pings are still answered, and all so far were.
func (p *pings) lostNone() {
	p.mesh.t.Helper()
	before := len(p.answered())
	p.mesh.eventually(func() error {
		if len(p.answered()) < before+3 {
			return errors.New("pings are no longer answered")
		}
		return nil
	})
	answered := p.answered()
	if last := answered[len(answered)-1]; last != len(answered) {
		p.mesh.t.Errorf("%d of %d pings were lost", last-len(answered), last)
	}
}

// freeze stops a program where it is; its connections stay open. It is left to be killed.
func (m *mesh) freeze(p *lab.Program) {
	m.t.Helper()
	check(m.t, p.Signal(syscall.SIGSTOP))
	m.t.Cleanup(func() { check(m.t, p.Kill()) })
}
