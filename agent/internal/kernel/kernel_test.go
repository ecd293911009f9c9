package kernel_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"wgsteer/agent/internal/gateway"
	"wgsteer/agent/internal/kernel"
	"wgsteer/internal/lab"
	"wgsteer/internal/peer"
)

var k kernel.Kernel

// A key and its link address, and how the tools write the latter.
var (
	keyA, keyB = testKey(1), testKey(2)
	a, b       = peer.WGKex.LinkAddress(keyA), peer.WGKex.LinkAddress(keyB)
)

func testKey(n int) peer.Key { return peer.Key{0: 1, 29: byte(n >> 16), 30: byte(n >> 8), 31: byte(n)} }

// addresses returns n link addresses.
func addresses(n int) []netip.Addr {
	all := make([]netip.Addr, n)
	for i := range all {
		all[i] = peer.WGKex.LinkAddress(testKey(i))
	}
	return all
}

func index(t testing.TB, name string) int {
	t.Helper()
	link, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	return link.Index
}

func same(x, y netip.Addr) bool { return x == y }

// succeeds fails the test when there is any error.
func succeeds(t testing.TB, errs []error) {
	t.Helper()
	if errs != nil {
		t.Fatal(errors.Join(errs...))
	}
}

// oneError fails the test unless of n operations only that one failed, with the text.
func oneError(t testing.TB, errs []error, n, i int, text string) {
	t.Helper()
	if len(errs) != n {
		t.Fatalf("%d errors (%v), want %d", len(errs), errors.Join(errs...), n)
	}
	for j, err := range errs {
		if (err != nil) != (i == j) {
			t.Errorf("error %d is %v", j, err)
		}
	}
	if errs[i] != nil && !strings.Contains(errs[i].Error(), text) {
		t.Errorf("error %q does not say %q", errs[i], text)
	}
}

// twoPorts makes interfaces that routes can leave by, and a VXLAN interface.
const twoPorts = `
	ip link add wg-a type veth peer name wg-b
	ip link set wg-a addrgenmode none up
	ip link set wg-b addrgenmode none up
	ip link add vx-a type vxlan id 7 dstport 8472 local fd00::1
	ip link set vx-a addrgenmode none up`

func TestLinksTellWhatThereIs(t *testing.T) {
	onHost(t, nil, func(t *testing.T) {
		read := func() gateway.Links {
			t.Helper()
			links, err := k.Links("wg-a", "vx-a")
			if err != nil {
				t.Fatal(err)
			}
			return links
		}
		if got := read(); got.WireGuard != 0 || got.VXLAN != 0 {
			t.Errorf("nothing is there, but %+v", got)
		}
		sh(t, "ip link add wg-a type veth peer name vx-a")
		if got := read(); got.WireGuard != index(t, "wg-a") || got.VXLAN != index(t, "vx-a") || got.IsVXLAN || got.Up {
			t.Errorf("two interfaces that are down and no VXLAN: %+v", got)
		}
		sh(t, "ip link del wg-a; "+twoPorts)
		if got := read(); !got.IsVXLAN || !got.Up {
			t.Errorf("an interface that is up and a VXLAN: %+v", got)
		}
	})
}

func TestAddressesTellWhoMadeThem(t *testing.T) {
	onHost(t, nil, func(t *testing.T) {
		sh(t, twoPorts)
		// The kernel makes one when it is told to, and wg-b is its other end.
		sh(t, `ip link set wg-a down; ip link set wg-a addrgenmode eui64; ip link set wg-a up
			ip address add %v/128 dev wg-a
			ip address add fd00::2/64 dev wg-a
			ip address add fe80::b/64 dev wg-b
			echo 1 >/proc/sys/net/ipv6/conf/all/accept_dad
			echo 1 >/proc/sys/net/ipv6/conf/wg-a/accept_dad
			echo 60 >/proc/sys/net/ipv6/conf/wg-a/dad_transmits
			ip address add fe80::dad/64 dev wg-a`, a)
		if flags := sh(t, "ip address show dev wg-a"); !strings.Contains(flags, "tentative") {
			t.Fatalf("the address that should be tentative is not:\n%s", flags)
		}
		links, err := k.Links("wg-a", "vx-a")
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(links.Addresses, func(x, y gateway.Address) int { return boolOrder(x.ByKernel, y.ByKernel) })
		if len(links.Addresses) != 2 || links.Addresses[0] != (gateway.Address{IP: a}) || !links.Addresses[1].ByKernel {
			t.Errorf("got %+v, want the operator's %v and the kernel's, from:\n%s", links.Addresses, a, sh(t, "ip address show dev wg-a"))
		}
	})
}

func boolOrder(x, y bool) int {
	switch {
	case x == y:
		return 0
	case y:
		return -1
	}
	return 1
}

func TestRoutesAreAddedAndRemovedByTheThousand(t *testing.T) {
	onHost(t, nil, func(t *testing.T) {
		sh(t, twoPorts)
		link, to := index(t, "wg-a"), addresses(1234)
		succeeds(t, k.AddRoutes(link, to))
		succeeds(t, k.AddRoutes(link, to)) // there already
		got, err := k.Routes(link)
		if err != nil {
			t.Fatal(err)
		}
		var all []gateway.Route
		for _, address := range to {
			all = append(all, gateway.Route{To: address, Ours: true})
		}
		byAddress := func(x, y gateway.Route) int { return x.To.Compare(y.To) }
		slices.SortFunc(all, byAddress)
		slices.SortFunc(got, byAddress)
		if diff := cmp.Diff(all, got, cmp.Comparer(same)); diff != "" {
			t.Errorf("routes (-want +got):\n%s", diff)
		}
		if line := sh(t, "ip -6 -d route show %v", a); !strings.HasPrefix(line, fmt.Sprintf("unicast %v dev wg-a proto 119 ", a)) {
			t.Errorf("as ip sees it: %s", line)
		}
		succeeds(t, k.RemoveRoutes(link, all))
		succeeds(t, k.RemoveRoutes(link, all)) // gone already
		if left := sh(t, "ip -6 route show dev wg-a"); left != "" {
			t.Errorf("left over:\n%s", left)
		}
	})
}

func TestRoutesToOneAddressOverTwoInterfacesLiveSideBySide(t *testing.T) {
	onHost(t, nil, func(t *testing.T) {
		sh(t, twoPorts)
		one, two := index(t, "wg-a"), index(t, "wg-b")
		succeeds(t, k.AddRoutes(one, []netip.Addr{a}))
		succeeds(t, k.AddRoutes(two, []netip.Addr{a}))
		for _, dev := range []string{"wg-a", "wg-b"} {
			if got := sh(t, "ip -6 route get %v oif %s", a, dev); !strings.Contains(got, "dev "+dev+" proto 119") {
				t.Errorf("over %s: %s", dev, got)
			}
		}
		succeeds(t, k.RemoveRoutes(one, []gateway.Route{{To: a, Ours: true}}))
		if got := sh(t, "ip -6 route show %v", a); !strings.Contains(got, "dev wg-b") || strings.Contains(got, "dev wg-a") {
			t.Errorf("after one was removed: %s", got)
		}
	})
}

func TestForeignRoutesStay(t *testing.T) {
	onHost(t, nil, func(t *testing.T) {
		sh(t, twoPorts)
		link := index(t, "wg-a")
		sh(t, `ip route add %v dev wg-a proto static
			ip route add %v via fe80::99 dev wg-a proto 119
			ip route add fd00:5::/64 dev wg-a proto 119
			ip route add %v dev wg-a proto 119 table 100
			ip route add unreachable %v proto 119 metric 2000`, a, b, b, b)
		before := sh(t, "ip -6 route show table all")
		succeeds(t, k.AddRoutes(link, []netip.Addr{a}))
		got, err := k.Routes(link)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]gateway.Route{{To: a}}, got, cmp.Comparer(same)); diff != "" {
			t.Errorf("routes (-want +got):\n%s", diff)
		}
		succeeds(t, k.RemoveRoutes(link, []gateway.Route{{To: a, Ours: true}}))
		if diff := cmp.Diff(before, sh(t, "ip -6 route show table all")); diff != "" {
			t.Errorf("routes of others changed (-before +after):\n%s", diff)
		}
		succeeds(t, k.RemoveRoutes(link, []gateway.Route{{To: a}})) // whosever it is
		if got := sh(t, "ip -6 route show %v", a); got != "" {
			t.Errorf("left over: %s", got)
		}
	})
}

func TestOneRouteThatFailsHoldsUpNoOther(t *testing.T) {
	onHost(t, nil, func(t *testing.T) {
		sh(t, twoPorts)
		to := addresses(300)
		to[150] = netip.Addr{}
		oneError(t, k.AddRoutes(index(t, "wg-a"), to), 300, 150, "add route to")
		got, err := k.Routes(index(t, "wg-a"))
		if len(got) != 299 || err != nil {
			t.Errorf("%d routes are there (%v), want 299", len(got), err)
		}
	})
}

func TestEntriesAreAddedAndRemovedByTheThousand(t *testing.T) {
	onHost(t, nil, func(t *testing.T) {
		sh(t, twoPorts)
		vx, via := index(t, "vx-a"), index(t, "wg-a")
		var all []gateway.Entry
		for _, to := range addresses(1234) {
			all = append(all, gateway.Entry{To: to, Via: via})
		}
		succeeds(t, k.AddEntries(vx, all))
		succeeds(t, k.AddEntries(vx, all)) // there already
		got, err := k.Entries(vx)
		if err != nil {
			t.Fatal(err)
		}
		byAddress := func(x, y gateway.Entry) int { return x.To.Compare(y.To) }
		want := slices.SortedFunc(slices.Values(all), byAddress)
		slices.SortFunc(got, byAddress)
		if diff := cmp.Diff(want, got, cmp.Comparer(same)); diff != "" {
			t.Errorf("entries (-want +got):\n%s", diff)
		}
		succeeds(t, k.RemoveEntries(vx, all[1:]))
		succeeds(t, k.RemoveEntries(vx, all[1:])) // gone already
		left := fmt.Sprintf("00:00:00:00:00:00 dst %v via wg-a self permanent\n", all[0].To)
		if diff := cmp.Diff(left, sh(t, "bridge fdb show dev vx-a")); diff != "" {
			t.Errorf("after all but one were removed (-want +got):\n%s", diff)
		}
		succeeds(t, k.RemoveEntries(vx, all[:1]))
	})
}

func TestAnEntryIsWhatBridgeFDBAppendMakes(t *testing.T) {
	onHost(t, nil, func(t *testing.T) {
		sh(t, twoPorts)
		sh(t, "bridge fdb append 00:00:00:00:00:00 dev vx-a dst %v via wg-a", a)
		want := sh(t, "bridge -d -s fdb show dev vx-a")
		sh(t, "bridge fdb del 00:00:00:00:00:00 dev vx-a dst %v via wg-a", a)
		succeeds(t, k.AddEntries(index(t, "vx-a"), []gateway.Entry{{To: a, Via: index(t, "wg-a")}}))
		if diff := cmp.Diff(withoutAges(want), withoutAges(sh(t, "bridge -d -s fdb show dev vx-a"))); diff != "" {
			t.Errorf("(-bridge +ours):\n%s", diff)
		}
	})
}

// withoutAges leaves out how long ago an entry was used.
func withoutAges(text string) string {
	fields := strings.Fields(text)
	return strings.Join(slices.DeleteFunc(fields, func(f string) bool {
		return strings.Trim(f, "0123456789/") == "" && strings.Contains(f, "/")
	}), " ")
}

func TestForeignEntriesStay(t *testing.T) {
	onHost(t, nil, func(t *testing.T) {
		sh(t, twoPorts)
		vx, via := index(t, "vx-a"), index(t, "wg-a")
		sh(t, `bridge fdb append 00:00:00:00:00:00 dev vx-a dst %[1]v via wg-b
			bridge fdb append 00:00:00:00:00:00 dev vx-a dst fd00::9
			bridge fdb append 00:00:00:00:00:00 dev vx-a dst %[2]v vni 9 via wg-a
			bridge fdb append 00:00:00:00:00:00 dev vx-a dst %[2]v port 9 via wg-a
			bridge fdb append 02:00:00:00:00:01 dev vx-a dst %[1]v via wg-a`, a, b)
		before := sh(t, "bridge fdb show dev vx-a")
		succeeds(t, k.AddEntries(vx, []gateway.Entry{{To: a, Via: via}}))
		got, err := k.Entries(vx)
		if err != nil {
			t.Fatal(err)
		}
		want := []gateway.Entry{{To: a, Via: index(t, "wg-b")}, {To: netip.MustParseAddr("fd00::9")}, {To: a, Via: via}}
		if diff := cmp.Diff(want, got, cmp.Comparer(same)); diff != "" {
			t.Errorf("entries (-want +got):\n%s", diff)
		}
		succeeds(t, k.RemoveEntries(vx, []gateway.Entry{{To: a, Via: via}, {To: b, Via: via}}))
		if diff := cmp.Diff(before, sh(t, "bridge fdb show dev vx-a")); diff != "" {
			t.Errorf("entries of others changed (-before +after):\n%s", diff)
		}
	})
}

func TestAnEntryWhoseInterfaceIsGoneIsRecognisedAndCanBeRemoved(t *testing.T) {
	onHost(t, nil, func(t *testing.T) {
		sh(t, twoPorts)
		vx, gone := index(t, "vx-a"), index(t, "wg-a")
		succeeds(t, k.AddEntries(vx, []gateway.Entry{{To: a, Via: gone}, {To: b, Via: gone}}))
		sh(t, "ip link del wg-a; ip link add wg-a type veth peer name wg-b")
		succeeds(t, k.AddEntries(vx, []gateway.Entry{{To: b, Via: index(t, "wg-a")}}))
		got, err := k.Entries(vx)
		if err != nil {
			t.Fatal(err)
		}
		want := []gateway.Entry{{To: a, Via: gone, Lost: true}, {To: b, Via: gone, Lost: true}, {To: b, Via: index(t, "wg-a")}}
		if slices.ContainsFunc(got, func(e gateway.Entry) bool { return e.Lost }) {
			if diff := cmp.Diff(want, got, cmp.Comparer(same)); diff != "" {
				t.Fatalf("entries (-want +got):\n%s", diff)
			}
		} else {
			t.Log("this kernel cannot remove such entries (before Linux 6.7), and they are left alone")
			return
		}
		succeeds(t, k.RemoveEntries(vx, got[:1]))
		succeeds(t, k.RemoveEntries(vx, got[:1]))
		if diff := cmp.Diff(2, strings.Count(sh(t, "bridge fdb show dev vx-a"), b.String())); diff != "" {
			t.Errorf("the other address's entries (-want +got):\n%s", diff)
		}
	})
}

func TestRemovingFromAnInterfaceThatIsGoneIsNoError(t *testing.T) {
	onHost(t, nil, func(t *testing.T) {
		const nothing = 4711
		succeeds(t, k.RemoveRoutes(nothing, []gateway.Route{{To: a, Ours: true}}))
		succeeds(t, k.RemoveEntries(nothing, []gateway.Entry{{To: a, Via: 1}}))
		succeeds(t, k.RemovePeers("wg-a", []peer.Key{keyA}))
		oneError(t, k.AddRoutes(nothing, []netip.Addr{a}), 1, 0, fmt.Sprintf("add route to %v over interface 4711: no such device", a))
		oneError(t, k.AddEntries(nothing, []gateway.Entry{{To: a, Via: 1}}), 1, 0, fmt.Sprintf("add FDB entry for %v", a))
		oneError(t, k.SetPeers("wg-a", []gateway.NewPeer{{Key: keyA, Address: a}}), 1, 0, fmt.Sprintf("add peer %v to wg-a", keyA))
	})
}

// withWireGuard sets up a host with wg-a, which has a peer that is not ours.
func withWireGuard(ctx context.Context, h *lab.Host) error {
	wg, err := h.WireGuard(ctx, "wg-a")
	if err != nil {
		return err
	}
	if err := wg.Up(ctx, netip.MustParsePrefix("fe80::1/128")); err != nil {
		return err
	}
	return wg.Set(ctx, "peer", testKey(9999).String(), "allowed-ips", "fd00::1/128,fd00:1::/64,10.0.0.0/8")
}

func TestPeersAreSetAndRemovedByTheThousand(t *testing.T) {
	onHost(t, withWireGuard, func(t *testing.T) {
		before := sh(t, "wg show wg-a allowed-ips")
		var peers []gateway.NewPeer
		var keys []peer.Key
		for i, address := range addresses(1234) {
			keys = append(keys, testKey(i))
			peers = append(peers, gateway.NewPeer{Key: keys[i], Address: address})
		}
		peers[7].Address = peer.Gluon.LinkAddress(keys[7])
		succeeds(t, k.SetPeers("wg-a", peers))
		peers[7].Address = peer.WGKex.LinkAddress(keys[7])
		succeeds(t, k.SetPeers("wg-a", peers))
		device, err := k.Device("wg-a")
		if err != nil {
			t.Fatal(err)
		}
		if got := len(device.Peers); got != len(peers)+1 {
			t.Errorf("%d peers", got)
		}
		for i := range device.Peers {
			p := &device.Peers[i]
			j := slices.Index(keys, p.Key)
			if j < 0 {
				continue
			}
			want := gateway.Peer{Key: p.Key, AllowedIPs: []netip.Prefix{netip.PrefixFrom(peers[j].Address, 128)}}
			if diff := cmp.Diff(want, *p, cmp.Comparer(samePrefix)); diff != "" {
				t.Fatalf("peer (-want +got):\n%s", diff)
			}
		}
		succeeds(t, k.RemovePeers("wg-a", keys))
		succeeds(t, k.RemovePeers("wg-a", keys))
		if diff := cmp.Diff(before, sh(t, "wg show wg-a allowed-ips")); diff != "" {
			t.Errorf("the foreign peer changed (-before +after):\n%s", diff)
		}
	})
}

func samePrefix(x, y netip.Prefix) bool { return x == y }

func TestOnePeerThatFailsHoldsUpNoOther(t *testing.T) {
	onHost(t, withWireGuard, func(t *testing.T) {
		peers := make([]gateway.NewPeer, 100)
		for i, address := range addresses(100) {
			peers[i] = gateway.NewPeer{Key: testKey(i), Address: address}
		}
		peers[50].Address = netip.Addr{}
		oneError(t, k.SetPeers("wg-a", peers), 100, 50, "add peer "+peers[50].Key.String())
		device, err := k.Device("wg-a")
		if err != nil {
			t.Fatal(err)
		}
		complete := 0
		for _, p := range device.Peers {
			if len(p.AllowedIPs) == 1 {
				complete++
			}
		}
		if complete != 99 {
			t.Errorf("%d peers are there, want 99", complete)
		}
	})
}

func TestDeviceTellsWhatIsConfigured(t *testing.T) {
	onHost(t, withWireGuard, func(t *testing.T) {
		read := func() gateway.Device {
			t.Helper()
			device, err := k.Device("wg-a")
			if err != nil {
				t.Fatal(err)
			}
			return device
		}
		key, err := peer.ParseKey(strings.TrimSpace(sh(t, "wg show wg-a public-key")))
		if err != nil {
			t.Fatal(err)
		}
		sh(t, "wg set wg-a listen-port 40011")
		want := gateway.Device{PublicKey: key, Port: 40011, Peers: []gateway.Peer{{
			Key: testKey(9999),
			AllowedIPs: []netip.Prefix{
				netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00:1::/64"), netip.MustParsePrefix("fd00::1/128"),
			},
		}}}
		got := read()
		slices.SortFunc(got.Peers[0].AllowedIPs, func(x, y netip.Prefix) int { return strings.Compare(x.String(), y.String()) })
		if diff := cmp.Diff(want, got, cmp.Comparer(samePrefix)); diff != "" {
			t.Errorf("device (-want +got):\n%s", diff)
		}
		sh(t, "wg set wg-a private-key /dev/null")
		if got := read(); got.PublicKey != (peer.Key{}) {
			t.Errorf("an interface without a private key has the public key %v", got.PublicKey)
		}
		for _, name := range []string{"lo", "nothing"} {
			if _, err := k.Device(name); !errors.Is(err, gateway.ErrNoDevice) {
				t.Errorf("%s: error %v", name, err)
			}
		}
	})
}

func TestWatchTellsOfInterfacesAndAddresses(t *testing.T) {
	onHost(t, nil, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), timeout/2)
		defer cancel()
		changes := make(chan gateway.Change, 1000)
		ended := make(chan error, 1)
		go func() { ended <- k.Watch(ctx, func(c gateway.Change) { changes <- c }) }()
		await := func(what string, is func(c gateway.Change) bool) {
			t.Helper()
			for {
				select {
				case c := <-changes:
					if is(c) {
						return
					}
				case <-ctx.Done():
					t.Fatalf("no word of %s", what)
				}
			}
		}
		await("the start", func(c gateway.Change) bool { return c == gateway.Change{} })
		sh(t, twoPorts)
		await("wg-a", func(c gateway.Change) bool { return c.Name == "wg-a" })
		link := index(t, "wg-a")
		sh(t, "ip address add fe80::1/128 dev wg-a")
		await("the address", func(c gateway.Change) bool { return c == gateway.Change{Index: link} })
		sh(t, "ip link del wg-a")
		await("its end", func(c gateway.Change) bool { return c == gateway.Change{Name: "wg-a", Index: link} })
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Watch: %v", err)
		}
	})
}

func TestWatchTellsWhenItMissedSomething(t *testing.T) {
	onHost(t, nil, func(t *testing.T) {
		sh(t, twoPorts)
		ctx, cancel := context.WithTimeout(t.Context(), timeout/2)
		defer cancel()
		reading := make(chan gateway.Change)
		ended := make(chan error, 1)
		go func() {
			ended <- k.Watch(ctx, func(c gateway.Change) {
				select {
				case reading <- c: // when nobody reads, neither does Watch
				case <-ctx.Done():
				}
			})
		}()
		if c := <-reading; c != (gateway.Change{}) {
			t.Errorf("the first word is %+v", c)
		}
		// More events than the socket holds.
		var batch strings.Builder
		for range 1000 {
			batch.WriteString("address add fe80::1/128 dev wg-a\naddress del fe80::1/128 dev wg-a\n")
		}
		path := t.TempDir() + "/batch"
		if err := os.WriteFile(path, []byte(batch.String()), 0o600); err != nil {
			t.Fatal(err)
		}
		sh(t, "ip -batch %s", path)
		for c := range reading {
			if c == (gateway.Change{}) {
				break
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Watch: %v", err)
		}
	})
}
