package chaos

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"wgsteer/internal/lab"
)

// pingInterval is the time between two pings of a node.
const pingInterval = 200 * time.Millisecond

// pings are what a ping program reports, numbered from 1.
type pings struct {
	stop func()

	mu         sync.Mutex
	newest     int
	unanswered map[int]struct{}
	answeredAt time.Time
}

// startPings pings an address from the host until stop.
func startPings(host *lab.Host, to netip.Addr) (*pings, error) {
	ctx, cancel := context.WithCancel(context.Background())
	cmd := host.Command(ctx, "ping", "-n", "-O", "-i", fmt.Sprint(pingInterval.Seconds()), to.String())
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return nil, fmt.Errorf("ping from host %s: %w", host.Name(), err)
	}
	p := &pings{unanswered: make(map[int]struct{})}
	var reading sync.WaitGroup
	reading.Go(func() { p.read(out) })
	p.stop = sync.OnceFunc(func() {
		cancel()
		reading.Wait()
		_ = cmd.Wait() // was killed
	})
	return p, nil
}

var sequence = regexp.MustCompile(`icmp_seq=(\d+)`)

func (p *pings) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		match := sequence.FindStringSubmatch(lines.Text())
		if match == nil {
			continue
		}
		if number, err := strconv.ParseUint(match[1], 10, 16); err == nil {
			p.note(uint16(number), strings.Contains(lines.Text(), "bytes from"))
		}
	}
}

// note takes a line about a ping, by the 16 bits of its number that are sent.
func (p *pings) note(number uint16, answered bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.newest + int(int16(number-uint16(p.newest)))
	for p.newest < n {
		p.newest++
		p.unanswered[p.newest] = struct{}{}
	}
	if answered {
		delete(p.unanswered, n)
		p.answeredAt = time.Now()
	}
}

// last is the newest ping that is known to be sent.
func (p *pings) last() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.newest
}

func (p *pings) lastAnswer() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.answeredAt
}

// lost counts the pings after one, up to another, that are not answered.
func (p *pings) lost(after, to int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	lost := 0
	for n := range p.unanswered {
		if after < n && n <= to {
			lost++
		}
	}
	return lost
}
