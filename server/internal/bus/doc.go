// Package bus is the MQTT side of the server: an embedded MQTT server whose hooks
// turn what workers publish into updates of the weighting table, before the publish
// is acknowledged, and through which keys reach the workers.
//
// All reports go one way: they are checked, put into the table and then published
// by the server itself, one after the other, so that the table and the retained
// messages never tell different stories. Wills on a worker's status are not left to
// the MQTT library, for the same reason (see speakers).
package bus
