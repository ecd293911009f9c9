package uplink

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"wgsteer/agent/internal/gateway"
	"wgsteer/internal/peer"
	"wgsteer/internal/report"
	"wgsteer/topics"
)

func TestMain(m *testing.M) {
	certificate, trusted, err := newCertificate()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	serverCertificate = certificate
	defer os.RemoveAll(trusted)
	goleak.VerifyTestMain(m)
}

// serverCertificate is a certificate for 127.0.0.1 that this process trusts.
var serverCertificate tls.Certificate

// newCertificate makes a certificate and has the process trust it, and no other, from
// the first TLS connection on.
func newCertificate() (certificate tls.Certificate, folder string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return certificate, "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return certificate, "", err
	}
	if folder, err = os.MkdirTemp("", "uplink"); err != nil {
		return certificate, "", err
	}
	path := filepath.Join(folder, "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return certificate, "", err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, folder, os.Setenv("SSL_CERT_FILE", path)
}

const (
	welt = "ffmuc_welt"

	subscribed = "subscribe wgsteer/ffmuc_city/gw1/evict q1 wgsteer/ffmuc_welt/gw1/evict q1" +
		" wireguard/ffmuc_city/all q1 wireguard/ffmuc_city/gw1 q1 wireguard/ffmuc_welt/all q1 wireguard/ffmuc_welt/gw1 q1"
	online  = "wireguard-worker/gw1/status 1 q1 retain"
	offline = "wireguard-worker/gw1/status 0 q1 retain"
	noCity  = "wireguard-metrics/ffmuc_city/gw1/connected_peers -1 q1 retain"
	noWelt  = "wireguard-metrics/ffmuc_welt/gw1/connected_peers -1 q1 retain"
)

func weltReport(connected int, port uint16) gateway.Report {
	return gateway.Report{
		Offered: true, Connected: connected, Counted: time.Now(),
		Data: report.Data{
			ExternalAddress: "gw04.ext.ffmuc.net", Port: port, PublicKey: aKey(1), LinkAddress: netip.MustParseAddr("fe80::1"),
		},
	}
}

func weltData(port int) string {
	return fmt.Sprintf(`wireguard-worker/gw1/ffmuc_welt/data {"ExternalAddress":"gw04.ext.ffmuc.net","Port":%d,"PublicKey":"%v","LinkAddress":"fe80::1"} q1 retain`,
		port, aKey(1))
}

func weltPeers(n int) string {
	return fmt.Sprintf("wireguard-metrics/ffmuc_welt/gw1/connected_peers %d q0 retain", n)
}

func aKey(n byte) peer.Key { return peer.Key{31: n} }

func TestItSubscribesBeforeItReportsAndIsOnlineLast(t *testing.T) {
	b, g := startBroker(t, "", nil), newFakeGateway()
	g.set(welt, weltReport(3, 40011))
	u := start(t, uplinkTo(t, b.addr), g)
	eventually(t, func() error { return b.saw(online, 0) })
	want := []string{subscribed, weltData(40011), weltPeers(3), noCity, online}
	if diff := cmp.Diff(want, b.history()); diff != "" {
		t.Errorf("seen (-want +got):\n%s", diff)
	}
	if err := u.log.says("connected to the MQTT server", 1); err != nil {
		t.Error(err)
	}
}

func TestItLogsInAsTheConfigSaysWithAWill(t *testing.T) {
	b := startBroker(t, "", nil)
	start(t, uplinkTo(t, b.addr), newFakeGateway())
	eventually(t, func() error { return b.saw(online, 0) })
	c := b.connects[0].Connect
	got := fmt.Sprintf("%s %s:%s keepalive %d clean %v will %s %s q%d retain %v", c.ClientIdentifier, c.Username, c.Password,
		c.Keepalive, c.Clean, c.WillTopic, c.WillPayload, c.WillQos, c.WillRetain)
	want := "gw1 user:SECRET keepalive 5 clean true will wireguard-worker/gw1/status 0 q1 retain true"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestKeysReachTheGateway(t *testing.T) {
	b, g := startBroker(t, "", nil), newFakeGateway()
	u := start(t, uplinkTo(t, b.addr), g)
	eventually(t, func() error { return b.saw(online, 0) })
	b.publish(t, "wireguard/ffmuc_welt/all", aKey(1).String())
	b.publish(t, "wireguard/ffmuc_welt/gw2", aKey(2).String())
	b.publish(t, "wireguard/ffmuc_nowhere/all", aKey(3).String())
	b.publish(t, "wireguard/ffmuc_welt/all", aKey(4).String()+"\n")
	b.publish(t, "wireguard/ffmuc_welt/all", "")
	b.publish(t, "wireguard/ffmuc_welt/all", peer.Key{}.String())
	b.publish(t, "wireguard/ffmuc_city/gw1", aKey(5).String())
	eventually(t, g.took("session", "ffmuc_welt "+aKey(1).String()+" exchange", "ffmuc_city "+aKey(5).String()+" replay"))
	u.stop()
	for _, text := range []string{"message ignored", "unknown_topics=0 malformed_keys=3 malformed_evictions=0"} {
		if err := u.log.says(text, 1); err != nil {
			t.Error(err)
		}
	}
}

func TestEvictionsReachTheGateway(t *testing.T) {
	b, g := startBroker(t, "", nil), newFakeGateway()
	u := start(t, uplinkTo(t, b.addr), g)
	eventually(t, func() error { return b.saw(online, 0) })
	b.publish(t, "wireguard/ffmuc_welt/all", aKey(1).String())
	b.publish(t, "wgsteer/ffmuc_welt/gw1/evict", aKey(1).String()+"\n"+aKey(2).String())
	b.publish(t, "wgsteer/ffmuc_welt/gw2/evict", aKey(3).String())
	b.publish(t, "wgsteer/ffmuc_nowhere/gw1/evict", aKey(3).String())
	b.publish(t, "wgsteer/ffmuc_welt/gw1/evict", aKey(3).String()+"\n")
	b.publish(t, "wgsteer/ffmuc_welt/gw1/evict", "-"+aKey(3).String())
	b.publish(t, "wgsteer/ffmuc_welt/gw1/evict", strings.Repeat(aKey(3).String()+"\n", report.MaxHandshakes)+aKey(3).String())
	b.publish(t, "wgsteer/ffmuc_city/gw1/evict", aKey(4).String())
	b.publish(t, "wireguard/ffmuc_welt/gw1", aKey(1).String())
	eventually(t, g.took("session",
		"ffmuc_welt "+aKey(1).String()+" exchange", "ffmuc_welt "+aKey(1).String()+" evict", "ffmuc_welt "+aKey(2).String()+" evict",
		"ffmuc_city "+aKey(4).String()+" evict", "ffmuc_welt "+aKey(1).String()+" replay"))
	u.stop()
	for _, text := range []string{"message ignored", "unknown_topics=0 malformed_keys=0 malformed_evictions=3"} {
		if err := u.log.says(text, 1); err != nil {
			t.Error(err)
		}
	}
}

// What is forgotten at the beginning of a session must not be what came in it.
func TestASessionBeginsBeforeItsFirstKey(t *testing.T) {
	b, g := startBroker(t, "", nil), newFakeGateway()
	b.onSubscribe = func() {
		if err := b.server.Publish("wgsteer/ffmuc_welt/gw1/evict", []byte(aKey(1).String()), false, 1); err != nil {
			t.Error(err)
		}
	}
	start(t, uplinkTo(t, b.addr), g)
	want := []string{"session", "ffmuc_welt " + aKey(1).String() + " evict"}
	eventually(t, g.took(want...))
	client, ok := b.server.Clients.Get("gw1")
	if !ok {
		t.Fatal("no client gw1")
	}
	client.Net.Conn.Close()
	eventually(t, g.took(append(want, want...)...))
}

func TestOnlyWhatChangedIsPublished(t *testing.T) {
	b, g := startBroker(t, "", nil), newFakeGateway()
	g.set(welt, weltReport(0, 40011))
	start(t, uplinkTo(t, b.addr), g)
	eventually(t, func() error { return b.saw(online, 0) })
	again := weltReport(0, 40011)
	other := weltReport(0, 40999)
	other.Counted = again.Counted
	back := weltReport(2, 40999)
	for _, step := range []struct {
		report gateway.Report
		want   []string
	}{
		{again, []string{weltPeers(0)}},
		{other, []string{weltData(40999)}},
		{gateway.Report{Data: back.Data, Counted: back.Counted}, []string{noWelt}},
		{back, []string{weltData(40999), weltPeers(2)}},
	} {
		before := len(b.history())
		g.set(welt, step.report)
		eventually(t, func() error {
			if diff := cmp.Diff(step.want, b.history()[before:]); diff != "" {
				return fmt.Errorf("published (-want +got):\n%s", diff)
			}
			return nil
		})
	}
}

func TestItComesBackWhenTheServerDoes(t *testing.T) {
	b, g := startBroker(t, "", nil), newFakeGateway()
	g.set(welt, weltReport(3, 40011))
	u := start(t, uplinkTo(t, b.addr), g)
	eventually(t, func() error { return b.saw(online, 0) })
	b.close()
	eventually(t, func() error { return u.log.says("lost the connection", 1) })
	b = startBroker(t, b.addr, nil)
	eventually(t, func() error { return b.saw(online, 0) })
	want := []string{subscribed, weltData(40011), weltPeers(3), noCity, online}
	if diff := cmp.Diff(want, b.history()); diff != "" {
		t.Errorf("seen (-want +got):\n%s", diff)
	}
	b.publish(t, "wireguard/ffmuc_welt/all", aKey(1).String())
	eventually(t, g.took("session", "session", "ffmuc_welt "+aKey(1).String()+" exchange"))
	if err := u.log.says("connected to the MQTT server", 2); err != nil {
		t.Error(err)
	}
}

func TestItStartsBeforeTheServerAndSaysSoOnce(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	attempts := make(chan struct{}) // closed after two that failed
	go func() {
		defer close(attempts)
		for range 2 {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
		listener.Close()
	}()
	u := start(t, uplinkTo(t, addr), newFakeGateway())
	<-attempts
	b := startBroker(t, addr, nil)
	eventually(t, func() error { return b.saw(online, 0) })
	for _, text := range []string{"cannot connect to the MQTT server", "connected to the MQTT server"} {
		if err := u.log.says(text, 1); err != nil {
			t.Error(err)
		}
	}
}

func TestAHostThatCannotBeResolvedIsSaidOnceAndStopsAtOnce(t *testing.T) {
	cfg := uplinkTo(t, "127.0.0.1:1")
	cfg.MQTT.Host = "nobody.invalid" // RFC 6761: never resolves
	u := start(t, cfg, newFakeGateway())
	eventually(t, func() error { return u.log.says("cannot connect to the MQTT server", 1) })
	if took := u.stop(); took > time.Second {
		t.Errorf("stopped after %v", took)
	}
	if err := u.log.says("cannot connect to the MQTT server", 1); err != nil {
		t.Error(err)
	}
}

func TestARefusedAccountIsSaidOnceAndTriedAgain(t *testing.T) {
	b := startBroker(t, "", nil)
	b.refuse = true
	u := start(t, uplinkTo(t, b.addr), newFakeGateway())
	eventually(t, func() error { return u.log.says("cannot connect to the MQTT server", 1) })
	b.mu.Lock()
	b.refuse = false
	b.mu.Unlock()
	eventually(t, func() error { return b.saw(online, 0) })
}

func TestItIsNotOnlineWhenItMayNotSubscribe(t *testing.T) {
	b := startBroker(t, "", nil)
	b.forbid = "wireguard/ffmuc_welt/all"
	u := start(t, uplinkTo(t, b.addr), newFakeGateway())
	eventually(t, func() error { return u.log.says("subscribe to keys: the server refuses wireguard/ffmuc_welt/all", 1) })
	if err := b.saw(online, 0); err == nil {
		t.Error("it is online without a subscription")
	}
	b.mu.Lock()
	b.forbid = ""
	b.mu.Unlock()
	eventually(t, func() error { return b.saw(online, 0) })
}

func TestTheWillIsLeftToTheServerWhenTheConnectionBreaks(t *testing.T) {
	b := startBroker(t, "", nil)
	start(t, uplinkTo(t, b.addr), newFakeGateway())
	eventually(t, func() error { return b.saw(online, 0) })
	client, ok := b.server.Clients.Get("gw1")
	if !ok {
		t.Fatal("no client gw1")
	}
	before := len(b.history())
	client.Net.Conn.Close()
	eventually(t, func() error { return b.saw("will "+offline, before) })
	eventually(t, func() error { return b.saw(online, before) })
}

func TestGoodbyeLeavesTheDomainsThenGoesOffline(t *testing.T) {
	b, g := startBroker(t, "", nil), newFakeGateway()
	g.set(welt, weltReport(3, 40011))
	u := start(t, uplinkTo(t, b.addr), g)
	eventually(t, func() error { return b.saw(online, 0) })
	before := len(b.history())
	if took := u.stop(); took > time.Second {
		t.Errorf("goodbye took %v", took)
	}
	eventually(t, func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.gone == 0 {
			return errors.New("it has not disconnected")
		}
		return nil
	})
	if diff := cmp.Diff([]string{noWelt, offline}, b.history()[before:]); diff != "" {
		t.Errorf("last words (-want +got):\n%s", diff)
	}
}

func TestGoodbyeDoesNotWaitForADeadNetwork(t *testing.T) {
	b, g := startBroker(t, "", nil), newFakeGateway()
	g.set(welt, weltReport(3, 40011))
	w := newWire(t, b.addr)
	u := start(t, uplinkTo(t, w.addr), g)
	eventually(t, func() error { return b.saw(online, 0) })
	w.setCut()
	if took := u.stop(); took > 2*time.Second {
		t.Errorf("goodbye took %v", took)
	}
}

func TestStoppingDoesNotWaitForAServerThatIsSilent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	u := start(t, uplinkTo(t, listener.Addr().String()), newFakeGateway())
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if took := u.stop(); took > time.Second {
		t.Errorf("stopped after %v", took)
	}
}

func TestASilentConnectionIsGivenUpWithinOneAndAHalfKeepalives(t *testing.T) {
	b := startBroker(t, "", nil)
	w := newWire(t, b.addr)
	cfg := uplinkTo(t, w.addr)
	cfg.MQTT.Keepalive = 2 * time.Second
	u := start(t, cfg, newFakeGateway())
	eventually(t, func() error { return b.saw(online, 0) })
	w.setCut()
	began := time.Now()
	eventually(t, func() error { return u.log.says("lost the connection", 1) })
	// The half second is for a busy machine.
	if took, limit := time.Since(began), cfg.MQTT.Keepalive*3/2+500*time.Millisecond; took > limit {
		t.Errorf("given up after %v, want %v", took, limit)
	}
}

func TestTLS(t *testing.T) {
	b := startBroker(t, "", &tls.Config{Certificates: []tls.Certificate{serverCertificate}})
	cfg := uplinkTo(t, b.addr)
	cfg.MQTT.TLS = true
	start(t, cfg, newFakeGateway())
	eventually(t, func() error { return b.saw(online, 0) })
}

func TestTLSRefusesACertificateOfAnotherHost(t *testing.T) {
	b := startBroker(t, "", &tls.Config{Certificates: []tls.Certificate{serverCertificate}})
	cfg := uplinkTo(t, b.addr)
	cfg.MQTT.TLS, cfg.MQTT.Host = true, "localhost"
	u := start(t, cfg, newFakeGateway())
	eventually(t, func() error { return u.log.says("certificate is not valid for any names", 1) })
}

func TestANameThatCannotStandInATopicIsAnError(t *testing.T) {
	cfg := uplinkTo(t, "127.0.0.1:1")
	cfg.Agent.Worker = "gw/1"
	if _, err := New(cfg, newFakeGateway(), discard); err == nil || !strings.Contains(err.Error(), "gw/1") {
		t.Errorf("error %v", err)
	}
}

func TestAttemptsAreAtMost5sApartAndSpread(t *testing.T) {
	for _, connected := range []bool{false, true} {
		var first []time.Duration
		for range 200 {
			var p pauses
			for i := range 20 {
				pause := p.after(0, connected)
				if pause < minPause/5 || pause > maxPause {
					t.Fatalf("pause %d is %v", i, pause)
				}
				if i == 0 {
					first = append(first, pause)
				}
			}
		}
		perSlot := make(map[time.Duration]int)
		for _, pause := range first {
			perSlot[pause/(100*time.Millisecond)]++
		}
		for slot, n := range perSlot {
			if n > 50 {
				t.Errorf("%d of 200 agents are back within 100 ms, %v after", n, slot*100*time.Millisecond)
			}
		}
	}
	var p pauses
	p.after(0, false)
	p.after(0, false)
	if pause := p.after(5*time.Second, false); pause > 0 {
		t.Errorf("%v after an attempt that took 5 s itself", pause)
	}
	if p.after(time.Minute, true); p.next != 2*minPause {
		t.Errorf("after a steady connection the pauses do not begin anew: %v", p.next)
	}
}

// message is a message as the client hands it over.
type message struct {
	topic   string
	payload []byte
}

func (m message) Topic() string   { return m.topic }
func (m message) Payload() []byte { return m.payload }
func (message) Duplicate() bool   { return false }
func (message) Qos() byte         { return 1 }
func (message) Retained() bool    { return false }
func (message) MessageID() uint16 { return 1 }
func (message) Ack()              {}

func FuzzReceive(f *testing.F) {
	f.Add("wireguard/ffmuc_welt/all", aKey(1).String())
	f.Add("wireguard/ffmuc_welt/gw1", "o52Ge+Rpj4CUSitVag9mS7pSXUesNM0ESnvj/wwehkg=")
	f.Add("wireguard/ffmuc_welt/gw2", aKey(1).String())
	f.Add("wireguard-worker/gw1/ffmuc_welt/data", aKey(1).String())
	f.Add("wireguard-worker/gw1/status", "1")
	f.Add("wgsteer/ffmuc_welt/gw1/evict", aKey(1).String())
	f.Add("wgsteer/ffmuc_welt/gw1/evict", aKey(1).String()+"\n"+aKey(2).String())
	f.Add("wgsteer/ffmuc_welt/gw2/evict", aKey(1).String())
	f.Add("wgsteer/ffmuc_welt/all/evict", aKey(1).String())
	f.Add("wgsteer/ffmuc_welt/gw1/handshakes", aKey(1).String())
	f.Add("", "")
	cfg := uplinkTo(f, "127.0.0.1:1")
	f.Fuzz(func(t *testing.T, topic, payload string) {
		g := newFakeGateway()
		u, err := New(cfg, g, discard)
		if err != nil {
			t.Fatal(err)
		}
		u.receive(nil, message{topic, []byte(payload)})
		ignored := u.ignored.topics.Load() + u.ignored.keys.Load() + u.ignored.evictions.Load()
		if (len(g.keys) > 0) != (ignored == 0) || ignored > 1 {
			t.Fatalf("%d keys and %d ignored of one message", len(g.keys), ignored)
		}
		if len(g.keys) == 0 {
			return
		}
		parsed, err := topics.Parse(topic)
		var want []string
		switch {
		case parsed.Kind == topics.Key && parsed.Worker == topics.All:
			want = []string{parsed.Domain + " " + payload + " exchange"}
		case parsed.Kind == topics.Key && parsed.Worker == "gw1":
			want = []string{parsed.Domain + " " + payload + " replay"}
		case parsed.Kind == topics.Evict && parsed.Worker == "gw1":
			for key := range strings.SplitSeq(payload, "\n") {
				want = append(want, parsed.Domain+" "+key+" evict")
			}
		}
		if diff := cmp.Diff(want, g.keys); err != nil || diff != "" {
			t.Errorf("of topic %q (%v) and payload %q (-want +got):\n%s", topic, err, payload, diff)
		}
	})
}

func TestNothingIsSaidBeforeTheGatewayHasLooked(t *testing.T) {
	b := startBroker(t, "", nil)
	g := newFakeGateway()
	g.looked = make(chan struct{})
	start(t, uplinkTo(t, b.addr), g)
	g.set(welt, weltReport(5, 40011))
	if seen := b.history(); len(seen) != 0 {
		t.Errorf("said before: %q", seen)
	}
	close(g.looked)
	eventually(t, func() error { return b.saw(weltPeers(5), 0) })
	if err := b.saw(noWelt, 0); err == nil {
		t.Error("the domain was withdrawn for a moment")
	}
}

func TestHandshakesAreReportedInPiecesThatFitAPacket(t *testing.T) {
	b := startBroker(t, "", nil)
	g := newFakeGateway()
	handshakes := make([]report.Handshake, report.MaxHandshakes+1)
	for i := range handshakes {
		handshakes[i] = report.Handshake{Key: peer.Key{0: 1, 1: byte(i >> 8), 2: byte(i)}, Gone: i%2 == 0}
	}
	g.handshakes = map[string][]report.Handshake{"ffmuc_welt": handshakes}
	start(t, uplinkTo(t, b.addr), g)
	topic := "wgsteer/ffmuc_welt/gw1/handshakes "
	eventually(t, func() error {
		return errors.Join(
			b.saw(topic+string(report.FormatHandshakes(handshakes[:report.MaxHandshakes]))+" q1", 0),
			b.saw(topic+string(report.FormatHandshakes(handshakes[report.MaxHandshakes:]))+" q1", 0))
	})
}
