package exchange

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"wgsteer/internal/peer"
	"wgsteer/internal/steering"
)

func FuzzParseRequest(f *testing.F) {
	const key = "o52Ge+Rpj4CUSitVag9mS7pSXUesNM0ESnvj/wwehkg="
	f.Add([]byte(`{"domain": "ff_a", "public_key": "` + key + `"}`))
	f.Add([]byte(`{"domain":"ff_a","public_key":"` + key + `","public_key":""}`))
	f.Add([]byte(`[{"domain":"ff_a"}]`))
	f.Add([]byte(`{"domain":null}`))
	table := steering.New(steering.Settings{Domains: []string{"ff_a"}})
	f.Fuzz(func(t *testing.T, body []byte) {
		req, err := parseRequest(body, table, true)
		if err != nil {
			refused := refusalOf(err)
			if refused.status != http.StatusBadRequest {
				t.Fatalf("parseRequest(%q): status %d (%v), want 400", body, refused.status, err)
			}
			if strings.Contains(refused.message, key) {
				t.Fatalf("the refusal repeats a key: %s", refused.message)
			}
			return
		}
		if req.domain != "ff_a" || req.key == (peer.Key{}) {
			t.Fatalf("parseRequest(%q) = %+v", body, req)
		}
		if !json.Valid(body) {
			t.Fatalf("parseRequest(%q) takes what is not JSON", body)
		}
	})
}

func TestSource(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.1:1234":              "192.0.2.1",
		"[::ffff:192.0.2.1]:1234":     "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:1234": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:1234":         "fe80::/64",
		"@":                           "@",
	} {
		r := httptest.NewRequest("POST", "/", nil)
		r.RemoteAddr = remote
		if got := source(r); got != want {
			t.Errorf("source of %s = %s, want %s", remote, got, want)
		}
	}
}
