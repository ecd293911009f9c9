package admin

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"wgsteer/internal/peer"
	"wgsteer/internal/steering"
	"wgsteer/server/internal/levers"
)

type nobody struct{}

func (nobody) PublishEvict(string, string, []peer.Key) error { return nil }

func TestOnlyProgramsOnTheMachineChangeAnything(t *testing.T) {
	table := steering.New(steering.Settings{Workers: map[string]steering.Worker{"gw1": {}}})
	l := levers.New(levers.Settings{}, table, nobody{}, nil, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	handler := routes(&api{table: table, levers: l}, http.NotFoundHandler())
	for name, tt := range map[string]struct {
		remote, origin string
		want           int
		says           string
	}{
		"a program on the machine":    {"127.0.0.1:40000", "", 200, ""},
		"the same over IPv6":          {"[::1]:40000", "", 200, ""},
		"the same, mapped":            {"[::ffff:127.0.0.1]:40000", "", 200, ""},
		"at an address of its own":    {"192.0.2.7:40000", "", 200, ""},
		"another machine":             {"192.0.2.1:40000", "", 403, "only the server's own machine"},
		"another machine over IPv6":   {"[fe80::1%eth0]:40000", "", 403, "only the server's own machine"},
		"a browser on the machine":    {"127.0.0.1:40000", "https://example.org", 403, "a browser may not"},
		"a page without an origin":    {"127.0.0.1:40000", "null", 403, "a browser may not"},
		"nobody knows where it comes": {"", "", 403, "only the server's own machine"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, request := range []*http.Request{
				httptest.NewRequest("PUT", "/workers/gw1/drain", nil),
				httptest.NewRequest("DELETE", "/workers/gw1/drain", nil),
				httptest.NewRequest("POST", "/rebalance", nil),
				httptest.NewRequest("DELETE", "/rebalance", nil),
			} {
				request = request.WithContext(context.WithValue(request.Context(), http.LocalAddrContextKey,
					&net.TCPAddr{IP: net.IPv4(192, 0, 2, 7), Port: 5001}))
				request.RemoteAddr = tt.remote
				if tt.origin != "" {
					request.Header.Set("Origin", tt.origin)
				}
				answer := httptest.NewRecorder()
				handler.ServeHTTP(answer, request)
				if answer.Code != tt.want || !strings.Contains(answer.Body.String(), tt.says) {
					t.Errorf("%s %s: %d %s, want %d", request.Method, request.URL, answer.Code, answer.Body, tt.want)
				}
			}
			look := httptest.NewRequest("GET", "/workers", nil)
			look.RemoteAddr = tt.remote
			answer := httptest.NewRecorder()
			if handler.ServeHTTP(answer, look); answer.Code != 200 {
				t.Errorf("a look is answered with %d", answer.Code)
			}
		})
	}
}
