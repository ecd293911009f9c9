// Package kernel reads and changes this machine's WireGuard interfaces, routes and
// VXLAN forwarding databases. It is the only part of the agent that touches the
// kernel, and the place for everything that differs between kernels, and between the
// kernel's WireGuard and userspace ones.
package kernel
