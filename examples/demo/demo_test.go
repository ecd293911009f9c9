package main

import (
	"bytes"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"wgsteer/internal/config"
	"wgsteer/internal/lab"
	"wgsteer/loadbalance"
)

func TestMain(m *testing.M) {
	lab.Main()
	os.Exit(m.Run())
}

// The whole demo, with programs that fail at a data race.
func TestDemo(t *testing.T) {
	l := lab.ForTest(t)
	server, agent, err := lab.Build(t.Context(), t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	d := &demo{lab: l, programs: programs{server: server, agent: agent}, out: &out, began: time.Now()}
	if err := d.run(t.Context()); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	d.printTour("wgsteer-demo")
	for _, want := range []string{
		"gw1      30       6.0      6       +0.0",
		"gw2      20       4.0      4       +0.0",
		"gw3      10       2.0      2       +0.0",
		"The shares match the weights",
		"wgsteer-demo exec gw1 -- wg show",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output does not say %q:\n%s", want, out.String())
		}
	}
	for _, command := range []string{"wgsteer-server workers", "wgsteer-server explain demo_city"} {
		if want := "wgsteer-demo exec central -- " + command; !strings.Contains(out.String(), want) {
			t.Errorf("the output does not say %q:\n%s", want, out.String())
		}
		cmd, err := commandOn(t.Context(), l.Name(), centralName, strings.Fields(command))
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(answer), "\ngw3 ") {
			t.Errorf("%s: %v\n%s", command, err, answer)
		}
	}
}

func TestConfigIsOneForBothSides(t *testing.T) {
	host, central := netip.MustParseAddr("10.77.0.2"), netip.MustParseAddr("10.77.0.1")
	file, err := configOf(host, central, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, side := range []config.Side{config.ForServer, config.ForAgent} {
		cfg, err := config.Parse(file, side)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Agent.ExternalName != host.String() || cfg.MQTT.Host != central.String() {
			t.Errorf("externalName %q and broker_url %q, want %v and %v", cfg.Agent.ExternalName, cfg.MQTT.Host, host, central)
		}
	}
}

func TestVerdict(t *testing.T) {
	for _, tt := range []struct {
		name  string
		peers [3]uint32
		want  string // of the error
	}{
		{"on target", [3]uint32{6, 4, 2}, ""},
		{"one off", [3]uint32{5, 5, 2}, ""},
		{"two off", [3]uint32{4, 4, 4}, "gw1 has 4 peers, its target is 6.0"},
		{"nobody came", [3]uint32{}, "no worker has a peer"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			candidates := []loadbalance.Candidate{{Name: "gw1", Weight: 30}, {Name: "gw2", Weight: 20}, {Name: "gw3", Weight: 10}}
			for i := range candidates {
				candidates[i].Peers = tt.peers[i]
			}
			err := verdict(io.Discard, loadbalance.Explain(candidates))
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}
