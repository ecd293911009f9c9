package bus

import (
	"context"
	"errors"
	"time"

	"wgsteer/internal/report"
	"wgsteer/topics"
)

// After a restart, the server knows its workers from what they last reported, and can
// answer nodes at once. A worker has to come back for that to hold.

// returnWithin is how long a worker that was online may take to come back after a
// restart of the server: agents try every five seconds at least.
const returnWithin = 30 * time.Second

// restore puts the saved reports into the table and publishes them.
func (b *Bus) restore() {
	if b.memory == nil {
		return
	}
	saved, err := b.memory.Reports()
	if err != nil {
		b.log.Error("saved reports cannot be read: waiting for new ones", "error", err)
		return
	}
	b.reports.Lock()
	defer b.reports.Unlock()
	for text, payload := range saved {
		m, err := b.read(text, payload)
		if errors.Is(err, errDomain) {
			b.remember(m.topic, text, payload)
		}
		if err != nil || m.topic.Kind == topics.Key || m.topic.Kind == topics.Evict {
			continue
		}
		if m.topic.Kind == topics.Status {
			b.setStatus(m.topic.Worker, m.online, "it was before the restart")
			if m.online {
				b.awaited[m.topic.Worker] = struct{}{}
			}
		} else {
			m.apply(b)
		}
		b.publish(m.topic, payload, 1)
	}
}

// dropMissing takes those offline that have not come back in time, once.
func (b *Bus) dropMissing(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-time.After(returnWithin):
	}
	b.reports.Lock()
	defer b.reports.Unlock()
	for worker := range b.awaited {
		if b.setStatus(worker, false, "it did not come back after the restart") {
			b.publishAndSave(topics.Topic{Kind: topics.Status, Worker: worker}, []byte(report.Offline), 1)
		}
	}
	clear(b.awaited)
}
