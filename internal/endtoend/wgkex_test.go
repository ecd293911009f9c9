package endtoend_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wgsteer/internal/lab"
)

// startPythonWorker does over MQTT what wgkex's worker does on a gateway host: one
// session with a will that hears keys, and its reports. Nothing applies the keys.
func (m *mesh) startPythonWorker(g *gateway) *lab.Program {
	m.t.Helper()
	name := g.Name()
	status := "wireguard-worker/" + name + "/status"
	session := m.subscribe(g.Host, name, "-k", "5", "-q", "0", "-t", "wireguard/ffmuc_welt/+", "-t", "wireguard/ffmuc_city/+",
		"--will-topic", status, "--will-payload", "0", "--will-qos", "1", "--will-retain")
	for _, d := range []domain{welt, city} {
		m.publish(g.Host, "wireguard-worker/"+name+"/"+d.name+"/data", dataOf(g.segments[d.name]), "-r")
	}
	m.publish(g.Host, status, "1", "-r")
	for _, d := range []domain{welt, city} {
		m.publish(g.Host, "wireguard-metrics/"+d.name+"/"+name+"/connected_peers", "0", "-r", "-q", "0")
	}
	return session
}

// The server and one gateway are wgsteer's, the other gateway still runs wgkex.
func TestAPythonWorkerBesideOurAgentGetsItsShare(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "mosquitto_pub")
	gw1, py1 := m.gateway("gw1", welt, city), m.gateway("py1", welt, city)
	m.startServer()
	gw1.startAgent()
	ear := m.listen()
	m.eventually(ear.offers(gw1))
	worker := m.startPythonWorker(py1)
	m.eventually(ear.offers(py1))

	sent := make(map[string]int)
	for i := range 3 {
		n := m.node(fmt.Sprintf("node%d", i+1))
		to := m.ask(n, welt)
		sent[to.Name()]++
		m.eventually(logged(worker, fmt.Sprintf("wireguard/ffmuc_welt/all %v", n.Key())))
		check(t, py1.segments[welt.name].AddNode(m.ctx, n.Key()))
		m.connect(n, to, welt)
	}
	if diff := cmp.Diff(map[string]int{"gw1": 2, "py1": 1}, sent); diff != "" {
		t.Errorf("nodes sent to the gateways, by their weights (-want +got):\n%s", diff)
	}

	check(t, worker.Kill())
	m.within(promptly, m.retained("wireguard-worker/py1/status", "0"))
	check(t, m.choices(welt, newKeys(4), map[string]int{"gw1": 4})())
	check(t, m.lacks()())

	// gw1 was sent six nodes, and has twice the weight.
	m.startPythonWorker(py1)
	check(t, m.choices(welt, newKeys(3), map[string]int{"py1": 3})())
}

// startPythonBroker does over MQTT what a central host with wgkex does, but for the
// keys, which a test publishes itself.
func (m *mesh) startPythonBroker() *lab.Program {
	m.t.Helper()
	folder := m.central.Folder()
	accounts, config := filepath.Join(folder, "accounts"), filepath.Join(folder, "mosquitto.conf")
	m.run(m.central, "mosquitto_passwd", "-b", "-c", accounts, username, m.password)
	text := fmt.Sprintf("listener 1883\nallow_anonymous false\npassword_file %s\nuser root\n", accounts)
	check(m.t, os.WriteFile(config, []byte(text), 0o644))
	return m.start(m.central, "mosquitto", "-c", config)
}

// One gateway is wgsteer's, the central host still runs wgkex.
func TestOurAgentServesAPythonBroker(t *testing.T) {
	t.Parallel()
	m := newMesh(t, "mosquitto", "mosquitto_passwd", "mosquitto_pub")
	m.agent = "  report_interval: 1s\n"
	gw1 := m.gateway("gw1", welt, city)
	agent := gw1.startAgent()
	broker := m.startPythonBroker()
	ear := m.listen()
	m.eventually(ear.offers(gw1))

	// The client id is the worker's name, the session clean, and the keepalive the config's.
	m.eventually(logged(broker, "as gw1 (p2, c1, k5, u'mesh')"))
	for topic, payload := range map[string]string{
		"wireguard-worker/gw1/status":                      "1",
		"wireguard-worker/gw1/ffmuc_welt/data":             dataOf(gw1.segments[welt.name]),
		"wireguard-worker/gw1/ffmuc_city/data":             dataOf(gw1.segments[city.name]),
		"wireguard-metrics/ffmuc_welt/gw1/connected_peers": "0",
		"wireguard-metrics/ffmuc_city/gw1/connected_peers": "0",
	} {
		check(t, m.retained(topic, payload)())
	}

	n, keys := m.node("node1"), newKeys(3)
	m.publish(m.central, "wireguard/ffmuc_welt/gw2", keys[0].String(), "-q", "0")
	m.publish(m.central, "wireguard/ffmuc_welt/gw1", keys[1].String(), "-q", "0")
	m.publish(m.central, "wireguard/ffmuc_city/all", keys[2].String(), "-q", "0")
	m.publish(m.central, "wireguard/ffmuc_welt/all", n.Key().String(), "-q", "0")
	m.eventually(all(gw1.applied(welt, keys[1], n.Key()), gw1.applied(city, keys[2])))
	check(t, all(gw1.gone(welt, keys[0], keys[2]), gw1.gone(city, keys[0], keys[1], n.Key()))())
	m.connect(n, gw1, welt)
	m.eventually(m.retained("wireguard-metrics/ffmuc_welt/gw1/connected_peers", "1"))
	check(t, m.retained("wireguard-metrics/ffmuc_city/gw1/connected_peers", "0")())

	check(t, agent.Kill())
	m.within(promptly, m.retained("wireguard-worker/gw1/status", "0"))
	agent = gw1.startAgent()
	m.eventually(m.retained("wireguard-worker/gw1/status", "1"))

	pings := m.ping(n, gw1, welt)
	check(t, agent.Stop(m.ctx))
	for topic, payload := range map[string]string{
		"wireguard-worker/gw1/status":                      "0",
		"wireguard-metrics/ffmuc_welt/gw1/connected_peers": "-1",
		"wireguard-metrics/ffmuc_city/gw1/connected_peers": "-1",
	} {
		check(t, m.retained(topic, payload)())
	}
	heard := ear.heard()
	last := heard[max(0, len(heard)-3):]
	slices.Sort(last[:len(last)-1]) // the domains in any order, and then the status
	if diff := cmp.Diff([]string{
		"wireguard-metrics/ffmuc_city/gw1/connected_peers -1",
		"wireguard-metrics/ffmuc_welt/gw1/connected_peers -1",
		"wireguard-worker/gw1/status 0",
	}, last); diff != "" {
		t.Errorf("last words (-want +got):\n%s", diff)
	}
	check(t, gw1.applied(welt, keys[1], n.Key())())
	pings.lostNone()

	// wgkex knows these topics, and fails at others below wireguard-metrics.
	for _, line := range ear.heard() {
		topic, _, _ := strings.Cut(line, " ")
		if levels := strings.Split(topic, "/"); levels[0] != "wgsteer" && !known(levels) {
			t.Errorf("something was published on %s", topic)
		}
	}
}

// known tells whether wgkex knows a topic, by its levels.
func known(levels []string) bool {
	switch {
	case levels[0] == "wireguard", levels[0] == "wireguard-worker":
		return len(levels) == 3 || levels[0] == "wireguard-worker" && len(levels) == 4 && levels[3] == "data"
	case levels[0] == "wireguard-metrics":
		return len(levels) == 4 && levels[3] == "connected_peers"
	}
	return false
}
