package main

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"wgsteer/internal/peer"
	"wgsteer/loadbalance"
)

// powerCutEvery is how often a node loses its power, on average, in every scenario: a mesh
// is never quite at rest.
const powerCutEvery = 48 * time.Hour

// world is a mesh: nodes, gateways, and the server that steers the nodes.
type world struct {
	clock
	rand     *rand.Rand
	scenario scenario
	nodes    []*node
	byKey    map[peer.Key]*node
	gateways []*gateway
	weights  map[string]uint32
	server   server
	meter    meter
}

// newWorld makes the world of a scenario as it is before its script. The same seed makes
// the same nodes for every server.
func newWorld(sc scenario, seed uint64, nodes int, serve func(weights map[string]uint32) server) *world {
	name := fnv.New64a()
	name.Write([]byte(sc.name))
	w := &world{
		rand:     rand.New(rand.NewPCG(seed, name.Sum64())),
		scenario: sc, byKey: make(map[peer.Key]*node, nodes),
		weights: maps.Clone(sc.weights),
	}
	w.server = serve(w.weights)
	for id := range nodes {
		n := &node{world: w, id: id, phase: w.between(0, checkInterval)}
		binary.BigEndian.PutUint32(n.key[:], uint32(id)+1)
		w.nodes = append(w.nodes, n)
		w.byKey[n.key] = n
	}
	for _, name := range slices.Sorted(maps.Keys(w.weights)) {
		w.addGateway(name).phase = w.between(0, countInterval)
	}
	if sc.settled {
		w.settle()
	}
	for _, g := range w.gateways {
		g.open = sc.settled
		g.boot()
	}
	return w
}

// simulate runs a scenario.
func (w *world) simulate() result {
	w.scenario.script(w)
	w.churn()
	w.every(0, time.Second, func() { w.carry(w.server.tick(w.time())) })
	w.every(0, sampleInterval, func() { w.meter.sample(w) })
	w.run(w.scenario.length)
	return w.result()
}

// settle has every node on a gateway for long, all gateways at their targets.
func (w *world) settle() {
	room := make([]loadbalance.Candidate, len(w.gateways))
	for i, g := range w.gateways {
		room[i] = loadbalance.Candidate{Name: g.name, Weight: w.weights[g.name]}
	}
	for _, n := range w.nodes {
		i := loadbalance.Index(room)
		room[i].Peers++
		g := w.gateways[i]
		n.up, n.tunnel, n.gateway, n.home = true, true, g, g
		g.peers[n.id] = tunnel{used: true, alive: true, start: -w.between(0, time.Hour)}
		g.tunnels++
	}
}

// churn has nodes lose their power now and then.
func (w *world) churn() {
	mean := float64(powerCutEvery) / float64(len(w.nodes))
	w.after(time.Duration(w.rand.ExpFloat64()*mean), func() {
		w.nodes[w.rand.IntN(len(w.nodes))].powerCut(w.between(20*time.Second, 90*time.Second))
		w.churn()
	})
}

// addGateway adds a gateway that is not up.
func (w *world) addGateway(name string) *gateway {
	g := &gateway{world: w, name: name, peers: make([]tunnel, len(w.nodes))}
	w.gateways = append(w.gateways, g)
	return g
}

// gateway returns that of a name.
func (w *world) gateway(name string) *gateway {
	return w.gateways[slices.IndexFunc(w.gateways, func(g *gateway) bool { return g.name == name })]
}

// weigh changes the config's weights.
func (w *world) weigh(weights map[string]uint32) {
	w.weights = weights
	w.server.weigh(maps.Clone(weights))
}

// share returns so many of all nodes, drawn at random.
func (w *world) share(part float64) []*node {
	var drawn []*node
	for _, i := range w.rand.Perm(len(w.nodes))[:int(part*float64(len(w.nodes)))] {
		drawn = append(drawn, w.nodes[i])
	}
	return drawn
}

// between draws a time.
func (w *world) between(least, most time.Duration) time.Duration {
	return least + time.Duration(w.rand.Int64N(int64(most-least)))
}
