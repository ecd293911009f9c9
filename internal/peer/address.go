package peer

import (
	"crypto/md5"
	"fmt"
	"net/netip"
)

// Scheme is how a link address follows from a key. All hosts of a mesh must
// agree on it: a node configures its own address from its own key. The zero
// value is WGKex.
type Scheme uint8

const (
	// WGKex hashes the key's text with a newline after it, as `echo KEY | md5sum` does.
	WGKex Scheme = iota
	// Gluon hashes the key's text alone, as stock Gluon's gluon-mesh-vpn-wireguard does.
	Gluon
)

var schemeNames = [...]string{WGKex: "wgkex", Gluon: "gluon"}

// Schemes lists every scheme, the default first.
func Schemes() []Scheme { return []Scheme{WGKex, Gluon} }

// String returns the name by which the config file knows the scheme.
func (s Scheme) String() string {
	if int(s) < len(schemeNames) {
		return schemeNames[s]
	}
	return fmt.Sprintf("Scheme(%d)", uint8(s))
}

// UnmarshalText reads the name of a scheme.
func (s *Scheme) UnmarshalText(text []byte) error {
	for i, name := range schemeNames {
		if name == string(text) {
			*s = Scheme(i)
			return nil
		}
	}
	return fmt.Errorf("link address scheme %q: want wgkex or gluon", text)
}

// LinkAddress returns the IPv6 link-local address that belongs to the key: with
// h the MD5 sum of the key's text, the MAC address 02:h0:h1:h2:h3:h4 stretched
// to an EUI-64 by ff:fe in its middle. Unlike RFC 4291, appendix A, the mesh does
// not flip the universal/local bit: the 02 stays.
func (s Scheme) LinkAddress(k Key) netip.Addr {
	var text [encodedLen + 1]byte
	encoding.Encode(text[:encodedLen], k[:])
	hashed := text[:encodedLen]
	if s == WGKex {
		text[encodedLen] = '\n'
		hashed = text[:]
	}
	h := md5.Sum(hashed)
	return netip.AddrFrom16([16]byte{
		0: 0xfe, 1: 0x80,
		8: 0x02, 9: h[0], 10: h[1], 11: 0xff,
		12: 0xfe, 13: h[2], 14: h[3], 15: h[4],
	})
}

// IsLinkAddress tells whether the address has the form that LinkAddress gives,
// whatever the scheme and key.
func IsLinkAddress(a netip.Addr) bool {
	if !a.Is6() || a.Zone() != "" {
		return false
	}
	b := a.As16()
	return [9]byte(b[:9]) == [9]byte{0: 0xfe, 1: 0x80, 8: 0x02} && b[11] == 0xff && b[12] == 0xfe
}
