// Package uplink is the agent's connection to the MQTT server: keys come in, reports
// go out.
package uplink
