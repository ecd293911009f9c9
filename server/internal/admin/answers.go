package admin

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"wgsteer/internal/peer"
	"wgsteer/internal/steering"
	"wgsteer/server/internal/levers"
)

// Explanation is how the next choice for a node comes about, see steering.Explanation.
type Explanation struct {
	Domain     string      `json:"domain"`
	Candidates []Candidate `json:"candidates"`
	Chosen     string      `json:"chosen"`
	Reason     string      `json:"reason"`
	// Note is what else an operator should know.
	Note string `json:"note"`
}

// Candidate is a worker that has ever reported anything for the domain.
type Candidate struct {
	Worker   string `json:"worker"`
	Location string `json:"location"`
	Weight   uint32 `json:"weight"`
	Reported int    `json:"reported"`
	InFlight int    `json:"in_flight"`
	// Target and Diff are how it stood when the weights decided; nil: it was left out.
	Target   *float64 `json:"target"`
	Diff     *float64 `json:"diff"`
	Health   string   `json:"health"`
	Excluded string   `json:"excluded"`
}

func (a *api) explain(r *http.Request) (any, error) {
	ask := steering.Ask{Domain: r.PathValue("domain"), Location: r.URL.Query().Get("location")}
	if text := r.URL.Query().Get("key"); text != "" {
		key, err := peer.ParseKey(text)
		if err != nil {
			return nil, fmt.Errorf("key: %w", err)
		}
		ask.Key = key
	}
	e, ok := a.table.Explain(ask, time.Now())
	if !ok {
		return nil, &refusal{http.StatusNotFound, fmt.Sprintf("domain %q is not configured", ask.Domain)}
	}
	explanation := Explanation{Domain: ask.Domain, Candidates: []Candidate{}, Chosen: e.Chosen, Reason: e.Reason}
	if ask.Location != "" && !slices.ContainsFunc(e.Candidates, func(c steering.Candidate) bool { return c.Location == ask.Location }) {
		explanation.Note = fmt.Sprintf("no worker of the domain is at %q: it is as if nothing was preferred", ask.Location)
	}
	for _, c := range e.Candidates {
		candidate := Candidate{
			Worker: c.Worker, Location: c.Location, Weight: c.Weight, Reported: c.Reported, InFlight: c.InFlight,
			Health: c.Health, Excluded: c.Excluded,
		}
		if c.Left {
			candidate.Target, candidate.Diff = &c.Target, &c.Diff
		}
		explanation.Candidates = append(explanation.Candidates, candidate)
	}
	return explanation, nil
}

// Worker is what is known of a worker, see steering.State.
type Worker struct {
	Worker   string `json:"worker"`
	Location string `json:"location"`
	Weight   uint32 `json:"weight"`
	Online   bool   `json:"online"`
	Silent   bool   `json:"silent"`
	Suspect  bool   `json:"suspect"`
	Drained  bool   `json:"drained"`
	Reported int    `json:"reported"`
	InFlight int    `json:"in_flight"`
	// Connected are the nodes that it says are connected.
	Connected int      `json:"connected"`
	Domains   []string `json:"domains"`
	Tells     bool     `json:"tells_connected_nodes"`
	Health    string   `json:"health"`
	// Evict is how many nodes a minute are taken away from it, Evicted how many were, and
	// Stuck whether there was none that could go.
	Evict   int  `json:"evict_per_minute"`
	Evicted int  `json:"evicted"`
	Stuck   bool `json:"evict_stuck"`
}

// Empty tells whether no node has its tunnel there, or was sent there just now. Of a worker
// that is offline nobody knows.
func (w Worker) Empty() bool {
	return w.Online && w.Reported == 0 && w.Connected == 0 && w.InFlight <= 0
}

func (a *api) workers(*http.Request) (any, error) {
	all := []Worker{}
	drains := a.levers.Drains()
	for _, s := range a.table.States() {
		all = append(all, workerOf(s, drains[s.Worker]))
		delete(drains, s.Worker)
	}
	for name, d := range drains { // of workers that are yet to come
		all = append(all, workerOf(steering.State{Worker: name, Drained: true, Health: "never heard of"}, d))
	}
	slices.SortFunc(all, func(a, b Worker) int { return cmp.Compare(a.Worker, b.Worker) })
	return struct {
		Workers []Worker `json:"workers"`
	}{all}, nil
}

func workerOf(s steering.State, d levers.Drain) Worker {
	return Worker{
		Worker: s.Worker, Location: s.Location, Weight: s.Weight,
		Online: s.Online, Silent: s.Silent, Suspect: s.Suspect, Drained: s.Drained,
		Reported: s.Reported, InFlight: s.InFlight, Connected: s.Connected, Domains: append([]string{}, s.Domains...), Tells: s.Tells, Health: s.Health,
		Evict: d.Evict, Evicted: d.Evicted, Stuck: d.Stuck,
	}
}

// Done is the answer to a request that changed something.
type Done struct {
	// Changed is false when it was so before.
	Changed bool `json:"changed"`
	// Note is what an operator should know.
	Note string `json:"note"`
}

func (a *api) drain(r *http.Request) (any, error) {
	evict, err := numberOf(r, "evict", 0)
	if err != nil {
		return nil, err
	}
	note, err := a.levers.Drain(r.PathValue("worker"), evict, r.URL.Query().Get("force") == "true")
	return Done{Changed: true, Note: note}, err
}

func (a *api) undrain(r *http.Request) (any, error) {
	changed, note, err := a.levers.Undrain(r.PathValue("worker"))
	return Done{Changed: changed, Note: note}, err
}

func (a *api) trust(r *http.Request) (any, error) {
	changed, err := a.levers.Trust(r.PathValue("worker"))
	return Done{Changed: changed}, err
}

// numberOf is a number in the request's query.
func numberOf(r *http.Request, name string, byDefault int) (int, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return byDefault, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %q is no whole number", name, text)
	}
	return n, nil
}

// Rebalancing is the rebalancing that is under way or was the last, see levers.Job, and
// what there is to be moved as things stand.
type Rebalancing struct {
	// Last is nil when there was none since the server started.
	Last  *Job   `json:"last"`
	Moves []Move `json:"moves"`
}

// Job is a rebalancing.
type Job struct {
	PerMinute int    `json:"per_minute"`
	Auto      bool   `json:"auto"`
	Running   bool   `json:"running"`
	Moved     int    `json:"moved"`
	Left      int    `json:"left"`
	Waits     bool   `json:"waits"`
	Result    string `json:"result"`
	Failed    bool   `json:"failed"`
}

// Move is how many nodes of a domain are to go from one worker to another.
type Move struct {
	Domain string `json:"domain"`
	From   string `json:"from"`
	To     string `json:"to"`
	Nodes  int    `json:"nodes"`
}

func (a *api) rebalancing(*http.Request) (any, error) {
	r := Rebalancing{Moves: []Move{}}
	if j, ok := a.levers.Rebalancing(); ok {
		job := Job(j)
		r.Last = &job
	}
	counted := make(map[Move]int)
	for _, m := range a.table.Imbalance(steering.Balanced, time.Now()) {
		way := Move{Domain: m.Domain, From: m.From, To: m.To}
		i, known := counted[way]
		if !known {
			i = len(r.Moves)
			counted[way] = i
			r.Moves = append(r.Moves, way)
		}
		r.Moves[i].Nodes++
	}
	return r, nil
}

// DefaultRate is how many nodes a minute a rebalancing moves that is not told.
const DefaultRate = 60

func (a *api) rebalance(r *http.Request) (any, error) {
	rate, err := numberOf(r, "rate", DefaultRate)
	if err != nil {
		return nil, err
	}
	j, err := a.levers.StartRebalance(rate)
	return Job(j), err
}

func (a *api) stopRebalance(*http.Request) (any, error) {
	j, ok := a.levers.StopRebalance()
	if !ok {
		return nil, &refusal{http.StatusConflict, "no rebalancing is running"}
	}
	return Job(j), nil
}
