package report_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wgsteer/internal/peer"
	"wgsteer/internal/report"
)

const otherKey = "o52Ge+Rpj4CUSitVag9mS7pSXUesNM0ESnvj/wwehkg="

func TestHandshakesOnTheWire(t *testing.T) {
	var want []peer.Key
	for _, text := range []string{key, otherKey} {
		k, err := peer.ParseKey(text)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, k)
	}
	got, err := report.ParseHandshakes([]byte(key + "\n" + otherKey))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ParseHandshakes (-want +got):\n%s", diff)
	}
	if got := string(report.FormatHandshakes(want)); got != key+"\n"+otherKey {
		t.Errorf("FormatHandshakes = %q", got)
	}
}

func TestParseHandshakesRefuses(t *testing.T) {
	for name, payload := range map[string]string{
		"nothing":            "",
		"no key":             "hello",
		"a newline too many": key + "\n",
		"one bad key":        key + "\n" + otherKey[1:],
		"too many keys":      strings.Repeat(key+"\n", report.MaxHandshakes) + key,
	} {
		if got, err := report.ParseHandshakes([]byte(payload)); !errors.Is(err, report.ErrPayload) {
			t.Errorf("%s: %v, %v, want ErrPayload", name, got, err)
		}
	}
}

func FuzzParseHandshakes(f *testing.F) {
	f.Add([]byte(key))
	f.Add([]byte(key + "\n" + otherKey))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		keys, err := report.ParseHandshakes(payload)
		if err != nil {
			return
		}
		if back := report.FormatHandshakes(keys); string(back) != string(payload) {
			t.Fatalf("ParseHandshakes(%q), written again, is %q", payload, back)
		}
	})
}
