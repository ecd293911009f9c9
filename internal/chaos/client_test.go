package chaos

import (
	"bytes"
	"context"
	crand "crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	"wgsteer/internal/lab"
	"wgsteer/internal/peer"
)

// entry is a key in a domain, which is named by its index.
type entry struct {
	domain int
	key    peer.Key
}

// client posts keys all the time, as nodes do, and remembers what was answered. A key
// that was not answered with 200 is posted again until it is.
type client struct {
	http *http.Client
	base string
	// endpoints are the answers of v2 that may be given, by domain.
	endpoints [][]lab.Endpoint
	stop      func()

	rng *rand.Rand // belongs to the posting goroutine

	mu sync.Mutex
	// known are the keys that were answered with 200, pending those that were or are to
	// be posted and were not.
	known, pending []entry
	isKnown        map[entry]bool
	// address has the link addresses of both.
	address map[entry]string
	// newKeys is how many may still be made in this round.
	newKeys  int
	wrong    error
	counters counters
}

// counters are about the client's posts.
type counters struct{ ok, unserved, failed int }

const (
	// postInterval is the time between two posts.
	postInterval = 50 * time.Millisecond
	// postTimeout is longer than the server may take, and shorter than a node waits.
	postTimeout = 3 * time.Second
)

func newClient(m *mesh) *client {
	c := &client{
		http: m.outside.Client(), base: "http://" + netip.AddrPortFrom(m.central.Addr(), 5000).String(),
		rng:     rand.New(rand.NewPCG(*seed, 1)),
		address: make(map[entry]string), isKnown: make(map[entry]bool),
	}
	for d := range segments() {
		var endpoints []lab.Endpoint
		for _, g := range m.gateways {
			endpoints = append(endpoints, g.segments[d].Endpoint())
		}
		c.endpoints = append(c.endpoints, endpoints)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var posting sync.WaitGroup
	posting.Go(func() { c.run(ctx) })
	c.stop = func() { cancel(); posting.Wait() }
	return c
}

func (c *client) run(ctx context.Context) {
	tick := time.NewTicker(postInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if e, ok := c.choose(); ok {
				c.post(ctx, 1+c.rng.IntN(2), e)
			}
		}
	}
}

// want has a key posted.
func (c *client) want(e entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pending = append(c.pending, e)
	c.address[e] = schemeOf.LinkAddress(e.key).String()
}

// probe has a new key posted in every domain. It reaches a gateway only if all that is
// between the client and the gateway works again.
func (c *client) probe() {
	for d := range c.endpoints {
		c.want(entry{d, newKey()})
	}
}

// burstKeys are enough for a file of the server's state to grow.
const burstKeys = 60

// burst posts many new keys at once.
func (c *client) burst() {
	var posting sync.WaitGroup
	for range burstKeys {
		e := entry{rand.IntN(len(c.endpoints)), newKey()}
		c.want(e)
		posting.Go(func() { c.post(context.Background(), 1, e) })
	}
	posting.Wait()
}

// stateFault tells whether the server says that it cannot write its state.
func (c *client) stateFault(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/readyz", nil)
	if err != nil {
		return false
	}
	response, err := c.http.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body)
	return bytes.Contains(body, []byte(`"state"`))
}

// newKey returns a key that nobody has the private half of.
func newKey() (key peer.Key) {
	_, _ = crand.Read(key[:]) // never fails
	return key
}

// allow lets the client make more new keys.
func (c *client) allow(newKeys int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newKeys = newKeys
}

// choose picks what to post: mostly what waits or is new, and now and then a key that
// was answered. Posting those too often would repair what a fault has broken.
func (c *client) choose() (entry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	dice := c.rng.IntN(20)
	if len(c.pending) > 0 && dice < 15 {
		return c.pending[c.rng.IntN(len(c.pending))], true
	}
	var e entry
	switch {
	case dice == 19 && len(c.known) > 0:
		return c.known[c.rng.IntN(len(c.known))], true
	case c.newKeys == 0 || dice >= 4:
		return entry{}, false
	case dice == 0 && len(c.known) > 0: // a node that has a tunnel in both domains
		e = c.known[c.rng.IntN(len(c.known))]
		e.domain = 1 - e.domain
		if c.isKnown[e] {
			return entry{}, false
		}
	default:
		e = entry{c.rng.IntN(len(c.endpoints)), randomKey(c.rng)}
	}
	c.newKeys--
	c.pending = append(c.pending, e)
	c.address[e] = schemeOf.LinkAddress(e.key).String()
	return e, true
}

func randomKey(rng *rand.Rand) (key peer.Key) {
	for i := 0; i < len(key); i += 8 {
		binary.LittleEndian.PutUint64(key[i:], rng.Uint64())
	}
	return key
}

// post makes one exchange, by that version of the API.
func (c *client) post(ctx context.Context, version int, e entry) {
	status, body, err := c.send(ctx, version, e)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err != nil:
		c.counters.failed++
	case status == http.StatusOK:
		c.counters.ok++
		c.note(e)
		c.accuse(c.checkAnswer(version, e, body))
	case status == http.StatusServiceUnavailable && version == 2:
		c.counters.unserved++
	default:
		c.accuse(fmt.Errorf("an exchange of version %d was answered with %d: %s", version, status, body))
	}
}

func (c *client) send(ctx context.Context, version int, e entry) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, postTimeout)
	defer cancel()
	request, err := json.Marshal(map[string]string{"domain": domainName(e.domain), "public_key": e.key.String()})
	if err != nil {
		return 0, nil, err
	}
	url := fmt.Sprintf("%s/api/v%d/wg/key/exchange", c.base, version)
	post, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(request))
	if err != nil {
		return 0, nil, err
	}
	post.Header.Set("User-Agent", lab.UserAgent)
	response, err := c.http.Do(post)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	body, err = io.ReadAll(response.Body)
	return response.StatusCode, body, err
}

// note takes a key as answered with 200. client.mu is held.
func (c *client) note(e entry) {
	if c.isKnown[e] {
		return
	}
	c.isKnown[e] = true
	c.known = append(c.known, e)
	c.pending = slices.DeleteFunc(c.pending, func(waiting entry) bool { return waiting == e })
}

// checkAnswer returns an error unless the answer is complete and names a gateway.
func (c *client) checkAnswer(version int, e entry, body []byte) error {
	if version == 1 {
		if string(body) != `{"Message":"OK"}` {
			return fmt.Errorf("a v1 exchange was answered with 200 and %q", body)
		}
		return nil
	}
	for _, endpoint := range c.endpoints[e.domain] {
		want, err := json.Marshal(struct{ Endpoint lab.Endpoint }{endpoint})
		if err == nil && bytes.Equal(want, body) {
			return nil
		}
	}
	return fmt.Errorf("a v2 exchange was answered with 200 and no gateway of the domain: %q", body)
}

// accuse keeps what the server did wrong. client.mu is held.
func (c *client) accuse(err error) { c.wrong = errors.Join(c.wrong, err) }

// problem is what the server did wrong so far.
func (c *client) problem() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wrong
}

// answered counts the keys that were answered with 200.
func (c *client) answered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.known)
}

// entries are the keys that were answered with 200.
func (c *client) entries() []entry {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.known)
}

// repeat has the keys posted again that were answered after so many others: the server
// may have forgotten them.
func (c *client) repeat(after int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.known[after:] {
		delete(c.isKnown, e)
		c.pending = append(c.pending, e)
	}
	c.known = c.known[:after]
}

// knows tells whether the key was answered with 200.
func (c *client) knows(e entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isKnown[e]
}

// due are the keys that have to be on every gateway now, by domain: a copy, as key and
// address.
func (c *client) due() []map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	due := make([]map[string]string, len(c.endpoints))
	for d := range due {
		due[d] = make(map[string]string, len(c.known))
	}
	for _, e := range c.known {
		due[e.domain][e.key.String()] = c.address[e]
	}
	return due
}

// possible are the keys that may be on a gateway, by domain: those due, and those that
// are being posted. Both by address.
func (c *client) possible() []map[string]bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	possible := make([]map[string]bool, len(c.endpoints))
	for d := range possible {
		possible[d] = make(map[string]bool, len(c.address))
	}
	for e, address := range c.address {
		possible[e.domain][address] = true
	}
	return possible
}

// waiting counts the keys that were or are to be posted and are not answered with 200 yet.
func (c *client) waiting() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.pending)
}
