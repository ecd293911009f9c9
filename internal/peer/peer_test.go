package peer_test

import (
	"encoding/base64"
	"errors"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"wgsteer/internal/peer"
)

const (
	keyA = "TszFS3oFRdhsJP3K0VOlklGMGYZy+oFCtlaghXJqW2g="
	keyB = "o52Ge+Rpj4CUSitVag9mS7pSXUesNM0ESnvj/wwehkg="
)

func TestParseKeyAcceptsExactlyTheTextItPrints(t *testing.T) {
	for _, text := range []string{keyA, keyB} {
		key, err := peer.ParseKey(text)
		if err != nil {
			t.Fatalf("ParseKey(%q): %v", text, err)
		}
		if key.String() != text {
			t.Errorf("ParseKey(%q).String() = %q", text, key)
		}
	}
}

func TestParseKeyRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"nothing":                    "",
		"too short":                  "AAAA",
		"a trailing newline":         keyA + "\n",
		"a leading space":            " " + keyA[:43],
		"a newline inside":           keyA[:20] + "\n" + keyA[21:],
		"no padding":                 keyA[:43] + "A",
		"all zero bytes":             strings.Repeat("A", 43) + "=",
		"stray bits at the end":      keyA[:42] + "h=",
		"the URL alphabet":           strings.ReplaceAll(keyA, "+", "-"),
		"a padding character inside": keyA[:42] + "==",
		"a multi-byte character":     "ä" + keyA[2:],
	} {
		t.Run(name, func(t *testing.T) {
			key, err := peer.ParseKey(text)
			if !errors.Is(err, peer.ErrKey) {
				t.Fatalf("ParseKey(%q) = %v, %v, want ErrKey", text, key, err)
			}
			if text != "" && strings.Contains(err.Error(), text) {
				t.Errorf("the error repeats the input: %v", err)
			}
		})
	}
}

// The wire contract describes a key's text by its characters.
var keyText = regexp.MustCompile(`^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw480]=$`)

func FuzzParseKey(f *testing.F) {
	f.Add(keyA)
	f.Add(keyA[:42] + "h=")
	f.Add(strings.Repeat("A", 43) + "=")
	f.Fuzz(func(t *testing.T, text string) {
		key, err := peer.ParseKey(text)
		zero := text == base64.StdEncoding.EncodeToString(make([]byte, peer.KeyLen))
		if want := keyText.MatchString(text) && !zero; (err == nil) != want {
			t.Fatalf("ParseKey(%q): %v, but the contract says valid = %v", text, err, want)
		}
		if err == nil && key.String() != text {
			t.Fatalf("ParseKey(%q).String() = %q", text, key)
		}
	})
}

func TestLinkAddress(t *testing.T) {
	for _, tt := range []struct{ key, wgkex, gluon string }{
		{keyA, "fe80::27c:16ff:fec0:6c74", "fe80::2a8:27ff:fed3:988e"},
		{keyB, "fe80::2a6:8fff:fe21:5465", "fe80::268:63ff:fef3:8912"},
	} {
		key, err := peer.ParseKey(tt.key)
		if err != nil {
			t.Fatal(err)
		}
		if got := peer.WGKex.LinkAddress(key).String(); got != tt.wgkex {
			t.Errorf("wgkex address of %s = %s, want %s", tt.key, got, tt.wgkex)
		}
		if got := peer.Gluon.LinkAddress(key).String(); got != tt.gluon {
			t.Errorf("gluon address of %s = %s, want %s", tt.key, got, tt.gluon)
		}
		for _, s := range peer.Schemes() {
			if !peer.IsLinkAddress(s.LinkAddress(key)) {
				t.Errorf("IsLinkAddress denies the %v address of %s", s, tt.key)
			}
		}
	}
}

func TestIsLinkAddressDeniesOthers(t *testing.T) {
	for _, a := range []string{
		"fe80::1", "fe80::27c:16ff:fec0:6c74%eth0", "2001:db8::27c:16ff:fec0:6c74",
		"fe80:1::27c:16ff:fec0:6c74", "fe80::7c:16ff:fec0:6c74", "10.0.0.1",
	} {
		if peer.IsLinkAddress(netip.MustParseAddr(a)) {
			t.Errorf("IsLinkAddress(%s) = true", a)
		}
	}
}

func TestSchemeText(t *testing.T) {
	for _, want := range peer.Schemes() {
		var got peer.Scheme
		if err := got.UnmarshalText([]byte(want.String())); err != nil || got != want {
			t.Errorf("UnmarshalText(%q) = %v, %v", want, got, err)
		}
	}
	var s peer.Scheme
	if err := s.UnmarshalText([]byte("eui64")); err == nil {
		t.Error("UnmarshalText accepts an unknown scheme")
	}
}
