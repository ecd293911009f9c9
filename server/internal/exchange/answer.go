package exchange

import (
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/labstack/echo/v4/middleware"
	"golang.org/x/time/rate"
)

// versionKey is where a handler leaves the version of the API for the metrics.
const versionKey = "version"

// retryAfter is when a node should ask again that found no gateway, in seconds: by
// itself it asks every minute.
const retryAfter = 60

// refuse answers a request that was refused or has failed. What it tells never holds
// more than the refusals and the HTTP status texts.
func (a *API) refuse(err error, c echo.Context) {
	if c.Response().Committed {
		return
	}
	refused := refusalOf(err)
	if version, ok := c.Get(versionKey).(string); ok {
		a.exchanges.WithLabelValues(version, refused.reason).Inc()
		a.log.Debug("exchange refused", "version", version, "reason", refused.reason, "source", c.Request().RemoteAddr)
	}
	if refused.status == http.StatusServiceUnavailable {
		c.Response().Header().Set(echo.HeaderRetryAfter, strconv.Itoa(retryAfter))
	}
	var body struct {
		Error struct {
			Message string `json:"message"`
		} `json:"error"`
	}
	body.Error.Message = refused.message
	if err := answer(c, refused.status, body); err != nil {
		a.log.Debug("answer cannot be sent", "error", err)
	}
}

// answer sends a value as JSON, without the newline that echo would put after it.
func answer(c echo.Context, status int, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return c.JSONBlob(status, body)
}

// refusalOf returns the answer to an error of a handler or of the router.
func refusalOf(err error) *refusal {
	var refused *refusal
	if errors.As(err, &refused) {
		return refused
	}
	status := http.StatusInternalServerError
	var routed *echo.HTTPError
	if errors.As(err, &routed) {
		status = routed.Code
	}
	return &refusal{status: status, message: http.StatusText(status), reason: "failed"}
}

// healthz says that the process runs.
func (a *API) healthz(c echo.Context) error {
	return answer(c, http.StatusOK, map[string]string{"status": "ok"})
}

// readyz says whether every configured domain has a worker, and which have none. It
// also says that keys cannot be saved; the server is ready all the same.
func (a *API) readyz(c echo.Context) error {
	body := struct {
		Unserved []string `json:"domains_without_worker"`
		State    string   `json:"state,omitempty"`
	}{Unserved: a.workers.Unserved()}
	status := http.StatusOK
	if len(body.Unserved) > 0 {
		status = http.StatusServiceUnavailable
	}
	if a.keys.Fault() != nil {
		body.State = "cannot be written: keys are kept in memory only, see the log"
	}
	return answer(c, status, body)
}

// listLocations names the places that a node can ask for.
func (a *API) listLocations(c echo.Context) error {
	return answer(c, http.StatusOK, struct {
		Locations []string `json:"locations"`
	}{append([]string{}, *a.locations.Load()...)})
}

// rateLimit lets every source address make so many exchanges per minute.
type rateLimit struct {
	perMinute int
	limit     echo.MiddlewareFunc
}

// limitRate is a middleware that applies the rate limit of the moment.
func (a *API) limitRate(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error { return a.rate.Load().limit(next)(c) }
}

func newRateLimit(perMinute int) *rateLimit {
	r := &rateLimit{perMinute: perMinute}
	if perMinute == 0 {
		r.limit = func(next echo.HandlerFunc) echo.HandlerFunc { return next }
		return r
	}
	r.limit = middleware.RateLimiterWithConfig(middleware.RateLimiterConfig{
		Store: middleware.NewRateLimiterMemoryStoreWithConfig(middleware.RateLimiterMemoryStoreConfig{
			Rate: rate.Limit(float64(perMinute) / 60), Burst: perMinute, ExpiresIn: 2 * time.Minute,
		}),
		IdentifierExtractor: func(c echo.Context) (string, error) { return source(c.Request()), nil },
		DenyHandler: func(c echo.Context, _ string, _ error) error {
			c.Set(versionKey, "any")
			c.Response().Header().Set(echo.HeaderRetryAfter, strconv.Itoa(int(math.Ceil(60/float64(perMinute)))))
			return errRate
		},
	})
	return r
}

// source is who a request counts for: an IPv4 address, or the /64 of an IPv6 one,
// which one household has to itself.
func source(r *http.Request) string {
	remote, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	addr := remote.Addr().Unmap().WithZone("")
	if addr.Is4() {
		return addr.String()
	}
	return netip.PrefixFrom(addr, 64).Masked().String()
}
