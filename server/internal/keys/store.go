package keys

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"wgsteer/internal/peer"
)

// Store is the keys that are alive.
type Store struct {
	ttl  time.Duration
	disk Disk

	mu      sync.Mutex
	domains map[string]map[peer.Key]*record
	// unsaved are records whose newer times can wait to be written until the next flush.
	unsaved map[id]struct{}
}

// id is what tells records apart: a node may have a tunnel in more than one domain.
type id struct {
	domain string
	key    peer.Key
}

// record is what is known of a key in a domain. Times are Unix seconds; zero: never.
type record struct {
	first, exchanged, handshake, assigned int64
	worker                                string
	// saved is the last sign of life that is on disk; zero: the key is not there.
	saved int64
}

// alive is the last sign of life.
func (r *record) alive() int64 { return max(r.exchanged, r.handshake) }

// freshParts is how many times in its time to live a key's signs of life are written
// anew: a key can be forgotten that much too early after a restart, and no earlier.
const freshParts = 24

// fresh tells whether a sign of life at this time can stay unwritten.
func (s *Store) fresh(r *record, at int64) bool {
	return r.saved != 0 && at-r.saved < int64(s.ttl/time.Second)/freshParts
}

// New returns a store of the keys that are on disk, which is nil for none. Keys live
// for ttl, of which only whole seconds count.
func New(ttl time.Duration, disk Disk, now time.Time) (*Store, error) {
	s := &Store{
		ttl: ttl, disk: disk,
		domains: make(map[string]map[peer.Key]*record),
		unsaved: make(map[id]struct{}),
	}
	if disk == nil {
		return s, nil
	}
	return s, s.load(now)
}

// record returns the record of a key, which may be new. Store.mu is held.
func (s *Store) record(which id) *record {
	d := s.domains[which.domain]
	if d == nil {
		d = make(map[peer.Key]*record)
		s.domains[which.domain] = d
	}
	r := d[which.key]
	if r == nil {
		r = &record{}
		d[which.key] = r
	}
	return r
}

// Accept makes the key alive: it made an exchange. From now on it is among those that
// a worker is sent that subscribes.
func (s *Store) Accept(domain string, key peer.Key, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.accept(id{domain, key}, now)
}

func (s *Store) accept(which id, now time.Time) *record {
	r, at := s.record(which), now.Unix()
	if r.first == 0 {
		r.first = at
	}
	r.exchanged = max(r.exchanged, at)
	return r
}

// Save accepts the key and records to which worker it was sent, "" for none. When it
// returns nil, the key survives the end of the process; an error says that it does not,
// because of the disk. The key is alive in any case.
func (s *Store) Save(domain string, key peer.Key, worker string, now time.Time) error {
	which := id{domain, key}
	s.mu.Lock()
	r := s.accept(which, now)
	moved := worker != "" && worker != r.worker
	if worker != "" {
		r.worker, r.assigned = worker, now.Unix()
	}
	fresh := s.fresh(r, now.Unix())
	if fresh && moved {
		s.saveLater(which)
	}
	row := row{which, *r}
	s.mu.Unlock()
	if fresh || s.disk == nil {
		return nil
	}
	if err := s.disk.Write(row.save); err != nil {
		return err
	}
	s.saved(row)
	return nil
}

// Handshakes records that a worker has seen handshakes of the keys. A key that is not
// known yet is now: its node is connected, whoever let it in.
func (s *Store) Handshakes(domain string, keys []peer.Key, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := now.Unix()
	for _, key := range keys {
		which := id{domain, key}
		r := s.record(which)
		if r.first == 0 {
			r.first = at
		}
		r.handshake = max(r.handshake, at)
		if !s.fresh(r, at) {
			s.saveLater(which)
		}
	}
}

// saveLater has a record written at the next flush. Store.mu is held.
func (s *Store) saveLater(which id) {
	if s.disk != nil {
		s.unsaved[which] = struct{}{}
	}
}

// Live returns the keys of the domain that are alive, the one with the latest sign of
// life first.
func (s *Store) Live(domain string, now time.Time) []peer.Key {
	type life struct {
		key peer.Key
		at  int64
	}
	oldest := s.oldest(now)
	s.mu.Lock()
	lives := make([]life, 0, len(s.domains[domain]))
	for key, r := range s.domains[domain] {
		if at := r.alive(); at >= oldest {
			lives = append(lives, life{key, at})
		}
	}
	s.mu.Unlock()
	slices.SortFunc(lives, func(a, b life) int { return cmp.Compare(b.at, a.at) })
	keys := make([]peer.Key, len(lives))
	for i, l := range lives {
		keys[i] = l.key
	}
	return keys
}

// Assignment is where a node was sent.
type Assignment struct {
	Domain string
	Key    peer.Key
	Worker string
	Sent   time.Time
	// Handshake is when a handshake of it was last reported; zero: never.
	Handshake time.Time
}

// Assignments returns where the nodes whose keys are alive were last sent, as far as they
// were.
func (s *Store) Assignments(now time.Time) []Assignment {
	oldest := s.oldest(now)
	s.mu.Lock()
	defer s.mu.Unlock()
	var assignments []Assignment
	for domain, keys := range s.domains {
		for key, r := range keys {
			if r.worker == "" || r.alive() < oldest {
				continue
			}
			a := Assignment{Domain: domain, Key: key, Worker: r.worker, Sent: time.Unix(r.assigned, 0)}
			if r.handshake != 0 {
				a.Handshake = time.Unix(r.handshake, 0)
			}
			assignments = append(assignments, a)
		}
	}
	return assignments
}

// oldest is the earliest sign of life with which a key is alive.
func (s *Store) oldest(now time.Time) int64 { return now.Add(-s.ttl).Unix() }

// Len is the number of keys, over all domains.
func (s *Store) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, d := range s.domains {
		n += len(d)
	}
	return n
}
