// Package report is what a worker publishes about itself: whether it is online,
// how nodes reach it in a domain, and how many peers are connected there. It reads
// and writes the payloads; package topics has the topics that they travel on.
package report
