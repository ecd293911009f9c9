// Package topics is the MQTT topic scheme of the mesh: it builds and parses every
// topic that servers and workers use, and is the only place that knows one.
//
// The scheme is that of wgkex, and two topics of wgsteer's own at the end:
//
//	wireguard/{domain}/{worker}                          a node's key, to the worker, or to All
//	wireguard-metrics/{domain}/{worker}/connected_peers  a worker's connected peers
//	wireguard-worker/{worker}/status                     a worker is online or offline
//	wireguard-worker/{worker}/{domain}/data              how nodes reach a worker
//	wgsteer/{domain}/{worker}/handshakes                 keys whose nodes have connected to a worker, or are gone
//	wgsteer/{domain}/{worker}/evict                      keys that the worker is to take out
package topics
