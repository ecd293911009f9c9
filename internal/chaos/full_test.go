package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// drawDisk draws a disk that is full for a while. Either many new keys come meanwhile,
// so that files have to grow, or the server stops, which deletes some of its files, and
// cannot make them again when it starts.
func drawDisk(rng *rand.Rand) fault {
	before, after, restart := between(rng, 500*time.Millisecond, 2*time.Second), between(rng, 500*time.Millisecond, 2*time.Second), rng.IntN(2) == 0
	o := outage{gateway: theServer, kill: rng.IntN(4) == 0, steers: true}
	params := fmt.Sprintf("for %v, many keys", before+after)
	if restart {
		params = fmt.Sprintf("for %v, %v after %v", before+after, o, before)
	}
	return fault{
		params: params,
		inject: func(ctx context.Context, m *mesh) error {
			safe := m.client.answered()
			free, err := m.disk.fill()
			if err != nil {
				return err
			}
			if !restart {
				m.client.burst()
			}
			if err := pause(ctx, before); err != nil {
				return errors.Join(err, free())
			}
			if restart {
				err = o.run(ctx, m)
				// Those that were answered while the disk was full were in memory only.
				m.client.repeat(safe)
			}
			err = errors.Join(err, pause(ctx, after))
			noticed := m.client.stateFault(ctx)
			if noticed {
				m.fullNoticed++
			} else if restart && !o.kill {
				err = errors.Join(err, errors.New("the server does not say that its disk is full"))
			}
			return errors.Join(err, free())
		},
		also: func(ctx context.Context, m *mesh) error { return m.allOnDisk(ctx) },
	}
}

// allOnDisk returns an error unless every key that was answered with 200 is on disk.
func (m *mesh) allOnDisk(ctx context.Context) error {
	due := m.client.entries()
	saved, err := m.disk.keys(ctx)
	if err != nil {
		return err
	}
	for _, e := range due {
		if !saved[e] {
			return fmt.Errorf("the key %v in %s is not on disk", e.key, domainName(e.domain))
		}
	}
	return nil
}
