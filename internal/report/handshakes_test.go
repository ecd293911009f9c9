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

// keys are the keys with these texts.
func keys(t *testing.T, texts ...string) []peer.Key {
	t.Helper()
	keys := make([]peer.Key, len(texts))
	for i, text := range texts {
		var err error
		if keys[i], err = peer.ParseKey(text); err != nil {
			t.Fatal(err)
		}
	}
	return keys
}

func TestHandshakesOnTheWire(t *testing.T) {
	k := keys(t, key, otherKey)
	for payload, want := range map[string][]report.Handshake{
		key:                    {{Key: k[0]}},
		"-" + key:              {{Key: k[0], Gone: true}},
		key + "\n" + otherKey:  {{Key: k[0]}, {Key: k[1]}},
		key + "\n-" + otherKey: {{Key: k[0]}, {Key: k[1], Gone: true}},
	} {
		got, err := report.ParseHandshakes([]byte(payload))
		if err != nil {
			t.Errorf("%q: %v", payload, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ParseHandshakes(%q) (-want +got):\n%s", payload, diff)
		}
		if got := string(report.FormatHandshakes(want)); got != payload {
			t.Errorf("FormatHandshakes = %q, want %q", got, payload)
		}
	}
}

func TestEvictOnTheWire(t *testing.T) {
	want, payload := keys(t, key, otherKey), key+"\n"+otherKey
	got, err := report.ParseEvict([]byte(payload))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ParseEvict (-want +got):\n%s", diff)
	}
	if got := string(report.FormatEvict(want)); got != payload {
		t.Errorf("FormatEvict = %q", got)
	}
}

// badLists are payloads that are no lists of keys, with a mark or without.
var badLists = map[string]string{
	"nothing":            "",
	"no key":             "hello",
	"a newline too many": key + "\n",
	"a carriage return":  key + "\r\n" + otherKey,
	"one bad key":        key + "\n" + otherKey[1:],
	"too many keys":      strings.Repeat(key+"\n", report.MaxHandshakes) + key,
	"only a mark":        "-",
	"two marks":          "--" + key,
	"a space":            "- " + key,
	"another mark":       "+" + key,
	"a mark after":       key + "-",
}

func TestParseHandshakesRefuses(t *testing.T) {
	for name, payload := range badLists {
		if got, err := report.ParseHandshakes([]byte(payload)); !errors.Is(err, report.ErrPayload) {
			t.Errorf("%s: %v, %v, want ErrPayload", name, got, err)
		}
	}
}

func TestParseEvictRefuses(t *testing.T) {
	for name, payload := range badLists {
		if got, err := report.ParseEvict([]byte(payload)); !errors.Is(err, report.ErrPayload) {
			t.Errorf("%s: %v, %v, want ErrPayload", name, got, err)
		}
	}
	if got, err := report.ParseEvict([]byte("-" + key)); !errors.Is(err, report.ErrPayload) {
		t.Errorf("a key that is gone: %v, %v, want ErrPayload", got, err)
	}
}

func TestAsManyKeysAsAreAllowedAreRead(t *testing.T) {
	payload := []byte(strings.Repeat(key+"\n", report.MaxHandshakes-1) + key)
	if got, err := report.ParseHandshakes(payload); len(got) != report.MaxHandshakes {
		t.Errorf("%d handshakes, %v", len(got), err)
	}
	if got, err := report.ParseEvict(payload); len(got) != report.MaxHandshakes {
		t.Errorf("%d keys to evict, %v", len(got), err)
	}
}

func FuzzParseHandshakes(f *testing.F) {
	f.Add([]byte(key))
	f.Add([]byte(key + "\n" + otherKey))
	f.Add([]byte("-" + key))
	f.Add([]byte(key + "\n-" + otherKey))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		handshakes, err := report.ParseHandshakes(payload)
		if err != nil {
			if !errors.Is(err, report.ErrPayload) {
				t.Fatalf("ParseHandshakes(%q): an error of another kind: %v", payload, err)
			}
			return
		}
		if back := report.FormatHandshakes(handshakes); string(back) != string(payload) {
			t.Fatalf("ParseHandshakes(%q), written again, is %q", payload, back)
		}
	})
}

func FuzzParseEvict(f *testing.F) {
	f.Add([]byte(key))
	f.Add([]byte(key + "\n" + otherKey))
	f.Add([]byte("-" + key))
	f.Add([]byte("\n"))
	f.Fuzz(func(t *testing.T, payload []byte) {
		keys, err := report.ParseEvict(payload)
		if err != nil {
			if !errors.Is(err, report.ErrPayload) {
				t.Fatalf("ParseEvict(%q): an error of another kind: %v", payload, err)
			}
			return
		}
		if back := report.FormatEvict(keys); string(back) != string(payload) {
			t.Fatalf("ParseEvict(%q), written again, is %q", payload, back)
		}
	})
}
