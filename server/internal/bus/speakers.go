package bus

import (
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
type session struct {
	worker string
	ended  bool // guarded by Bus.reports
}

// speak makes a new session the one that speaks for the worker.
func (b *Bus) speak(worker string) *session {
	b.reports.Lock()
	defer b.reports.Unlock()
	s := &session{worker: worker}
	b.speakers[worker] = s
	return s
}

// end ends a session, and takes its worker offline unless a later one speaks for it.
func (b *Bus) end(s *session) {
	b.reports.Lock()
	defer b.reports.Unlock()
	s.ended = true
	if b.speakers[s.worker] != s {
		return
	}
	delete(b.speakers, s.worker)
	if b.setStatus(s.worker, false, "its session ended") {
		b.publish(topics.Topic{Kind: topics.Status, Worker: s.worker}, []byte(report.Offline), 1)
	}
}

// late tells whether a status comes from a session that has ended: what was on its
// way then no longer holds.
func (s *session) late(worker string) bool {
	return s != nil && s.ended && s.worker == worker
}

// setStatus records a worker's status, and logs it if it is news. Bus.reports is held.
func (b *Bus) setStatus(worker string, online bool, why string) (changed bool) {
	if changed = b.table.SetStatus(worker, online); changed {
		event := "worker offline"
		if online {
			event = "worker online"
		}
		b.log.Info(event, "worker", worker, "reason", why)
	}
	return changed
}
