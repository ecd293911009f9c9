package endtoend_test

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"wgsteer/internal/lab"
)

func TestTunnelsSurviveARestartOfEitherSide(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	gw1 := m.gateway("gw1", welt, city)
	server, agent := m.startServer(), gw1.startAgent()
	m.eventually(m.lacks())
	n, spare := m.node("node1"), newKeys(2)
	check(t, m.choices(welt, spare, map[string]int{"gw1": 2})())
	m.ask(n, welt)
	m.eventually(gw1.applied(welt, append(spare, n.Key())...))
	m.connect(n, gw1, welt)
	pings := m.ping(n, gw1, welt)

	stop := func(p *lab.Program) error { return p.Stop(m.ctx) }
	for _, tt := range []struct {
		name  string
		side  **lab.Program
		end   func(*lab.Program) error
		start func() *lab.Program
	}{
		{"SIGTERM to the server", &server, stop, func() *lab.Program { return m.startServer() }},
		{"kill -9 of the server", &server, (*lab.Program).Kill, func() *lab.Program { return m.startServer() }},
		{"SIGTERM to the agent", &agent, stop, func() *lab.Program { return gw1.startAgent() }},
		{"kill -9 of the agent", &agent, (*lab.Program).Kill, func() *lab.Program { return gw1.startAgent() }},
	} {
		t.Log(tt.name)
		check(t, tt.end(*tt.side))
		check(t, gw1.applied(welt, append(spare, n.Key())...)())
		if tt.side == &agent {
			m.eventually(m.lacks(welt, city))
			// What the next agent finds incomplete.
			m.run(gw1.Host, "ip", "-6", "route", "del", m.scheme.LinkAddress(spare[0]).String(), "dev", welt.WireGuard)
			m.run(gw1.Host, "bridge", "fdb", "del", "00:00:00:00:00:00", "dev", welt.VXLAN,
				"dst", m.scheme.LinkAddress(spare[1]).String(), "via", welt.WireGuard)
		}
		*tt.side = tt.start()
		m.eventually(m.lacks())
		// Neither side waits for the other to be told of a new node.
		key := newKey()
		check(t, m.choices(welt, append(newKeys(1), key), map[string]int{"gw1": 2})())
		m.eventually(gw1.applied(welt, append(spare, n.Key(), key)...))
		pings.lostNone()
	}
}

// Connections of nodes and workers that do nothing, or have gone without a word.
func TestTheServerStopsInTimeWhateverIsConnected(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	gw1 := m.gateway("gw1", welt, city)
	server := m.startServer()
	gw1.startAgent()
	m.eventually(m.lacks())
	m.listen()
	frozen := m.subscribe(gw1.Host, "frozen", "-t", "#")
	m.freeze(frozen)
	for _, open := range []struct{ name, port, sends, answer string }{
		{"HTTP, silent", "5000", "", ""},
		{"HTTP, idle after a request", "5000", "GET /healthz HTTP/1.1\r\nHost: a\r\n\r\n", `{"status":"ok"}`},
		{"HTTP, in the middle of a header", "5000", "POST /api/v2/wg/key/exchange HTT", ""},
		{"HTTP, in the middle of a body", "5000", "POST /api/v2/wg/key/exchange HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n{", ""},
		{"MQTT, silent", "1883", "", ""},
		{"MQTT, in the middle of CONNECT", "1883", "\x10\x20\x00\x04MQTT", ""},
	} {
		conn := must(gw1.DialContext(m.ctx, "tcp", net.JoinHostPort(m.central.Addr().String(), open.port)))(t)
		defer conn.Close()
		_, err := io.WriteString(conn, open.sends)
		check(t, err)
		check(t, conn.SetDeadline(time.Now().Add(patience)))
		for answer := ""; !strings.HasSuffix(answer, open.answer); {
			buffer := make([]byte, 1024)
			n, err := conn.Read(buffer)
			check(t, err)
			answer += string(buffer[:n])
		}
	}

	began := time.Now()
	check(t, server.Stop(m.ctx)) // an error unless it exits with 0
	took := time.Since(began)
	if t.Logf("stopped after %v", took); took > 5*time.Second {
		t.Errorf("the server took %v to stop", took)
	}
	check(t, logged(server, "msg=stopped")())
}
