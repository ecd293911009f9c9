// Package chaos is a fault harness: it runs a whole mesh in a lab, breaks it again and
// again, and checks after each fault that nothing was lost. What it does, and what that
// proves, is in docs/reliability.md.
//
// Everything is in its tests. A short run with a fixed seed is a test like any other; a
// long one is
//
//	go test ./internal/chaos -run TestChaos -v -timeout 0 -chaos.seed 7 -chaos.rounds 300
package chaos
