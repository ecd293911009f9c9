package topics_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"wgsteer/topics"
)

func ExampleTopic_Build() {
	text, err := topics.Topic{Kind: topics.Key, Domain: "ffmuc_welt", Worker: topics.All}.Build()
	fmt.Println(text, err)
	// Output: wireguard/ffmuc_welt/all <nil>
}

func ExampleParse() {
	t, err := topics.Parse("wireguard-worker/gw04.in.ffmuc.net/ffmuc_welt/data")
	fmt.Println(t.Kind, t.Worker, t.Domain, err)
	// Output: data gw04.in.ffmuc.net ffmuc_welt <nil>
}

func TestTextOfEveryKind(t *testing.T) {
	for text, want := range map[string]topics.Topic{
		"wireguard/ffmuc_welt/all":                          {Kind: topics.Key, Domain: "ffmuc_welt", Worker: topics.All},
		"wireguard/ffmuc_welt/gw04":                         {Kind: topics.Key, Domain: "ffmuc_welt", Worker: "gw04"},
		"wireguard-metrics/ffmuc_welt/gw04/connected_peers": {Kind: topics.ConnectedPeers, Domain: "ffmuc_welt", Worker: "gw04"},
		"wireguard-worker/gw04.in/status":                   {Kind: topics.Status, Worker: "gw04.in"},
		"wireguard-worker/gw04.in/ffmuc_welt/data":          {Kind: topics.Data, Domain: "ffmuc_welt", Worker: "gw04.in"},
		"wgsteer/ffmuc_welt/gw04/handshakes":                {Kind: topics.Handshakes, Domain: "ffmuc_welt", Worker: "gw04"},
		"wgsteer/ffmuc_welt/gw04/evict":                     {Kind: topics.Evict, Domain: "ffmuc_welt", Worker: "gw04"},
	} {
		t.Run(want.Kind.String(), func(t *testing.T) {
			if got, err := want.Build(); err != nil || got != text {
				t.Errorf("Build() = %q, %v, want %q", got, err, text)
			}
			got, err := topics.Parse(text)
			if err != nil {
				t.Fatalf("Parse(%q): %v", text, err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("Parse(%q) (-want +got):\n%s", text, diff)
			}
		})
	}
}

var badNames = map[string]string{
	"empty":              "",
	"a level":            "a/b",
	"one-level wildcard": "+",
	"wildcard":           "gw#",
	"NUL":                "gw\x00",
	"newline":            "gw\n",
	"C1 control":         "gw\u0085",
	"not UTF-8":          "gw\xff",
	"too long":           strings.Repeat("g", 256),
}

func TestNamesThatCannotStandInATopicAreAnError(t *testing.T) {
	for name, bad := range badNames {
		t.Run(name, func(t *testing.T) {
			for _, topic := range []topics.Topic{
				{Kind: topics.Key, Domain: bad, Worker: topics.All},
				{Kind: topics.Key, Domain: "d", Worker: bad},
				{Kind: topics.ConnectedPeers, Domain: bad, Worker: "w"},
				{Kind: topics.ConnectedPeers, Domain: "d", Worker: bad},
				{Kind: topics.Status, Worker: bad},
				{Kind: topics.Data, Domain: bad, Worker: "w"},
				{Kind: topics.Data, Domain: "d", Worker: bad},
				{Kind: topics.Handshakes, Domain: bad, Worker: "w"},
				{Kind: topics.Handshakes, Domain: "d", Worker: bad},
				{Kind: topics.Evict, Domain: bad, Worker: "w"},
				{Kind: topics.Evict, Domain: "d", Worker: bad},
			} {
				if text, err := topic.Build(); !errors.Is(err, topics.ErrName) || text != "" {
					t.Errorf("%+v.Build() = %q, %v, want ErrName", topic, text, err)
				}
			}
		})
	}
}

func TestNoWorkerIsCalledAll(t *testing.T) {
	for _, kind := range []topics.Kind{topics.ConnectedPeers, topics.Status, topics.Data, topics.Handshakes, topics.Evict} {
		if text, err := (topics.Topic{Kind: kind, Domain: "d", Worker: topics.All}).Build(); !errors.Is(err, topics.ErrName) {
			t.Errorf("%v topic of a worker called all: %q, %v, want ErrName", kind, text, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"", "/", "wireguard", "wireguard/", "wireguard/d", "wireguard/d/w/x", "wireguard//w", "wireguard/d/",
		"wireguard/d/+", "wireguard/#", "Wireguard/d/w", "wireguard-metrics/d/w", "wireguard-metrics/d/w/connected_peers/x",
		"wireguard-metrics/d/all/connected_peers", "wireguard-worker/w/online", "wireguard-worker//status",
		"wireguard-worker/w/d/data/", "wireguard-worker/w/d/Data", "wgsteer/d/w", "wgsteer/d/all/evict", "wgsteer/d/w/evict/", "wgsteer/d/w/Evict", "$SYS/broker/uptime",
	} {
		if got, err := topics.Parse(text); err == nil {
			t.Errorf("Parse(%q) = %+v, want an error", text, got)
		}
	}
}

func TestInScheme(t *testing.T) {
	for text, want := range map[string]bool{
		"wireguard/nonsense": true, "wireguard-metrics/d/w/latency": true, "wireguard-worker": true,
		"wgsteer/seen": true, "$SYS/broker": false, "wireguardian/d/w": false, "": false,
	} {
		if got := topics.InScheme(text); got != want {
			t.Errorf("InScheme(%q) = %v, want %v", text, got, want)
		}
	}
}

func TestKeyFilter(t *testing.T) {
	for filter, want := range map[string]struct {
		worker string
		ok     bool
	}{
		"wireguard/ff_a/all":     {topics.All, true},
		"wireguard/ff_a/gw1":     {"gw1", true},
		"wireguard/ff_a/+":       {"", true},
		"wireguard/+/gw1":        {"gw1", true},
		"wireguard/+/+":          {"", true},
		"wireguard/ff_a/#":       {"", true},
		"wireguard/#":            {"", true},
		"#":                      {"", true},
		"+/ff_a/gw1":             {"gw1", true},
		"wireguard/ff_a/gw1/#":   {"gw1", true},
		"wireguard/ff_b/all":     {"", false},
		"wireguard/ff_a":         {"", false},
		"wireguard/ff_a/":        {"", false},
		"wireguard/ff_a/gw1/x":   {"", false},
		"wireguard/ff_a/gw1/+":   {"", false},
		"wireguard-metrics/#":    {"", false},
		"$share/g/wireguard/+/+": {"", false},
		"":                       {"", false},
	} {
		worker, ok := topics.KeyFilter(filter, "ff_a")
		if worker != want.worker || ok != want.ok {
			t.Errorf("KeyFilter(%q) = %q, %v, want %q, %v", filter, worker, ok, want.worker, want.ok)
		}
	}
}

func TestWhatIsBuiltParsesToTheSame(t *testing.T) {
	name := rapid.StringMatching(`[^/+#\p{Cc}]{1,60}`)
	rapid.Check(t, func(t *rapid.T) {
		want := topics.Topic{
			Kind:   rapid.SampledFrom([]topics.Kind{topics.Key, topics.ConnectedPeers, topics.Status, topics.Data, topics.Handshakes, topics.Evict}).Draw(t, "kind"),
			Worker: name.Filter(func(s string) bool { return s != topics.All }).Draw(t, "worker"),
		}
		if want.Kind != topics.Status {
			want.Domain = name.Draw(t, "domain")
		}
		text, err := want.Build()
		if err != nil {
			t.Fatalf("%+v.Build(): %v", want, err)
		}
		got, err := topics.Parse(text)
		if err != nil || got != want {
			t.Fatalf("Parse(%q) = %+v, %v, want %+v", text, got, err, want)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("wireguard/ffmuc_welt/all")
	f.Add("wireguard-metrics/ffmuc_welt/gw04/connected_peers")
	f.Add("wireguard-worker/gw04/status")
	f.Add("wireguard-worker/gw04/ffmuc_welt/data")
	f.Add("wgsteer/ffmuc_welt/gw04/handshakes")
	f.Add("wgsteer/ffmuc_welt/gw04/evict")
	f.Fuzz(func(t *testing.T, text string) {
		topic, err := topics.Parse(text)
		if err != nil {
			if !errors.Is(err, topics.ErrName) && !errors.Is(err, topics.ErrUnknown) {
				t.Fatalf("Parse(%q): an error of no known kind: %v", text, err)
			}
			return
		}
		if back, err := topic.Build(); err != nil || back != text {
			t.Fatalf("Parse(%q).Build() = %q, %v", text, back, err)
		}
		if !topics.InScheme(text) {
			t.Fatalf("InScheme(%q) = false, yet it parses", text)
		}
	})
}
