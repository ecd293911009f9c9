// Package lab builds hosts out of Linux network namespaces: on one machine a
// central host, gateways and nodes, each with its own network, its own WireGuard
// interfaces and its own programs, all plugged into one switch. It is what the demo
// and the tests against a real kernel stand on. It needs root.
//
// A lab belongs to the process that made it. Close removes everything; what a
// process that crashed left behind is removed by the next New of any process.
//
// A host is a network namespace, and each program in it has a mount namespace of
// its own in which the sockets of userspace WireGuard are the host's: interfaces of
// different hosts may have the same name.
package lab
