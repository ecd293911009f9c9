package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"wgsteer/internal/config"
	"wgsteer/server/internal/web"
)

// Client asks a server that runs on this machine.
type Client struct {
	http http.Client
	// listen is what the server's config says, for errors.
	listen string
	// base is what URLs begin with.
	base string
}

// answerWithin is how long an answer may take: a lever waits for the disk.
const answerWithin = 15 * time.Second

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 16 << 20

// NewClient returns a client for the server whose admin server listens at that address, as
// New takes it.
func NewClient(listen string) (*Client, error) {
	if listen == "" {
		return nil, errors.New("the config has server.admin_listen: off, so the server cannot be asked: take that out and restart the server")
	}
	c := &Client{listen: listen, base: "http://wgsteer-server"}
	transport := &http.Transport{DisableKeepAlives: true}
	if path, isPath := strings.CutPrefix(listen, config.UnixPrefix); isPath {
		transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}
	} else {
		address, err := web.Reach(listen)
		if err != nil {
			return nil, err
		}
		c.base = "http://" + address
	}
	c.http = http.Client{Transport: transport, Timeout: answerWithin}
	return c, nil
}

// Explain asks how the choice for a node comes about. key and location may be empty.
func (c *Client) Explain(ctx context.Context, domain, key, location string) (e Explanation, err error) {
	err = c.do(ctx, http.MethodGet, "/explain/"+url.PathEscape(domain), url.Values{"key": {key}, "location": {location}}, &e)
	return e, err
}

// Workers asks what is known of the workers.
func (c *Client) Workers(ctx context.Context) ([]Worker, error) {
	var body struct {
		Workers []Worker `json:"workers"`
	}
	err := c.do(ctx, http.MethodGet, "/workers", nil, &body)
	return body.Workers, err
}

// Drain has the worker get no new nodes and so many a minute taken away.
func (c *Client) Drain(ctx context.Context, worker string, evict int, force bool) (d Done, err error) {
	err = c.do(ctx, http.MethodPut, drainPath(worker), url.Values{"evict": {strconv.Itoa(evict)}, "force": {strconv.FormatBool(force)}}, &d)
	return d, err
}

// Undrain ends that.
func (c *Client) Undrain(ctx context.Context, worker string) (d Done, err error) {
	err = c.do(ctx, http.MethodDelete, drainPath(worker), nil, &d)
	return d, err
}

// Trust ends the suspicion of a worker.
func (c *Client) Trust(ctx context.Context, worker string) (d Done, err error) {
	err = c.do(ctx, http.MethodPut, "/workers/"+url.PathEscape(worker)+"/trust", nil, &d)
	return d, err
}

func drainPath(worker string) string { return "/workers/" + url.PathEscape(worker) + "/drain" }

// Rebalancing asks for the rebalancing that is under way, and for what there is to be moved.
func (c *Client) Rebalancing(ctx context.Context) (r Rebalancing, err error) {
	err = c.do(ctx, http.MethodGet, "/rebalance", nil, &r)
	return r, err
}

// StartRebalance begins to move so many nodes a minute.
func (c *Client) StartRebalance(ctx context.Context, rate int) (j Job, err error) {
	err = c.do(ctx, http.MethodPost, "/rebalance", url.Values{"rate": {strconv.Itoa(rate)}}, &j)
	return j, err
}

// StopRebalance ends the rebalancing that is under way.
func (c *Client) StopRebalance(ctx context.Context) (j Job, err error) {
	err = c.do(ctx, http.MethodDelete, "/rebalance", nil, &j)
	return j, err
}

// do makes a request and reads the answer.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, into any) error {
	request, err := http.NewRequestWithContext(ctx, method, c.base+path+"?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("no answer at %s: does wgsteer-server run on this machine, with this config? (%w)", c.listen, errors.Unwrap(err))
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.listen, err)
	}
	if response.StatusCode == http.StatusOK && json.Unmarshal(body, into) == nil {
		return nil
	}
	var refused problem
	if json.Unmarshal(body, &refused) == nil && refused.Error.Message != "" {
		return errors.New(refused.Error.Message)
	}
	return fmt.Errorf("what answers at %s (with %s) is not the admin server of wgsteer-server", c.listen, response.Status)
}
