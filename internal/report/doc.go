// Package report is what a worker publishes about itself: whether it is online,
// how nodes reach it in a domain, which peers are connected there and how many; and
// which of them it is told to evict. It reads and writes the payloads; package topics
// has the topics that they travel on.
package report
