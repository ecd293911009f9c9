// Package levers is what an operator can do about where nodes are: drain a worker, take
// its nodes away, and move nodes so that every worker has its share. The weighting table
// decides which nodes; here it is decided when, and the workers are told.
package levers
