package chaos

import (
	"context"
	"fmt"
	"strings"

	"wgsteer/internal/lab"
	"wgsteer/internal/peer"
)

// foreign is what somebody else has set up on a domain's interfaces. It is chosen to be
// as close to ours as it can be.
type foreign struct {
	host    *lab.Host
	segment lab.Segment
	script  string
	// there are the lines of each dump that have to stay as they are.
	there dump
}

const foreignScript = `
wg set $WG peer $KEY1 allowed-ips 10.9.0.1/32
wg set $WG peer $KEY2 allowed-ips $ADDRESS2/128,10.9.0.2/32
wg set $WG peer $KEY3 allowed-ips fdc4:aaaa:$N::/64
ip -6 route replace fe80::2aa:bbff:fecc:dd$N1/128 dev $WG proto static
ip -6 route replace fdc4:aaaa:$N::/64 dev $WG proto 120
bridge fdb append 00:00:00:00:00:00 dev $VX dst fdc4:aaaa:$N::1 via $WG
bridge fdb append 00:00:00:00:00:00 dev $VX dst fe80::2aa:bbff:fecc:dd$N2 via eth0
bridge fdb append 02:11:22:33:44:55 dev $VX dst fe80::2aa:bbff:fecc:dd$N3 via $WG
`

func newForeign(ctx context.Context, host *lab.Host, segment lab.Segment) (foreign, error) {
	f := foreign{host: host, segment: segment}
	replace := []string{"$WG", segment.WireGuard, "$VX", segment.VXLAN, "$N", fmt.Sprint(segment.VNI % 10)}
	for i := 1; i <= 3; i++ {
		key := peer.Key{0: byte(i), 31: 1}
		replace = append(replace, fmt.Sprintf("$KEY%d", i), key.String(),
			fmt.Sprintf("$ADDRESS%d", i), schemeOf.LinkAddress(key).String())
	}
	f.script = "set -e\n" + strings.NewReplacer(replace...).Replace(foreignScript)
	if err := f.restore(ctx); err != nil {
		return f, err
	}
	dumps, err := takeDumps(ctx, host, []lab.Segment{segment})
	if err != nil {
		return f, err
	}
	f.there = dumps[0]
	return f, nil
}

// floodQueue is how many packets wait for userspace WireGuard. Its 500 are too few: what
// VXLAN floods goes to every node at once, and takes the pings with it that are dropped.
const floodQueue = "10000"

// restore sets everything up again, on interfaces that are new.
func (f foreign) restore(ctx context.Context) error {
	if _, err := f.host.Run(ctx, "ip", "link", "set", f.segment.WireGuard, "txqueuelen", floodQueue); err != nil {
		return err
	}
	_, err := f.host.Run(ctx, "sh", "-c", f.script)
	return err
}
