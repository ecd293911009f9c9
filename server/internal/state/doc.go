// Package state is the server's one file on disk. It survives the end of the process
// at any instruction, and a power cut with the loss of at most the last second.
//
// Writes are grouped: those that arrive while one group is being written are the next
// group. Whoever needs to know that a write has survived waits for its group.
package state
