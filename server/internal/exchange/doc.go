// Package exchange is the HTTP API that nodes call: "here is my key, which gateway?"
//
// An exchange is checked, its key is published to the workers of its domain, and a
// v2 exchange is answered with the endpoint of the worker that the node should use.
package exchange
