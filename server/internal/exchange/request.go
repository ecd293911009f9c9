package exchange

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"wgsteer/internal/exactjson"
	"wgsteer/internal/peer"
)

// maxBody is the largest body of an exchange, in bytes.
const maxBody = 4 << 10

// request is what a node asks.
type request struct {
	domain string
	key    peer.Key
	// location is where the node prefers its gateway to be. Empty: anywhere.
	location string
}

// maxLocation is the longest location that is looked at, in bytes. No worker has a longer
// one.
const maxLocation = 64

// refusal is an answer other than 200: an HTTP status and what to tell the node.
type refusal struct {
	status  int
	message string
	// reason names the refusal in metrics and logs.
	reason string
}

func (r *refusal) Error() string { return r.message }

var (
	errTooLarge  = &refusal{http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is larger than %d bytes", maxBody), "too large"}
	errBody      = &refusal{http.StatusBadRequest, "the body could not be read", "body"}
	errNotJSON   = &refusal{http.StatusBadRequest, "the body is not JSON", "not json"}
	errNotObject = &refusal{http.StatusBadRequest, "the body is not a JSON object", "not object"}
	errNoDomain  = &refusal{http.StatusBadRequest, "domain is missing", "domain"}
	errDomain    = &refusal{http.StatusBadRequest, "domain is not one that is served here", "domain"}
	errNoKey     = &refusal{http.StatusBadRequest, "public_key is missing", "key"}
	errKey       = &refusal{http.StatusBadRequest, "public_key is not a WireGuard public key", "key"}
	errWorkerKey = &refusal{http.StatusBadRequest, "public_key is the key of a gateway", "worker key"}
	errLocation  = &refusal{http.StatusBadRequest, "location is not text", "location"}
	errNoWorker  = &refusal{http.StatusServiceUnavailable, "no gateway is online for this domain", "no worker"}
	errRate      = &refusal{http.StatusTooManyRequests, "too many exchanges from this address", "rate"}
)

// readRequest reads an exchange, whatever its Content-Type says: nodes send JSON as
// a form. Fields that it does not know are ignored, and so is the location unless it is
// located.
func readRequest(r *http.Request, workers Workers, located bool) (request, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	if err != nil {
		return request{}, errBody
	}
	if len(body) > maxBody {
		return request{}, errTooLarge
	}
	return parseRequest(body, workers, located)
}

func parseRequest(body []byte, workers Workers, located bool) (request, error) {
	var req request
	var key string
	fields := []exactjson.Field{{Name: "domain", Into: &req.domain}, {Name: "public_key", Into: &key}}
	if located {
		fields = append(fields, exactjson.Field{Name: "location", Into: &req.location})
	}
	err := exactjson.Unmarshal(body, fields...)
	var field *exactjson.FieldError
	switch {
	case errors.As(err, &field) && field.Field == "domain":
		return request{}, errDomain
	case errors.As(err, &field) && field.Field == "location":
		return request{}, errLocation
	case errors.As(err, &field):
		return request{}, errKey
	case errors.Is(err, exactjson.ErrObject):
		return request{}, errNotObject
	case err != nil:
		return request{}, errNotJSON
	case req.domain == "":
		return request{}, errNoDomain
	case !workers.Knows(req.domain):
		return request{}, errDomain
	case key == "":
		return request{}, errNoKey
	}
	if req.key, err = peer.ParseKey(key); err != nil {
		return request{}, errKey
	}
	if workers.IsWorkerKey(req.key) {
		return request{}, errWorkerKey
	}
	if len(req.location) > maxLocation {
		req.location = ""
	}
	return req, nil
}
