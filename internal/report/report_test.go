package report_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"wgsteer/internal/peer"
	"wgsteer/internal/report"
)

const (
	key  = "TszFS3oFRdhsJP3K0VOlklGMGYZy+oFCtlaghXJqW2g="
	wire = `{"ExternalAddress":"gw04.ext.ffmuc.net","Port":40011,"PublicKey":"` + key + `","LinkAddress":"fe80::27c:16ff:fec0:6c74"}`
)

func data(t *testing.T) report.Data {
	t.Helper()
	k, err := peer.ParseKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return report.Data{
		ExternalAddress: "gw04.ext.ffmuc.net", Port: 40011, PublicKey: k,
		LinkAddress: netip.MustParseAddr("fe80::27c:16ff:fec0:6c74"),
	}
}

func TestDataOnTheWire(t *testing.T) {
	got, err := report.ParseData([]byte(wire))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(data(t), got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("ParseData (-want +got):\n%s", diff)
	}
	payload, err := data(t).Format()
	if err != nil {
		t.Fatal(err)
	}
	if string(payload) != wire {
		t.Errorf("Format:\n got %s\nwant %s", payload, wire)
	}
}

func TestParseDataIgnoresWhatItDoesNotKnow(t *testing.T) {
	if _, err := report.ParseData([]byte(strings.Replace(wire, "{", `{"Hostname":"gw04",`, 1))); err != nil {
		t.Error(err)
	}
}

func TestParseDataRefuses(t *testing.T) {
	for name, payload := range map[string]string{
		"nothing":               "",
		"no JSON":               "hello",
		"an array":              "[]",
		"null":                  "null",
		"no fields":             "{}",
		"two values":            wire + wire,
		"no address":            strings.Replace(wire, "gw04.ext.ffmuc.net", "", 1),
		"a command in a host":   strings.Replace(wire, "gw04.ext", "$(reboot)", 1),
		"a space in a host":     strings.Replace(wire, "gw04.ext", "gw04 ext", 1),
		"a newline in a host":   strings.Replace(wire, "gw04.ext", `gw04\next`, 1),
		"a port as text":        strings.Replace(wire, "40011", `"40011"`, 1),
		"a field in lower case": strings.Replace(wire, `"Port"`, `"port"`, 1),
		"port 0":                strings.Replace(wire, "40011", "0", 1),
		"a port too large":      strings.Replace(wire, "40011", "65536", 1),
		"a negative port":       strings.Replace(wire, "40011", "-1", 1),
		"a bad key":             strings.Replace(wire, "TszF", "Tsz", 1),
		"a global address":      strings.Replace(wire, "fe80::", "2001:db8::", 1),
		"an IPv4 address":       strings.Replace(wire, "fe80::27c:16ff:fec0:6c74", "169.254.0.1", 1),
		"an address of a zone":  strings.Replace(wire, "6c74", "6c74%wg0", 1),
		"no link address":       strings.Replace(wire, "fe80::27c:16ff:fec0:6c74", "", 1),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := report.ParseData([]byte(payload)); !errors.Is(err, report.ErrPayload) {
				t.Errorf("ParseData(%s) = %+v, %v, want ErrPayload", payload, got, err)
			}
		})
	}
}

func TestParsePeers(t *testing.T) {
	for payload, want := range map[string]int{"-1": report.Leaving, "0": 0, "40": 40, "007": 7, "16777216": report.MaxPeers} {
		if got, err := report.ParsePeers([]byte(payload)); err != nil || got != want {
			t.Errorf("ParsePeers(%q) = %d, %v, want %d", payload, got, err, want)
		}
	}
	for _, payload := range []string{"", "-2", "+1", "1.0", "1e3", "0x1", " 1", "1\n", "null", "16777217", "99999999999999999999"} {
		if got, err := report.ParsePeers([]byte(payload)); !errors.Is(err, report.ErrPayload) {
			t.Errorf("ParsePeers(%q) = %d, %v, want ErrPayload", payload, got, err)
		}
	}
}

func TestParseStatus(t *testing.T) {
	for payload, want := range map[string]bool{report.Online: true, report.Offline: false} {
		if got, err := report.ParseStatus([]byte(payload)); err != nil || got != want {
			t.Errorf("ParseStatus(%q) = %v, %v, want %v", payload, got, err, want)
		}
	}
	for _, payload := range []string{"", "2", "01", "true", "-1", "1 "} {
		if got, err := report.ParseStatus([]byte(payload)); !errors.Is(err, report.ErrPayload) {
			t.Errorf("ParseStatus(%q) = %v, %v, want ErrPayload", payload, got, err)
		}
	}
}

func FuzzParseData(f *testing.F) {
	f.Add([]byte(wire))
	f.Add([]byte(`{"Port":"1"}`))
	f.Fuzz(func(t *testing.T, payload []byte) {
		d, err := report.ParseData(payload)
		if err != nil {
			return
		}
		again, err := d.Format()
		if err != nil {
			t.Fatalf("ParseData(%q) cannot be written again: %v", payload, err)
		}
		if back, err := report.ParseData(again); err != nil || back != d {
			t.Fatalf("ParseData(%q) = %+v, written and read again %+v, %v", payload, d, back, err)
		}
	})
}

func FuzzParsePeers(f *testing.F) {
	f.Add([]byte("-1"))
	f.Add([]byte("40"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		peers, err := report.ParsePeers(payload)
		if err != nil {
			return
		}
		if peers < report.Leaving || peers > report.MaxPeers {
			t.Fatalf("ParsePeers(%q) = %d", payload, peers)
		}
		if back, err := report.ParsePeers(report.FormatPeers(peers)); err != nil || back != peers {
			t.Fatalf("ParsePeers(%q) = %d, written and read again %d, %v", payload, peers, back, err)
		}
	})
}

func FuzzParseStatus(f *testing.F) {
	f.Add([]byte(report.Online))
	f.Add([]byte(report.Offline))
	f.Fuzz(func(t *testing.T, payload []byte) {
		online, err := report.ParseStatus(payload)
		if valid := string(payload) == "0" || string(payload) == "1"; (err == nil) != valid || online && string(payload) != "1" {
			t.Fatalf("ParseStatus(%q) = %v, %v", payload, online, err)
		}
	})
}
