// Package admin is the HTTP side for operators: metrics.
package admin

import (
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"wgsteer/server/internal/web"
)

// New listens on a TCP address, host:port, and serves the metrics of the registry at
// /metrics.
func New(address string, log *slog.Logger, registry *prometheus.Registry) (*web.Server, error) {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return web.Listen("admin server", address, mux, log)
}
