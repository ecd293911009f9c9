package main

import (
	"log/slog"
	"strings"
	"sync"
)

// pair is how a scenario went with each algorithm.
type pair struct {
	scenario    scenario
	plain, ours result
}

// both runs a scenario with both algorithms.
func both(sc scenario, seed uint64, nodes int, log *slog.Logger) pair {
	p := pair{scenario: sc}
	var running sync.WaitGroup
	running.Go(func() { p.plain = runPlain(sc, seed, nodes) })
	running.Go(func() { p.ours = runOurs(sc, seed, nodes, log) })
	running.Wait()
	return p
}

func runPlain(sc scenario, seed uint64, nodes int) result {
	return newWorld(sc, seed, nodes, func(weights map[string]uint32) server {
		return newPlain(weights)
	}).simulate()
}

func runOurs(sc scenario, seed uint64, nodes int, log *slog.Logger) result {
	return newWorld(sc, seed, nodes, func(weights map[string]uint32) server {
		return newOurs(weights, sc.auto, log.With("scenario", sc.name))
	}).simulate()
}

// names are those of the scenarios, with commas.
func names() string {
	var list []string
	for _, sc := range scenarios() {
		list = append(list, sc.name)
	}
	return strings.Join(list, ",")
}
