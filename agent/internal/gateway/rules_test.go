package gateway

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"wgsteer/internal/peer"
)

func TestLinkAddressIsOneThatNodesCanRelyOn(t *testing.T) {
	wgkex, gluon := peer.WGKex.LinkAddress(ownPublicKey), peer.Gluon.LinkAddress(ownPublicKey)
	operators, lower, kernels := netip.MustParseAddr("fe80::2"), netip.MustParseAddr("fe80::1"), netip.MustParseAddr("fe80::3")
	byOperator := func(a netip.Addr) Address { return Address{IP: a} }
	byKernel := func(a netip.Addr) Address { return Address{IP: a, ByKernel: true} }
	tests := map[string]struct {
		has    []Address
		scheme peer.Scheme
		want   netip.Addr
	}{
		"none":                                 {nil, peer.WGKex, netip.Addr{}},
		"only the kernel's":                    {[]Address{byKernel(kernels)}, peer.WGKex, netip.Addr{}},
		"the operator's before the kernel's":   {[]Address{byKernel(lower), byOperator(operators)}, peer.WGKex, operators},
		"the lowest of several":                {[]Address{byOperator(operators), byOperator(lower)}, peer.WGKex, lower},
		"its own before the operator's":        {[]Address{byOperator(lower), byOperator(wgkex)}, peer.WGKex, wgkex},
		"the other scheme's too":               {[]Address{byOperator(lower), byOperator(gluon)}, peer.WGKex, gluon},
		"the configured scheme's before":       {[]Address{byOperator(gluon), byOperator(wgkex)}, peer.WGKex, wgkex},
		"the configured scheme's before, also": {[]Address{byOperator(wgkex), byOperator(gluon)}, peer.Gluon, gluon},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := linkAddress(test.has, ownPublicKey, test.scheme)
			if got != test.want || ok != test.want.IsValid() {
				t.Errorf("got %v (%v), want %v", got, ok, test.want)
			}
		})
	}
}

func TestConnectedIsAHandshakeOfTheLast3Minutes(t *testing.T) {
	now := time.Unix(1e9, 0)
	key := testKey(1)
	own := netip.PrefixFrom(peer.WGKex.LinkAddress(key), 128)
	tests := map[string]struct {
		peer Peer
		want int
	}{
		"never":             {Peer{Key: key, AllowedIPs: []netip.Prefix{own}}, 0},
		"just now":          {Peer{Key: key, AllowedIPs: []netip.Prefix{own}, LastHandshake: now}, 1},
		"almost 3 minutes":  {Peer{Key: key, AllowedIPs: []netip.Prefix{own}, LastHandshake: now.Add(-3*time.Minute + 1)}, 1},
		"3 minutes":         {Peer{Key: key, AllowedIPs: []netip.Prefix{own}, LastHandshake: now.Add(-3 * time.Minute)}, 0},
		"other scheme":      {Peer{Key: key, AllowedIPs: []netip.Prefix{netip.PrefixFrom(peer.Gluon.LinkAddress(key), 128)}, LastHandshake: now}, 1},
		"foreign":           {Peer{Key: key, AllowedIPs: []netip.Prefix{netip.MustParsePrefix("fd00::1/128")}, LastHandshake: now}, 0},
		"more than its own": {Peer{Key: key, AllowedIPs: []netip.Prefix{own, netip.MustParsePrefix("fd00::1/128")}, LastHandshake: now}, 0},
		"a wider prefix":    {Peer{Key: key, AllowedIPs: []netip.Prefix{netip.PrefixFrom(own.Addr(), 64)}, LastHandshake: now}, 0},
		"no allowed IP":     {Peer{Key: key, LastHandshake: now}, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := connected([]Peer{test.peer}, now); got != test.want {
				t.Errorf("counted %d, want %d", got, test.want)
			}
		})
	}
}

func TestStale(t *testing.T) {
	now := time.Unix(1e9, 0)
	ago := func(d time.Duration) time.Time { return now.Add(-d) }
	never := time.Time{}
	tests := map[string]struct {
		handshake, added, received time.Time
		want                       bool
	}{
		"handshake 3 hours ago":                       {ago(3 * time.Hour), ago(9 * time.Hour), ago(9 * time.Hour), true},
		"handshake almost 3 hours ago":                {ago(3*time.Hour - 1), ago(9 * time.Hour), ago(9 * time.Hour), false},
		"handshake days ago, adopted just now":        {ago(99 * time.Hour), now, never, true},
		"handshake days ago, but the node just asked": {ago(99 * time.Hour), ago(99 * time.Hour), now, false},
		"never, added more than 10 minutes ago":       {never, ago(10*time.Minute + 1), ago(10*time.Minute + 1), true},
		"never, added 10 minutes ago":                 {never, ago(10 * time.Minute), ago(10 * time.Minute), false},
		"never, adopted more than 10 minutes ago":     {never, ago(10*time.Minute + 1), never, true},
		"never, adopted 10 minutes ago":               {never, ago(10 * time.Minute), never, false},
		"never, added long ago, asked again":          {never, ago(9 * time.Hour), ago(time.Minute), false},
		"never, put back just now":                    {never, now, ago(9 * time.Hour), false},
		"handshake in the future (clock was set)":     {now.Add(time.Hour), ago(time.Hour), ago(time.Hour), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := Peer{LastHandshake: test.handshake}
			if got := stale(p, want{added: test.added, received: test.received}, testAgent, now); got != test.want {
				t.Errorf("stale: %v, want %v", got, test.want)
			}
		})
	}
}

func TestCompareTouchesNothingOfOthers(t *testing.T) {
	ours, foreign := testKey(1), testKey(2)
	wanted, foreigns := peer.WGKex.LinkAddress(ours), peer.WGKex.LinkAddress(foreign)
	leftover, plain := peer.WGKex.LinkAddress(testKey(3)), netip.MustParseAddr("fe80::1")
	const other = 99 // an interface of somebody else
	c := takeCensus([]Peer{
		{Key: ours, AllowedIPs: []netip.Prefix{netip.PrefixFrom(wanted, 128)}},
		{Key: foreign, AllowedIPs: []netip.Prefix{netip.PrefixFrom(foreigns, 128), netip.MustParsePrefix("fd00::/64")}},
	})
	desired := map[peer.Key]want{ours: {address: wanted}}
	tests := map[string]struct {
		routes  []Route
		entries []Entry
		want    plan
	}{
		"nothing there": {
			want: plan{routes: []netip.Addr{wanted}, entries: []Entry{{To: wanted, Via: wgIndex}}},
		},
		"all there": {
			routes: []Route{{To: wanted, Ours: true}}, entries: []Entry{{To: wanted, Via: wgIndex}},
		},
		"a foreign route will do": {
			routes: []Route{{To: wanted}}, entries: []Entry{{To: wanted, Via: wgIndex}},
		},
		"leftovers of ours": {
			routes:  []Route{{To: wanted, Ours: true}, {To: leftover, Ours: true}},
			entries: []Entry{{To: wanted, Via: wgIndex}, {To: leftover, Via: wgIndex}},
			want: plan{
				oldRoutes:  []Route{{To: leftover, Ours: true}},
				oldEntries: []Entry{{To: leftover, Via: wgIndex}},
			},
		},
		"others' routes and entries": {
			routes: []Route{{To: wanted, Ours: true}, {To: leftover}, {To: foreigns, Ours: true}, {To: plain}},
			entries: []Entry{
				{To: wanted, Via: wgIndex}, {To: wanted, Via: other}, {To: leftover, Via: other},
				{To: leftover}, {To: foreigns, Via: wgIndex}, {To: plain, Via: wgIndex}, {To: plain, Via: 3, Lost: true},
			},
		},
		"entries whose interface is gone": {
			routes: []Route{{To: wanted, Ours: true}},
			entries: []Entry{
				{To: wanted, Via: 3, Lost: true}, {To: leftover, Via: 3, Lost: true}, {To: foreigns, Via: 3, Lost: true},
			},
			want: plan{
				lost:    []Entry{{To: wanted, Via: 3, Lost: true}, {To: leftover, Via: 3, Lost: true}},
				entries: []Entry{{To: wanted, Via: wgIndex}},
			},
		},
		"a right one goes with a lost one, and is put back": {
			routes:  []Route{{To: wanted, Ours: true}},
			entries: []Entry{{To: wanted, Via: wgIndex}, {To: wanted, Via: 3, Lost: true}},
			want: plan{
				lost:    []Entry{{To: wanted, Via: 3, Lost: true}},
				entries: []Entry{{To: wanted, Via: wgIndex}},
			},
		},
		"a lost one stays where removing it takes somebody's": {
			routes:  []Route{{To: wanted, Ours: true}},
			entries: []Entry{{To: wanted, Via: wgIndex}, {To: wanted, Via: 3, Lost: true}, {To: wanted, Via: other}},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := compare(desired, c, wgIndex, test.routes, test.entries)
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(plan{}), cmp.Comparer(sameAddr)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}
