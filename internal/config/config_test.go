package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"wgsteer/examples"
	"wgsteer/internal/config"
	"wgsteer/internal/peer"
)

// wgkexFile has the shape of the file that wgkex hosts have today.
const wgkexFile = `
domains: [ffmuc_muc_cty, ffmuc_welt, ffwert_city]
domain_prefixes: [ffmuc_, ffdon_, ffwert_]
workers:
  gw04.in.ffmuc.net: {weight: 30}
  gw05.in.ffmuc.net:
    weight:
  gw06.in.ffmuc.net: {weight: 0}
  gw07.in.ffmuc.net:
externalName: gw04.ext.ffmuc.net
mqtt: {broker_url: mqtt.example.org, broker_port: 1884, username: user, password: SECRET, keepalive: 7, tls: False}
broker_listen: {host: 127.0.0.1, port: 5001}
logging_config: {version: 1, root: {level: DEBUG, handlers: [console]}}
`

func TestAWgkexFileLoadsOnBothSides(t *testing.T) {
	want := config.Config{
		Domains: []config.Domain{
			{Name: "ffmuc_muc_cty", WireGuard: "wg-muc_cty", VXLAN: "vx-muc_cty"},
			{Name: "ffmuc_welt", WireGuard: "wg-welt", VXLAN: "vx-welt"},
			{Name: "ffwert_city", WireGuard: "wg-city", VXLAN: "vx-city"},
		},
		Workers: map[string]config.Worker{
			"gw04.in.ffmuc.net": {Weight: 30}, "gw05.in.ffmuc.net": {Weight: 1}, "gw06.in.ffmuc.net": {}, "gw07.in.ffmuc.net": {Weight: 1},
		},
		MQTT: config.MQTT{
			Host: "mqtt.example.org", Port: 1884, Username: "user", Password: "SECRET", Keepalive: 7 * time.Second,
		},
		Server: serverDefaults("127.0.0.1:5001", "0.0.0.0:1884"),
		Agent: config.Agent{
			ExternalName: "gw04.ext.ffmuc.net", ReportInterval: time.Minute, SweepInterval: time.Hour,
			StaleAfter: 3 * time.Hour, UnusedAfter: 10 * time.Minute, LinkAddress: peer.WGKex,
		},
	}
	for _, side := range []config.Side{config.ForServer, config.ForAgent} {
		got, err := config.Parse([]byte(wgkexFile), side)
		if err != nil {
			t.Fatal(err)
		}
		if len(got.Notes) == 0 || !strings.Contains(got.Notes[0], "logging_config") {
			t.Errorf("notes %q, want the first on logging_config", got.Notes)
		}
		if said := strings.Contains(strings.Join(got.Notes, ""), "state_dir"); said != (side == config.ForServer) {
			t.Errorf("side %d: notes %q", side, got.Notes)
		}
		got.Notes = nil
		if side == config.ForAgent {
			want.Agent.Worker, err = os.Hostname()
			if err != nil {
				t.Fatal(err)
			}
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("side %d (-want +got):\n%s", side, diff)
		}
	}
}

// needed are the keys that each side cannot do without.
const needed = "domains: [ff_a]\ndomain_prefixes: [ff_]\n"

// serverDefaults is what a server does that listens there and whose config says no more.
func serverDefaults(http, mqtt string) config.Server {
	return config.Server{
		HTTPListen: http, MQTTListen: mqtt, AdminListen: "127.0.0.1:5001", AdminByDefault: true,
		KeyTTL: 24 * time.Hour, SilentAfter: 3 * time.Minute,
		Settle: 15 * time.Second, RetryWindow: 10 * time.Minute, StickyTolerance: 0.1,
	}
}

func TestTheServerNeedsNothingOfTheAgent(t *testing.T) {
	cfg, err := config.Parse([]byte(needed), config.ForServer)
	if err != nil {
		t.Fatal(err)
	}
	want := serverDefaults("0.0.0.0:5000", "127.0.0.1:1883")
	if diff := cmp.Diff(want, cfg.Server); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTheAgentNeedsAServer(t *testing.T) {
	if _, err := config.Parse([]byte(needed), config.ForAgent); err == nil || !strings.Contains(err.Error(), "mqtt.broker_url") {
		t.Errorf("error %v, want one on mqtt.broker_url", err)
	}
	cfg, err := config.Parse([]byte(needed+"mqtt: {broker_url: 192.0.2.1}\n"), config.ForAgent)
	if err != nil {
		t.Fatal(err)
	}
	want := config.MQTT{Host: "192.0.2.1", Port: 1883, Keepalive: 5 * time.Second}
	if diff := cmp.Diff(want, cfg.MQTT); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestAWorkerThatIsNotListedHasWeightOne(t *testing.T) {
	cfg, err := config.Parse([]byte(wgkexFile), config.ForServer)
	if err != nil {
		t.Fatal(err)
	}
	for worker, want := range map[string]uint32{"gw04.in.ffmuc.net": 30, "gw05.in.ffmuc.net": 1, "gw06.in.ffmuc.net": 0, "unlisted": 1} {
		if got := cfg.Weight(worker); got != want {
			t.Errorf("weight of %s = %d, want %d", worker, got, want)
		}
	}
}

func TestLocationsAreThoseOfTheWorkersEachOnce(t *testing.T) {
	const workers = `workers: {gw1: {location: Vienna}, gw2: {weight: 3, location: MUC}, gw3: {location: Vienna}, gw4: {weight: 1}, gw5: {location: }}`
	cfg, err := config.Parse([]byte(needed+workers), config.ForServer)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"MUC", "Vienna"}, cfg.Locations()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(config.Worker{Weight: 3, Location: "MUC"}, cfg.Worker("gw2")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOperatorsAreServedWhereTheFileSays(t *testing.T) {
	for written, want := range map[string]string{
		"": "127.0.0.1:5001", "off": "", "unix:/run/wgsteer.sock": "unix:/run/wgsteer.sock", "'[::1]:5002'": "[::1]:5002",
	} {
		cfg, err := config.Parse([]byte(needed+"server: {admin_listen: "+written+"}\n"), config.ForServer)
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.Server; got.AdminListen != want || got.AdminByDefault != (written == "") {
			t.Errorf("admin_listen: %s means %q, by default: %v", written, got.AdminListen, got.AdminByDefault)
		}
	}
}

func TestTheLongestPrefixIsTakenOff(t *testing.T) {
	cfg, err := config.Parse([]byte("domains: [ffmuc_welt]\ndomain_prefixes: [ff, ffmuc_, ffmuc]\n"), config.ForServer)
	if err != nil {
		t.Fatal(err)
	}
	if got := cfg.Domains[0].WireGuard; got != "wg-welt" {
		t.Errorf("interface %s, want wg-welt", got)
	}
}

func TestErrorsNameTheLine(t *testing.T) {
	for name, tt := range map[string]struct{ file, at, says string }{
		"unknown key":                {needed + "domain: x\n", "3:1", `unknown key "domain"`},
		"unknown key below":          {needed + "mqtt:\n  broker: x\n", "4:3", `unknown key "broker"`},
		"unknown key of a worker":    {needed + "workers:\n  gw1:\n    wieght: 3\n", "5:5", `unknown key "wieght" of worker "gw1"`},
		"key twice":                  {needed + "domains: [ff_b]\n", "3:1", "already defined"},
		"text for a list":            {"domains: ff_a\n", "1:10", "sequence is expected"},
		"number for text":            {needed + "mqtt:\n  password: 0123\n", "4:13", "write 0123 in quotes"},
		"map for text":               {"domains:\n- ff_a\n- {x: 1}\n", "3:3", "want text"},
		"text for a number":          {needed + "mqtt: {broker_port: mqtt}\n", "3:21", "want a whole number"},
		"fraction for a number":      {needed + "workers: {gw1: {weight: 1.5}}\n", "3:25", "want a whole number"},
		"text for a boolean":         {needed + "mqtt: {tls: maybe}\n", "3:13", "want true or false"},
		"number for a time":          {needed + "agent: {report_interval: 60}\n", "3:26", "want a time with its unit"},
		"unknown unit":               {needed + "agent: {report_interval: 1d}\n", "3:26", "want a time with its unit"},
		"scalar for a section":       {needed + "mqtt: yes\n", "3:7", "mapping is expected"},
		"list for the file":          {"- a\n", "1:1", "mapping is expected"},
		"not YAML":                   {"a: b: c\n", "1:4", "not allowed"},
		"tab":                        {"domains:\n\t- a\n", "2:", ""},
		"two documents":              {needed + "---\ndomains: [ff_b]\n", "4:", "second YAML document"},
		"duplicate domain":           {"domains: [ff_a, ff_a]\ndomain_prefixes: [ff_]\n", "1:17", "listed twice"},
		"domain without a prefix":    {"domains:\n- ff_a\n- gg_a\ndomain_prefixes: [ff_]\n", "3:3", "begins with none"},
		"domain that is a prefix":    {"domains: [ff_]\ndomain_prefixes: [ff_]\n", "1:11", "nothing but its prefix"},
		"two domains of one rest":    {"domains: [ff_a, gg_a]\ndomain_prefixes: [ff_, gg_]\n", "1:17", "both mean the interface wg-a"},
		"interface name too long":    {"domains: [ff_thirteenbytes]\ndomain_prefixes: [ff_]\n", "1:11", "16 bytes long"},
		"space in a domain":          {"domains: [ff_a b]\ndomain_prefixes: [ff_]\n", "1:11", "Linux does not allow"},
		"slash in a domain":          {"domains: [ff_a/b]\ndomain_prefixes: [ff_]\n", "1:11", "cannot stand in an MQTT topic"},
		"wildcard in a worker":       {needed + "workers:\n  gw+: {weight: 1}\n", "4:3", "cannot stand in an MQTT topic"},
		"worker called all":          {needed + "workers:\n  all: {weight: 1}\n", "4:3", "means every worker"},
		"negative weight":            {needed + "workers:\n  gw1: {weight: -1}\n", "4:17", "want 0 to 1000000"},
		"absurd weight":              {needed + "workers:\n  gw1:\n    weight: 1000001\n", "5:13", "want 0 to 1000000"},
		"weight beyond 64 bits":      {needed + "workers: {gw1: {weight: 99999999999999999999}}\n", "3:25", "want a whole number"},
		"port 0":                     {needed + "mqtt: {broker_port: 0}\n", "3:21", "want 1 to 65535"},
		"port too large":             {needed + "broker_listen: {port: 65536}\n", "3:23", "want 1 to 65535"},
		"keepalive 0":                {needed + "mqtt: {keepalive: 0}\n", "3:19", "want 1 to 65535"},
		"password without account":   {needed + "mqtt: {password: x}\n", "3:18", "mqtt.username is not"},
		"account without password":   {needed + "mqtt: {username: x}\n", "3:18", "everybody could log in"},
		"a newer wgkex":              {needed + "parker: {enabled: true}\n", "3:1", "does not do Parker"},
		"a worker of a newer wgkex":  {needed + "workers: {gw1: {pop: muc}}\n", "3:17", "here it is location"},
		"tolerance of a newer wgkex": {needed + "sticky_worker_tolerance: 0.1\n", "3:1", "here it is server.sticky_tolerance"},
		"a part for percents":        {needed + "server: {sticky_tolerance: 0.1}\n", "3:28", "like 10%"},
		"text for percents":          {needed + "server: {sticky_tolerance: some%}\n", "3:28", "like 10%"},
		"too many percents":          {needed + "server: {sticky_tolerance: 101%}\n", "3:28", "want 0 to 100"},
		"settled at once":            {needed + "server: {settle: 0s}\n", "3:18", "want 1s to 10m0s"},
		"retries for ever":           {needed + "server: {retry_window: 48h}\n", "3:24", "want 1s to 24h0m0s"},
		"moves backwards":            {needed + "server: {auto_rebalance: -1}\n", "3:26", "want 0 to 6000"},
		"relative socket":            {needed + "server: {admin_listen: 'unix:admin.sock'}\n", "3:24", "no absolute path"},
		"socket path too long":       {needed + "server: {admin_listen: 'unix:/" + strings.Repeat("x", 107) + "'}\n", "3:24", "at most 107 bytes"},
		"number for a location":      {needed + "workers: {gw1: {location: 7}}\n", "3:27", "write 7 in quotes"},
		"location too long":          {needed + "workers: {gw1: {location: " + strings.Repeat("x", 65) + "}}\n", "3:27", "at most 64 bytes"},
		"location of two lines":      {needed + "workers: {gw1: {location: \"a\\nb\"}}\n", "3:27", "in one line"},
		"URL for a host":             {needed + "mqtt: {broker_url: 'mqtt://host:1883'}\n", "3:20", "host name or IP address alone"},
		"listen without a port":      {needed + "server: {mqtt_listen: 127.0.0.1}\n", "3:23", "no host:port"},
		"listen on a bad port":       {needed + "server: {admin_listen: '127.0.0.1:x'}\n", "3:24", "not 0 to 65535"},
		"listen on no host":          {needed + "broker_listen: {host: 'a b'}\n", "3:23", "no IP address or host name"},
		"negative rate":              {needed + "server: {rate_limit: -1}\n", "3:22", "want 0 to"},
		"interval 0":                 {needed + "agent: {sweep_interval: 0s}\n", "3:25", "want 1s to"},
		"relative folder":            {needed + "server: {state_dir: state}\n", "3:21", "no absolute path"},
		"unknown address scheme":     {needed + "agent: {link_address: eui64}\n", "3:23", "want wgkex or gluon"},
		"bad name of an agent":       {needed + "agent: {worker: a/b}\n", "3:17", "cannot stand in an MQTT topic"},
		"bad external name":          {needed + "externalName: 'gw 04'\n", "3:15", "no IP address or host name"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := config.Parse([]byte(tt.file), config.ForServer)
			if err == nil {
				t.Fatalf("no error for:\n%s", tt.file)
			}
			if !strings.HasPrefix(err.Error(), tt.at) || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("error %q, want %s: …%s…", err, tt.at, tt.says)
			}
		})
	}
}

func TestNothingIsMissedInAnEmptyFile(t *testing.T) {
	for _, content := range []string{"", "# nothing\n", "domains:\ndomain_prefixes: [ff_]\n"} {
		if _, err := config.Parse([]byte(content), config.ForServer); err == nil || !strings.Contains(err.Error(), "domains is missing") {
			t.Errorf("file %q: error %v, want one on domains", content, err)
		}
	}
}

func TestLoadNamesFileLineAndColumn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wgsteer.yaml")
	if err := os.WriteFile(path, []byte(needed+"nonsense: 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := config.Load(path, config.ForServer)
	if err == nil || !strings.HasPrefix(err.Error(), path+":3:1: ") {
		t.Errorf("error %v, want %s:3:1: …", err, path)
	}
}

func TestLoadNamesTheFileOfWhatIsMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "wgsteer.yaml")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := config.Load(path, config.ForServer)
	if err == nil || !strings.HasPrefix(err.Error(), path+": domains is missing") {
		t.Errorf("error %v, want %s: domains is missing…", err, path)
	}
}

func TestWithoutAnAccountTheStartSaysWhoCanComeIn(t *testing.T) {
	for listen, want := range map[string]string{
		"": "no gateway on another host reaches it", "127.0.0.2:1883": "no gateway on another host reaches it",
		"0.0.0.0:1883": "whoever reaches 0.0.0.0:1883", ":1883": "whoever reaches :1883", "192.0.2.1:1883": "whoever reaches",
	} {
		cfg, err := config.Parse([]byte(needed+"server: {mqtt_listen: '"+listen+"'}\n"), config.ForServer)
		if err != nil {
			t.Fatal(err)
		}
		if notes := strings.Join(cfg.Notes, "\n"); !strings.Contains(notes, want) {
			t.Errorf("listening on %q, the notes say:\n%s\nwant: %s", listen, notes, want)
		}
	}
}

func TestFindPrefersOurOwnVariable(t *testing.T) {
	env := map[string]string{"WGSTEER_CONFIG": "/a", "WGKEX_CONFIG_FILE": "/b"}
	if path, err := config.Find(func(name string) string { return env[name] }); err != nil || path != "/a" {
		t.Errorf("Find = %q, %v, want /a", path, err)
	}
	delete(env, "WGSTEER_CONFIG")
	if path, err := config.Find(func(name string) string { return env[name] }); err != nil || path != "/b" {
		t.Errorf("Find = %q, %v, want /b", path, err)
	}
}

func TestTheExampleLoadsOnBothSides(t *testing.T) {
	for _, side := range []config.Side{config.ForServer, config.ForAgent} {
		if _, err := config.Parse([]byte(examples.Config), side); err != nil {
			t.Errorf("side %d: %v", side, err)
		}
	}
}

// commentedKey is a key of the example that stands there with its default.
var commentedKey = regexp.MustCompile(`(?m)^(\s*)# ([a-z_]+: \S.*)$`)

func TestTheExampleShowsTheDefaults(t *testing.T) {
	var shown []string
	full := commentedKey.ReplaceAllStringFunc(examples.Config, func(line string) string {
		shown = append(shown, line)
		return strings.Replace(line, "# ", "", 1)
	})
	if len(shown) < 10 {
		t.Fatalf("found only %d defaults in the example: %q", len(shown), shown)
	}
	want, err := config.Parse([]byte(examples.Config), config.ForServer)
	if err != nil {
		t.Fatal(err)
	}
	got, err := config.Parse([]byte(full), config.ForServer)
	if err != nil {
		t.Fatalf("the example with its defaults written out: %v", err)
	}
	// A file cannot say that it does not say it, and the host's name is its own.
	got.Server.AdminByDefault, want.Agent.Worker = true, got.Agent.Worker
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("what the example calls defaults are not (-default +example):\n%s", diff)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(wgkexFile))
	f.Add([]byte(examples.Config))
	f.Add([]byte("domains: &a [ff_x]\ndomain_prefixes: *a\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		cfg, err := config.Parse(content, config.ForServer)
		if (cfg == nil) == (err == nil) {
			t.Fatalf("Parse(%q) = %v, %v", content, cfg, err)
		}
	})
}

func TestPercentsNeedNoSign(t *testing.T) {
	for text, want := range map[string]float64{"": 0.1, "5%": 0.05, "25": 0.25, "0": 0} {
		cfg, err := config.Parse([]byte(needed+"server: {sticky_tolerance: "+text+"}\n"), config.ForServer)
		if err != nil {
			t.Errorf("%q: %v", text, err)
		} else if got := cfg.Server.StickyTolerance; got != want {
			t.Errorf("%q: %g, want %g", text, got, want)
		}
	}
}
