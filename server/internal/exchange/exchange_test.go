package exchange_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.uber.org/goleak"

	"wgsteer/internal/peer"
	"wgsteer/internal/report"
	"wgsteer/internal/steering"
	"wgsteer/server/internal/exchange"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	nodeKey   = "o52Ge+Rpj4CUSitVag9mS7pSXUesNM0ESnvj/wwehkg="
	workerKey = "TszFS3oFRdhsJP3K0VOlklGMGYZy+oFCtlaghXJqW2g="
)

// published remembers the keys that were sent to workers.
type published struct {
	mu   sync.Mutex
	keys []string
	// err is what the next publish fails with.
	err error
	// during is called in every publish, if it is set.
	during func()
}

func (p *published) PublishKey(domain string, key peer.Key) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.during != nil {
		p.during()
	}
	p.keys = append(p.keys, domain+" "+key.String())
	return p.err
}

func (p *published) all() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.keys
}

// fakeKeys remembers what it is told.
type fakeKeys struct {
	mu    sync.Mutex
	told  []string
	fault error
}

func (k *fakeKeys) Accept(domain string, key peer.Key, _ time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told = append(k.told, "accept "+domain+" "+key.String())
}

func (k *fakeKeys) Save(domain string, key peer.Key, worker string, _ time.Time) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told = append(k.told, fmt.Sprintf("save %s %v %q", domain, key, worker))
	return k.fault
}

func (k *fakeKeys) Fault() error { return k.fault }

// server is an API on a port of its own, with one worker that offers ff_a but not ff_b.
type server struct {
	*exchange.API
	table     *steering.Table
	published *published
	keys      *fakeKeys
	registry  *prometheus.Registry
	client    http.Client
	stop      func()
}

func start(t *testing.T, config exchange.Config) *server {
	t.Helper()
	table := steering.New(steering.Settings{Domains: []string{"ff_a", "ff_b"}})
	table.SetData("gw04", "ff_a", workerWith(t, "gw04.ext.ffmuc.net"))
	table.SetPeers("gw04", "ff_a", 0, time.Now())
	table.SetStatus("gw04", true, time.Now())

	s := &server{table: table, published: &published{}, keys: &fakeKeys{}, registry: prometheus.NewPedanticRegistry()}
	s.client.Timeout = 10 * time.Second
	config.Listen = "127.0.0.1:0"
	var err error
	s.API, err = exchange.New(config, table, s.keys, s.published, slog.New(slog.DiscardHandler), s.registry)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- s.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(func() {
		s.client.CloseIdleConnections()
		s.stop()
	})
	return s
}

// workerWith is how nodes reach the worker at the address.
func workerWith(t *testing.T, address string) report.Data {
	t.Helper()
	key, err := peer.ParseKey(workerKey)
	if err != nil {
		t.Fatal(err)
	}
	return report.Data{ExternalAddress: address, Port: 40011, PublicKey: key, LinkAddress: netip.MustParseAddr("fe80::27c:16ff:fec0:6c74")}
}

// answer is what a node sees.
type answer struct {
	Status     int
	Type       string
	Body       string
	RetryAfter string
}

func (s *server) send(t *testing.T, method, path, contentType, body string) answer {
	t.Helper()
	request, err := http.NewRequest(method, "http://"+s.Addr().String()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", contentType)
	response, err := s.client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header.Get("Content-Type"), string(text), response.Header.Get("Retry-After")}
}

const (
	v1, v2 = "/api/v1/wg/key/exchange", "/api/v2/wg/key/exchange"
	asJSON = "application/json"
	asForm = "application/x-www-form-urlencoded" // as OpenWrt's wget sends it
)

func body(domain, key string) string {
	return fmt.Sprintf(`{"domain": %q, "public_key": %q}`, domain, key)
}

func TestTheAnswersByteForByte(t *testing.T) {
	for name, tt := range map[string]struct {
		path string
		want answer
	}{
		"v1": {v1, answer{200, asJSON, `{"Message":"OK"}`, ""}},
		"v2": {v2, answer{200, asJSON, `{"Endpoint":{"Address":"gw04.ext.ffmuc.net","Port":"40011","AllowedIPs":["fe80::27c:16ff:fec0:6c74"],"PublicKey":"` + workerKey + `"}}`, ""}},
	} {
		for _, contentType := range []string{asJSON, asForm, ""} {
			t.Run(name+" as "+contentType, func(t *testing.T) {
				s := start(t, exchange.Config{})
				got := s.send(t, "POST", tt.path, contentType, body("ff_a", nodeKey))
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("answer (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]string{"ff_a " + nodeKey}, s.published.all()); diff != "" {
					t.Errorf("published (-want +got):\n%s", diff)
				}
			})
		}
	}
}

func refusal(status int, message string) answer {
	return answer{Status: status, Type: asJSON, Body: fmt.Sprintf(`{"error":{"message":%q}}`, message)}
}

func TestRefusals(t *testing.T) {
	const badKey = "public_key is not a WireGuard public key"
	for name, tt := range map[string]struct {
		body string
		want answer
	}{
		"nothing":                {"", refusal(400, "the body is not JSON")},
		"a form":                 {"domain=ff_a&public_key=x", refusal(400, "the body is not JSON")},
		"an array":               {"[]", refusal(400, "the body is not a JSON object")},
		"null":                   {"null", refusal(400, "the body is not a JSON object")},
		"no domain":              {`{"public_key":"` + nodeKey + `"}`, refusal(400, "domain is missing")},
		"domain as a number":     {`{"domain":1,"public_key":"` + nodeKey + `"}`, refusal(400, "domain is not one that is served here")},
		"unknown domain":         {body("ff_z", nodeKey), refusal(400, "domain is not one that is served here")},
		"a prefix alone":         {body("ff_", nodeKey), refusal(400, "domain is not one that is served here")},
		"domain in another case": {body("FF_A", nodeKey), refusal(400, "domain is not one that is served here")},
		"field in another case":  {`{"Domain":"ff_a","Public_Key":"` + nodeKey + `"}`, refusal(400, "domain is missing")},
		"no key":                 {`{"domain":"ff_a"}`, refusal(400, "public_key is missing")},
		"key as a list":          {`{"domain":"ff_a","public_key":["` + nodeKey + `"]}`, refusal(400, badKey)},
		"key too short":          {body("ff_a", nodeKey[1:]), refusal(400, badKey)},
		"key with stray bits":    {body("ff_a", nodeKey[:42]+"h="), refusal(400, badKey)},
		"key of zero bytes":      {body("ff_a", strings.Repeat("A", 43)+"="), refusal(400, badKey)},
		"key with a newline":     {body("ff_a", nodeKey+"\n"), refusal(400, badKey)},
		"key of a gateway":       {body("ff_a", workerKey), refusal(400, "public_key is the key of a gateway")},
		"too large":              {body("ff_a", nodeKey) + strings.Repeat(" ", 4096), refusal(413, "the body is larger than 4096 bytes")},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, exchange.Config{})
			for _, path := range []string{v1, v2} {
				if diff := cmp.Diff(tt.want, s.send(t, "POST", path, asForm, tt.body)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", path, diff)
				}
			}
			if keys := s.published.all(); len(keys) != 0 {
				t.Errorf("published %v", keys)
			}
		})
	}
}

func TestABodyOfExactlyTheLimitIsRead(t *testing.T) {
	s := start(t, exchange.Config{})
	text := body("ff_a", nodeKey)
	text += strings.Repeat(" ", 4096-len(text))
	if got := s.send(t, "POST", v1, asForm, text); got.Status != 200 {
		t.Errorf("answer %+v, want 200", got)
	}
}

func TestAChunkedBodyHasTheSameLimit(t *testing.T) {
	s := start(t, exchange.Config{})
	long := io.MultiReader(strings.NewReader(body("ff_a", nodeKey)), strings.NewReader(strings.Repeat(" ", 4096)))
	response, err := s.client.Post("http://"+s.Addr().String()+v1, asForm, io.NopCloser(long))
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != 413 {
		t.Errorf("status %d, want 413", response.StatusCode)
	}
}

func TestUnknownFieldsAreIgnored(t *testing.T) {
	s := start(t, exchange.Config{})
	text := strings.Replace(body("ff_a", nodeKey), "{", `{"location":"MUC","x":{"domain":"ff_z"},`, 1)
	if got := s.send(t, "POST", v2, asForm, text); got.Status != 200 {
		t.Errorf("answer %+v, want 200", got)
	}
}

func TestOtherMethodsAndPathsAreRefusedAsJSON(t *testing.T) {
	s := start(t, exchange.Config{})
	for _, tt := range []struct {
		method, path string
		want         answer
	}{
		{"GET", v1, refusal(405, "Method Not Allowed")},
		{"PUT", v2, refusal(405, "Method Not Allowed")},
		{"GET", "/", refusal(404, "Not Found")},
		{"POST", "/api/v3/wg/key/exchange", refusal(404, "Not Found")},
	} {
		if diff := cmp.Diff(tt.want, s.send(t, tt.method, tt.path, asJSON, "")); diff != "" {
			t.Errorf("%s %s (-want +got):\n%s", tt.method, tt.path, diff)
		}
	}
}

func TestWithoutAWorkerTheKeyIsPublishedAllTheSame(t *testing.T) {
	s := start(t, exchange.Config{})
	if got := s.send(t, "POST", v1, asForm, body("ff_b", nodeKey)); got.Status != 200 {
		t.Errorf("v1: %+v, want 200", got)
	}
	want := refusal(503, "no gateway is online for this domain")
	want.RetryAfter = "60"
	if diff := cmp.Diff(want, s.send(t, "POST", v2, asForm, body("ff_b", nodeKey))); diff != "" {
		t.Errorf("v2 (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"ff_b " + nodeKey, "ff_b " + nodeKey}, s.published.all()); diff != "" {
		t.Errorf("published (-want +got):\n%s", diff)
	}
}

func TestAFailureTellsNothingOfItsCause(t *testing.T) {
	s := start(t, exchange.Config{})
	s.published.err = errors.New("write /var/lib/secret: broken")
	if diff := cmp.Diff(refusal(500, "Internal Server Error"), s.send(t, "POST", v2, asForm, body("ff_a", nodeKey))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	s.published.err, s.published.during = nil, func() { panic("a path, a key") }
	if diff := cmp.Diff(refusal(500, "Internal Server Error"), s.send(t, "POST", v2, asForm, body("ff_a", nodeKey))); diff != "" {
		t.Errorf("after a panic (-want +got):\n%s", diff)
	}
}

func TestExchangesAreCounted(t *testing.T) {
	s := start(t, exchange.Config{})
	s.send(t, "POST", v1, asForm, body("ff_a", nodeKey))
	s.send(t, "POST", v2, asForm, body("ff_a", nodeKey))
	s.send(t, "POST", v2, asForm, body("ff_a", "x"))
	s.send(t, "POST", v2, asForm, body("ff_b", nodeKey))
	s.send(t, "GET", "/", asForm, "")
	want := `
# HELP wgsteer_exchanges_total Exchanges by version of the API and by result: "ok", or why they were refused.
# TYPE wgsteer_exchanges_total counter
wgsteer_exchanges_total{result="key",version="v2"} 1
wgsteer_exchanges_total{result="no worker",version="v2"} 1
wgsteer_exchanges_total{result="ok",version="v1"} 1
wgsteer_exchanges_total{result="ok",version="v2"} 1
`
	if err := testutil.GatherAndCompare(s.registry, strings.NewReader(want), "wgsteer_exchanges_total"); err != nil {
		t.Error(err)
	}
}

func TestTheRateLimit(t *testing.T) {
	s := start(t, exchange.Config{Settings: exchange.Settings{RateLimit: 2}})
	for range 2 {
		if got := s.send(t, "POST", v1, asForm, body("ff_a", nodeKey)); got.Status != 200 {
			t.Fatalf("answer %+v, want 200", got)
		}
	}
	want := refusal(429, "too many exchanges from this address")
	want.RetryAfter = "30"
	if diff := cmp.Diff(want, s.send(t, "POST", v2, asForm, body("ff_a", nodeKey))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := s.send(t, "GET", "/healthz", asForm, ""); got.Status != 200 {
		t.Errorf("the health check is limited, too: %+v", got)
	}
}

func TestTheRateLimitOfAReloadHolds(t *testing.T) {
	s := start(t, exchange.Config{Settings: exchange.Settings{RateLimit: 1}})
	for i, want := range []int{200, 429, 200, 200, 429} {
		if i == 2 {
			s.Configure(exchange.Settings{RateLimit: 2})
		}
		if got := s.send(t, "POST", v1, asForm, body("ff_a", nodeKey)); got.Status != want {
			t.Errorf("exchange %d: answer %+v, want %d", i, got, want)
		}
		s.Configure(exchange.Settings{RateLimit: []int{1, 2}[min(i/2, 1)]}) // the same again
	}
}

func TestTheLocationsAreThoseOfTheWorkers(t *testing.T) {
	s := start(t, exchange.Config{Settings: exchange.Settings{Locations: []string{"MUC", "Vienna"}}})
	for _, method := range []string{"GET", "HEAD"} {
		want := answer{Status: 200, Type: asJSON}
		if method == "GET" {
			want.Body = `{"locations":["MUC","Vienna"]}`
		}
		if diff := cmp.Diff(want, s.send(t, method, "/api/v1/locations", "", "")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", method, diff)
		}
	}
	s.Configure(exchange.Settings{})
	if got := s.send(t, "GET", "/api/v1/locations", "", ""); got.Body != `{"locations":[]}` {
		t.Errorf("without any the answer is %+v", got)
	}
}

func TestANodeIsSentWhereItWantsToBe(t *testing.T) {
	s := start(t, exchange.Config{})
	far := workerWith(t, "gw05.ext.ffmuc.net")
	s.table.SetData("gw05", "ff_a", far)
	s.table.SetPeers("gw05", "ff_a", 50, time.Now())
	s.table.SetStatus("gw05", true, time.Now())
	s.table.Configure(steering.Settings{Domains: []string{"ff_a", "ff_b"}, Workers: map[string]steering.Worker{"gw05": {Weight: 1, Location: "Vienna"}}})
	long := strings.Repeat("x", 65)
	for i, tt := range []struct{ path, location, want string }{
		{v2, `"Vienna"`, "gw05.ext"},
		{v2, `"Rome"`, "gw04.ext"},
		{v2, `""`, "gw04.ext"},
		{v2, `null`, "gw04.ext"},
		{v2, `"` + long + `"`, "gw04.ext"},
		{v2, `7`, "location is not text"},
		{v2, `["Vienna"]`, "location is not text"},
		{v1, `7`, `{"Message":"OK"}`},
	} {
		key := peer.Key{1, byte(i)}
		text := fmt.Sprintf(`{"domain": "ff_a", "public_key": "%v", "location": %s}`, key, tt.location)
		if got := s.send(t, "POST", tt.path, asForm, text); !strings.Contains(got.Body, tt.want) {
			t.Errorf("location %s: answer %+v, want one with %s", tt.location, got, tt.want)
		}
	}
}

func TestExchangesAndAssignmentsAreKept(t *testing.T) {
	for name, tt := range map[string]struct {
		path, domain, worker string
	}{
		"v1":                  {v1, "ff_a", ""},
		"v2":                  {v2, "ff_a", "gw04"},
		"v2 without a worker": {v2, "ff_b", ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, exchange.Config{})
			s.send(t, "POST", tt.path, asForm, body(tt.domain, nodeKey))
			s.send(t, "POST", tt.path, asForm, body(tt.domain, "x"))
			want := []string{"accept " + tt.domain + " " + nodeKey, fmt.Sprintf("save %s %s %q", tt.domain, nodeKey, tt.worker)}
			if diff := cmp.Diff(want, s.keys.told); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestADiskThatFailsKeepsNoNodeOffline(t *testing.T) {
	s := start(t, exchange.Config{})
	s.keys.fault = errors.New("write /var/lib/wgsteer/state.db: no space left on device")
	for _, path := range []string{v1, v2} {
		if got := s.send(t, "POST", path, asForm, body("ff_a", nodeKey)); got.Status != 200 {
			t.Errorf("%s: %+v, want 200", path, got)
		}
	}
	if got := s.published.all(); len(got) != 2 {
		t.Errorf("published %v, want the key twice", got)
	}
	want := "# HELP wgsteer_exchanges_unsaved_total Exchanges that were answered although their key could not be saved.\n" +
		"# TYPE wgsteer_exchanges_unsaved_total counter\nwgsteer_exchanges_unsaved_total 2\n"
	if err := testutil.GatherAndCompare(s.registry, strings.NewReader(want), "wgsteer_exchanges_unsaved_total"); err != nil {
		t.Error(err)
	}
	ready := `{"domains_without_worker":["ff_b"],"state":"cannot be written: keys are kept in memory only, see the log"}`
	if diff := cmp.Diff(answer{503, asJSON, ready, ""}, s.send(t, "GET", "/readyz", "", "")); diff != "" {
		t.Errorf("readyz (-want +got):\n%s", diff)
	}
}

func TestHealthAndReadiness(t *testing.T) {
	s := start(t, exchange.Config{})
	if diff := cmp.Diff(answer{200, asJSON, `{"status":"ok"}`, ""}, s.send(t, "GET", "/healthz", "", "")); diff != "" {
		t.Errorf("healthz (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(answer{503, asJSON, `{"domains_without_worker":["ff_b"]}`, ""}, s.send(t, "GET", "/readyz", "", "")); diff != "" {
		t.Errorf("readyz (-want +got):\n%s", diff)
	}
}

func TestCheckHealth(t *testing.T) {
	s := start(t, exchange.Config{})
	_, port, err := net.SplitHostPort(s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, listen := range []string{"127.0.0.1:" + port, "0.0.0.0:" + port, ":" + port} {
		if err := exchange.CheckHealth(listen); err != nil {
			t.Errorf("CheckHealth(%s): %v", listen, err)
		}
	}
	s.stop()
	if err := exchange.CheckHealth("127.0.0.1:" + port); err == nil {
		t.Error("CheckHealth finds a server that has stopped healthy")
	}
	http.DefaultClient.CloseIdleConnections()
}

func TestRequestsUnderWayAreAnsweredAtAStop(t *testing.T) {
	s := start(t, exchange.Config{})
	begun, goOn := make(chan struct{}), make(chan struct{})
	s.published.during = func() {
		close(begun)
		<-goOn
	}
	answered := make(chan answer, 1)
	go func() { answered <- s.send(t, "POST", v2, asForm, body("ff_a", nodeKey)) }()
	<-begun
	stopped := make(chan struct{})
	go func() {
		s.stop()
		close(stopped)
	}()
	// The server has stopped accepting, but not this exchange.
	for {
		tcp, err := net.Dial("tcp", s.Addr().String())
		if err != nil {
			break
		}
		tcp.Close()
	}
	close(goOn)
	if got := <-answered; got.Status != 200 {
		t.Errorf("answer %+v, want 200", got)
	}
	<-stopped
}

func TestAnAddressInUseIsAnError(t *testing.T) {
	s := start(t, exchange.Config{})
	_, err := exchange.New(exchange.Config{Listen: s.Addr().String()}, nil, nil, nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err == nil || !strings.Contains(err.Error(), "HTTP server") {
		t.Errorf("error %v, want one that names the HTTP server", err)
	}
}
