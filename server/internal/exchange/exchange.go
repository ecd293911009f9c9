package exchange

import (
	"errors"
	"log/slog"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"github.com/prometheus/client_golang/prometheus"

	"wgsteer/internal/peer"
	"wgsteer/internal/steering"
	"wgsteer/server/internal/web"
)

// Workers is the weighting table.
type Workers interface {
	// Knows tells whether a domain is configured.
	Knows(domain string) bool
	// IsWorkerKey tells whether a key is that of a worker.
	IsWorkerKey(key peer.Key) bool
	// Assign picks the worker for a node. ok is false when no worker offers the domain.
	Assign(ask steering.Ask, now time.Time) (a steering.Assignment, ok bool)
	// Unserved returns the configured domains that no worker offers.
	Unserved() []string
}

// Publisher sends keys to the workers of a domain.
type Publisher interface {
	PublishKey(domain string, key peer.Key) error
}

// Keys are the keys that were accepted.
type Keys interface {
	// Accept makes a key one that is sent to workers that subscribe from now on.
	Accept(domain string, key peer.Key, now time.Time)
	// Save records where a key was sent, "" for nowhere. The key survives the end of the
	// process when it returns nil; otherwise it is remembered all the same.
	Save(domain string, key peer.Key, worker string, now time.Time) error
	// Fault is why keys do not survive the process, or nil.
	Fault() error
}

// Config is how nodes reach the API.
type Config struct {
	// Listen is a TCP address, host:port.
	Listen string
	Settings
}

// Settings are what can be changed later.
type Settings struct {
	// RateLimit is how many exchanges a source address may make per minute; 0 is no limit.
	RateLimit int
	// Locations are those of the workers, sorted.
	Locations []string
}

// API answers the exchanges of nodes.
type API struct {
	*web.Server
	workers   Workers
	keys      Keys
	publisher Publisher
	log       *slog.Logger
	exchanges *prometheus.CounterVec
	unsaved   prometheus.Counter
	rate      atomic.Pointer[rateLimit]
	locations atomic.Pointer[[]string]
}

// New listens on the configured address. Requests are served by Run.
func New(config Config, workers Workers, keys Keys, publisher Publisher, log *slog.Logger, registry prometheus.Registerer) (*API, error) {
	a := &API{
		workers: workers, keys: keys, publisher: publisher, log: log,
		exchanges: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "wgsteer_exchanges_total",
			Help: "Exchanges by version of the API and by result: \"ok\", or why they were refused.",
		}, []string{"version", "result"}),
		unsaved: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "wgsteer_exchanges_unsaved_total",
			Help: "Exchanges that were answered although their key could not be saved.",
		}),
	}
	registry.MustRegister(a.exchanges, a.unsaved)
	a.Configure(config.Settings)
	var err error
	a.Server, err = web.Listen("HTTP server", config.Listen, a.routes(), log)
	return a, err
}

// Configure changes the settings. When the rate limit changes, everybody starts anew.
func (a *API) Configure(settings Settings) {
	a.locations.Store(&settings.Locations)
	if now := a.rate.Load(); now == nil || now.perMinute != settings.RateLimit {
		a.rate.Store(newRateLimit(settings.RateLimit))
	}
}

// routes are the paths of the API.
func (a *API) routes() http.Handler {
	e := echo.New()
	e.HTTPErrorHandler = a.refuse
	e.Use(middleware.RecoverWithConfig(middleware.RecoverConfig{LogErrorFunc: func(c echo.Context, err error, stack []byte) error {
		a.log.Error("exchange failed", "path", c.Path(), "error", err, "stack", string(stack))
		return err
	}}))
	e.POST("/api/v1/wg/key/exchange", a.exchangeV1, a.limitRate)
	e.POST("/api/v2/wg/key/exchange", a.exchangeV2, a.limitRate)
	e.Match([]string{http.MethodGet, http.MethodHead}, "/api/v1/locations", a.listLocations)
	e.Match([]string{http.MethodGet, http.MethodHead}, "/healthz", a.healthz)
	e.Match([]string{http.MethodGet, http.MethodHead}, "/readyz", a.readyz)
	return e
}

// v1OK is the whole answer to a v1 exchange.
const v1OK = `{"Message":"OK"}`

func (a *API) exchangeV1(c echo.Context) error {
	c.Set(versionKey, "v1")
	req, err := a.accept(c, false)
	if err != nil {
		return err
	}
	a.save(req, "")
	a.exchanges.WithLabelValues("v1", "ok").Inc()
	return c.JSONBlob(http.StatusOK, []byte(v1OK))
}

// endpoint is how a v2 answer names the worker. The fields are the wire's.
type endpoint struct {
	Address    string
	Port       string
	AllowedIPs []string
	PublicKey  string
}

func (a *API) exchangeV2(c echo.Context) error {
	c.Set(versionKey, "v2")
	req, err := a.accept(c, true)
	if err != nil {
		return err
	}
	assigned, ok := a.workers.Assign(steering.Ask{Domain: req.domain, Key: req.key, Location: req.location}, time.Now())
	a.save(req, assigned.Worker)
	if !ok {
		return errNoWorker
	}
	a.exchanges.WithLabelValues("v2", "ok").Inc()
	a.log.Debug("exchange", "domain", req.domain, "key", req.key, "worker", assigned.Worker)
	data := assigned.Data
	return answer(c, http.StatusOK, struct{ Endpoint endpoint }{endpoint{
		Address:    data.ExternalAddress,
		Port:       strconv.Itoa(int(data.Port)),
		AllowedIPs: []string{data.LinkAddress.String()},
		PublicKey:  data.PublicKey.String(),
	}})
}

// accept reads an exchange and sends its key to the workers, also when none of them is
// online. A worker that subscribes meanwhile is sent it, too: it is accepted before.
func (a *API) accept(c echo.Context, located bool) (request, error) {
	req, err := readRequest(c.Request(), a.workers, located)
	if err != nil {
		return request{}, err
	}
	a.keys.Accept(req.domain, req.key, time.Now())
	if err := a.publisher.PublishKey(req.domain, req.key); err != nil {
		a.log.Error("exchange failed", "domain", req.domain, "key", req.key, "error", err)
		return request{}, errors.New("the key could not be published")
	}
	return req, nil
}

// save has the key survive before its exchange is answered. A disk that fails keeps no
// node offline.
func (a *API) save(req request, worker string) {
	if err := a.keys.Save(req.domain, req.key, worker, time.Now()); err != nil {
		a.unsaved.Inc()
	}
}
