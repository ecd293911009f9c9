package bus_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"wgsteer/internal/peer"
	"wgsteer/internal/steering"
	"wgsteer/server/internal/bus"
)

// addDomain configures one more domain, as a reload does.
func (s *server) addDomain(name string) {
	s.table.Configure(steering.Settings{Domains: []string{"ff_a", "ff_b", name}})
	s.AddDomains([]string{name})
}

// chosenIn is the worker that a node is sent to in the domain, or "".
func (s *server) chosenIn(domain string) string {
	e, _ := s.table.Explain(steering.Ask{Domain: domain}, time.Now())
	return e.Chosen
}

func TestWhatWasReportedOfADomainBeforeItWasAddedCounts(t *testing.T) {
	s := start(t, bus.Config{})
	client := connect(t, s.worker("gw1", "gw1"))
	offer(t, client, "gw1")
	publish(t, client, "wireguard-worker/gw1/ff_c/data", "nonsense")
	publish(t, client, "wireguard-worker/gw1/ff_c/data", workerData)
	publish(t, client, "wireguard-metrics/ff_c/gw1/connected_peers", "7")
	if got := s.retained(t, "wireguard-metrics/ff_c/#"); len(got) > 0 {
		t.Errorf("before the domain is added, its reports are retained: %v", got)
	}
	s.addDomain("ff_c")
	if got := s.chosenIn("ff_c"); got != "gw1" {
		t.Errorf("a node of the added domain is sent to %q, want gw1", got)
	}
	want := map[string]string{"wireguard-metrics/ff_c/gw1/connected_peers": "7"}
	if diff := cmp.Diff(want, s.retained(t, "wireguard-metrics/ff_c/#")); diff != "" {
		t.Errorf("retained (-want +got):\n%s", diff)
	}
	publish(t, client, "wireguard-metrics/ff_c/gw1/connected_peers", "-1")
	s.addDomain("ff_d")
	if got := s.chosenIn("ff_c"); got != "" {
		t.Errorf("an old report came back with another domain: a node is sent to %q", got)
	}
}

func TestWhatIsRememberedOfUnknownDomainsIsBounded(t *testing.T) {
	s := start(t, bus.Config{})
	client := connect(t, s.worker("gw1", "gw1"))
	offer(t, client, "gw1")
	for i := range 1000 {
		publish(t, client, fmt.Sprintf("wireguard-metrics/ff_%d/gw1/connected_peers", i), "7")
	}
	publish(t, client, "wireguard-worker/gw1/ff_c/data", workerData)
	publish(t, client, "wireguard-metrics/ff_c/gw1/connected_peers", "7")
	s.addDomain("ff_c")
	if got := s.chosenIn("ff_c"); got != "" {
		t.Errorf("more than a thousand reports are remembered: a node is sent to %q", got)
	}
}

func TestWhatWasSavedOfADomainThatWasTakenOutIsThereWhenItIsBack(t *testing.T) {
	s := startWith(t, bus.Config{}, &memory{kept: map[string][]byte{
		"wireguard-worker/gw1/status":                []byte("1"),
		"wireguard-worker/gw1/ff_c/data":             []byte(workerData),
		"wireguard-metrics/ff_c/gw1/connected_peers": []byte("7"),
	}})
	s.addDomain("ff_c")
	if got := s.chosenIn("ff_c"); got != "gw1" {
		t.Errorf("a node of the added domain is sent to %q, want gw1", got)
	}
}

func TestWhoSubscribedToADomainBeforeItWasAddedIsSentItsKeys(t *testing.T) {
	s := start(t, bus.Config{})
	s.accept(t, "ff_a", 3)
	s.accept(t, "ff_c", 20)
	client, got := connect(t, s.options("gw1")), &inbox{}
	done(t, client.SubscribeMultiple(map[string]byte{"wireguard/ff_a/gw1": 1, "wireguard/ff_c/gw1": 1, "wireguard/ff_c/all": 1}, got.take))
	eventually(t, "the keys of the domain that is configured are there", func() bool { return got.count() == 3 })
	s.addDomain("ff_c")
	eventually(t, "the keys of the added domain are there", func() bool { return got.count() == 23 })
}

func TestTheTableHearsOfHandshakes(t *testing.T) {
	s := start(t, bus.Config{})
	client := connect(t, s.worker("gw1", "gw1"))
	offer(t, client, "gw1")
	publish(t, client, "wgsteer/ff_a/gw1/handshakes", numbered(1).String()+"\n"+numbered(2).String())
	if states := s.table.States(); len(states) != 1 || !states[0].Tells {
		t.Errorf("after a report of handshakes the workers are %+v", states)
	}
}

func TestAWorkerIsToldToLetGoOfNodes(t *testing.T) {
	s := start(t, bus.Config{})
	got := &inbox{}
	done(t, connect(t, s.options("gw1")).Subscribe("wgsteer/ff_a/gw1/evict", 1, got.take))
	if err := s.PublishEvict("gw1", "ff_a", []peer.Key{numbered(1), numbered(2)}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the worker is told", func() bool { return got.count() == 1 })
	if want := "wgsteer/ff_a/gw1/evict " + numbered(1).String() + "\n" + numbered(2).String(); got.all()[0] != want {
		t.Errorf("it is told %q, want %q", got.all()[0], want)
	}
	if err := s.PublishEvict("gw/1", "ff_a", nil); err == nil {
		t.Error("a name that cannot stand in a topic is no error")
	}
	if got := s.retained(t, "wgsteer/#"); len(got) > 0 {
		t.Errorf("it is told again to whoever subscribes later: %v", got)
	}
}
