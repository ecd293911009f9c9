// Package admin is the HTTP side for operators: metrics, how choices come about, and the
// levers. It has both ends of it: the server, and the client for the commands.
package admin

import (
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"wgsteer/internal/config"
	"wgsteer/internal/steering"
	"wgsteer/server/internal/levers"
	"wgsteer/server/internal/web"
)

// Table is the weighting table.
type Table interface {
	// Explain returns how the choice for a node would come about. ok is false when the
	// domain is not configured.
	Explain(ask steering.Ask, now time.Time) (e steering.Explanation, ok bool)
	// Imbalance returns the moves that the balance demands.
	Imbalance(within float64, now time.Time) []steering.Move
	// States returns what is known of the workers, heard of or only configured.
	States() []steering.State
	// Offering returns the configured domains, and how many workers nodes can be sent to in
	// each.
	Offering() map[string]int
}

// Levers are what an operator can do.
type Levers interface {
	Drain(worker string, evict int, force bool) (note string, err error)
	Undrain(worker string) (changed bool, note string, err error)
	Drains() map[string]levers.Drain
	Trust(worker string) (changed bool, err error)
	StartRebalance(perMinute int) (levers.Job, error)
	StopRebalance() (j levers.Job, ok bool)
	Rebalancing() (j levers.Job, ok bool)
}

// New listens on an address, host:port, or config.UnixPrefix and the path of a socket. It
// also registers the metrics of workers.
func New(address string, table Table, levers Levers, log *slog.Logger, registry *prometheus.Registry) (*web.Server, error) {
	handler := routes(&api{table: table, levers: levers}, promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	path, isPath := strings.CutPrefix(address, config.UnixPrefix)
	listen, where := web.Listen, address
	if isPath {
		listen, where = web.ListenUnix, path
	}
	server, err := listen("admin server", where, handler, log)
	if err != nil {
		return nil, err
	}
	registry.MustRegister(newWorkerMetrics(table))
	return server, nil
}

// api answers operators.
type api struct {
	table  Table
	levers Levers
}

// handler answers a request with a value, which becomes JSON, or an error.
type handler func(*http.Request) (any, error)

func routes(a *api, metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.Handle("GET /explain/{domain}", look(a.explain))
	mux.Handle("GET /workers", look(a.workers))
	mux.Handle("PUT /workers/{worker}/drain", change(a.drain))
	mux.Handle("DELETE /workers/{worker}/drain", change(a.undrain))
	mux.Handle("PUT /workers/{worker}/trust", change(a.trust))
	mux.Handle("GET /rebalance", look(a.rebalancing))
	mux.Handle("POST /rebalance", change(a.rebalance))
	mux.Handle("DELETE /rebalance", change(a.stopRebalance))
	mux.Handle("/", look(func(*http.Request) (any, error) {
		return nil, &refusal{http.StatusNotFound, "there is nothing here, or not for this method"}
	}))
	return mux
}

// refusal is an answer other than 200.
type refusal struct {
	status  int
	message string
}

func (r *refusal) Error() string { return r.message }

// look answers a request that changes nothing.
func look(handle handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		value, err := handle(r)
		answer(w, value, err)
	})
}

// change answers a request that changes something, if it may.
func change(handle handler) http.Handler {
	return look(func(r *http.Request) (any, error) {
		if err := mayChange(r); err != nil {
			return nil, err
		}
		return handle(r)
	})
}

// mayChange returns an error unless a request comes from a program on this machine. A
// browser on it can be made to send one by any page that it shows.
func mayChange(r *http.Request) error {
	if r.Header.Get("Origin") != "" {
		return &refusal{http.StatusForbidden, "a browser may not change anything here"}
	}
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok && local.Network() == "unix" {
		return nil
	}
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !remote.Addr().Unmap().IsLoopback() && !isSame(remote, r.Context().Value(http.LocalAddrContextKey)) {
		return &refusal{http.StatusForbidden, "only the server's own machine may change anything here: run the command there"}
	}
	return nil
}

// isSame tells whether a connection comes from the address that it goes to: a machine
// reaches an address of its own from that address.
func isSame(remote netip.AddrPort, local any) bool {
	tcp, ok := local.(*net.TCPAddr)
	return ok && tcp.AddrPort().Addr().Unmap() == remote.Addr().Unmap()
}

func answer(w http.ResponseWriter, value any, err error) {
	status := http.StatusOK
	if err != nil {
		status, value = statusOf(err), problem{message{err.Error()}}
	}
	body, err := json.Marshal(value)
	if err != nil {
		status, body = http.StatusInternalServerError, []byte(`{"error":{"message":"the answer cannot be written"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // who asked is gone
}

// problem is the answer to a request that was refused.
type problem struct {
	Error message `json:"error"`
}

type message struct {
	Message string `json:"message"`
}

func statusOf(err error) int {
	var refused *refusal
	switch {
	case errors.As(err, &refused):
		return refused.status
	case errors.Is(err, levers.ErrUnknownWorker):
		return http.StatusNotFound
	case errors.Is(err, levers.ErrRunning):
		return http.StatusConflict
	}
	return http.StatusBadRequest
}
