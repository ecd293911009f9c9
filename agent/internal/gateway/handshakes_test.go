package gateway

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"wgsteer/internal/peer"
)

// shake gives peers of ours a handshake now.
func (k *fakeKernel) shake(keys ...peer.Key) {
	for _, key := range keys {
		k.addPeer(key, time.Now(), peer.WGKex.LinkAddress(key))
	}
}

// expectHandshakes fails the test unless exactly these keys are to be reported now.
func expectHandshakes(t *testing.T, g running, when string, want ...peer.Key) {
	t.Helper()
	if diff := cmp.Diff(want, g.Handshakes(testDomain)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

func TestAKeyIsReportedWhenItConnectsAndEveryHourThen(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		a, b := testKey(1), testKey(2)
		k.shake(a)
		pass(reconcileInterval)
		expectHandshakes(t, g, "after the first handshake", a)
		k.shake(a, b)
		pass(reconcileInterval)
		expectHandshakes(t, g, "after another one of it, and the first of b", b)
		for began := time.Now(); time.Since(began) < handshakeInterval-2*reconcileInterval; {
			k.shake(a)
			pass(reconcileInterval)
		}
		expectHandshakes(t, g, "less than an hour later")
		k.shake(a)
		pass(2 * reconcileInterval)
		expectHandshakes(t, g, "an hour after a was reported, b having fallen silent", a)
	})
}

func TestOnlyPeersOfOursThatAreConnectedAreReported(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		k.addPeer(testKey(1), time.Now(), peer.WGKex.LinkAddress(testKey(2))) // somebody else's
		k.addPeer(testKey(3), time.Now().Add(-connectedWithin), peer.WGKex.LinkAddress(testKey(3)))
		k.addPeer(testKey(4), time.Time{}, peer.WGKex.LinkAddress(testKey(4)))
		pass(reconcileInterval)
		expectHandshakes(t, g, "none is connected")
	})
}

func TestANewServerHearsOfAllThatAreConnected(t *testing.T) {
	k := newFakeKernel()
	run(t, k, func(t *testing.T, g running) {
		k.shake(testKey(1), testKey(2))
		pass(reconcileInterval)
		expectHandshakes(t, g, "at first", testKey(1), testKey(2))
		g.ReportHandshakesAgain()
		k.shake(testKey(2))
		pass(reconcileInterval)
		expectHandshakes(t, g, "again", testKey(1), testKey(2))
	})
}
