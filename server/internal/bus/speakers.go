package bus

import (
	"time"

	"wgsteer/internal/report"
	"wgsteer/topics"
)

// A session that connects with a will on a worker's status topic speaks for the
// worker. When it ends, however it ends, and no later session has put its will
// there, the worker is offline. That is decided here and not by the library, which
// does not order an old session's will before the status that the session after it
// publishes.
//
// A status published by a session that speaks for nobody (a bridge, a script) holds
// until the next one.

// session is a client's session that speaks for a worker.
type session struct{ worker string }

// speak makes a new session the one that speaks for the worker.
func (b *Bus) speak(worker string) *session {
	b.reports.Lock()
	defer b.reports.Unlock()
	s := &session{worker: worker}
	b.speakers[worker] = s
	delete(b.awaited, worker)
	return s
}

// end takes the worker of a session that has ended offline, unless a later session
// speaks for it.
func (b *Bus) end(s *session) {
	b.reports.Lock()
	defer b.reports.Unlock()
	if b.stopping || b.speakers[s.worker] != s {
		return
	}
	delete(b.speakers, s.worker)
	if b.setStatus(s.worker, false, "its session ended") {
		b.publishAndSave(topics.Topic{Kind: topics.Status, Worker: s.worker}, []byte(report.Offline), 1)
	}
}

// setStatus records a worker's status, and logs it if it is news. Bus.reports is held.
func (b *Bus) setStatus(worker string, online bool, why string) (changed bool) {
	if changed = b.table.SetStatus(worker, online, time.Now()); changed {
		event := "worker offline"
		if online {
			event = "worker online"
		}
		b.log.Info(event, "worker", worker, "reason", why)
	}
	return changed
}
