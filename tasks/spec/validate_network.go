package spec

import (
	"fmt"
	"math/big"
	"net/netip"
)

// podBits is the prefix length of one host's pods.
const podBits = 24

// spareIndexes is how many hosts more than the config asks for the address plan
// must hold: an index stays with the name of its host, also when that is gone, so
// that an address never belongs to another.
const spareIndexes = 16

// privateRanges are the addresses that no public host has (RFC 1918, RFC 6598,
// RFC 2544).
func privateRanges() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("198.18.0.0/15"),
	}
}

type namedPrefix struct {
	path   string
	prefix netip.Prefix
}

func (v *validator) networks() {
	n := &v.c.Network
	var list []namedPrefix
	for _, f := range []struct {
		path, value string
		min, max    int // prefix lengths
	}{
		{"network.mesh", n.Mesh, 8, 28},
		{"network.private", n.Private, 8, 28},
		{"network.pods", n.Pods, 8, 22},
		{"network.services", n.Services, 12, 24},
	} {
		if p, ok := v.prefix(f.path, f.value, f.min, f.max); ok {
			list = append(list, namedPrefix{f.path, p})
		}
	}
	for i := range list {
		for _, other := range list[:i] {
			if list[i].prefix.Overlaps(other.prefix) {
				v.add(list[i].path, fmt.Sprintf("%s overlaps %s %s", list[i].prefix, other.path, other.prefix), "each needs addresses of its own")
			}
		}
	}
	v.room(list)
	v.port("network.mesh_port", n.MeshPort)
	if n.MeshPort >= 30000 && n.MeshPort <= 32767 {
		v.add("network.mesh_port", fmt.Sprintf("%d is one of Kubernetes' NodePorts (30000 to 32767)", n.MeshPort), "51820 is the usual one")
	}
}

// prefix checks one network by itself.
func (v *validator) prefix(path, s string, shortest, longest int) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		v.add(path, fmt.Sprintf("%q is no network", short(s)), "such as 10.100.0.0/16")
		return p, false
	case !p.Addr().Is4():
		v.add(path, fmt.Sprintf("%s is not an IPv4 network", p), "")
		return p, false
	case p != p.Masked():
		v.add(path, fmt.Sprintf("%s is an address inside a network", p), "the network is "+p.Masked().String())
		return p, false
	case p.Bits() < shortest || p.Bits() > longest:
		v.add(path, fmt.Sprintf("%s has a size that does not fit", p), fmt.Sprintf("from /%d to /%d", shortest, longest))
		return p, false
	}
	for _, r := range privateRanges() {
		if r.Contains(p.Addr()) && r.Bits() <= p.Bits() {
			return p, true
		}
	}
	v.add(path, fmt.Sprintf("%s holds public addresses", p), "hosts could not reach them any more; use 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16")
	return p, false
}

// room checks that every host finds an address and its pods a /24. Index 0 is
// never given out.
func (v *validator) room(list []namedPrefix) {
	hosts := v.hosts()
	for _, n := range list {
		var room int
		switch n.path {
		case "network.mesh":
			room = 1<<(32-n.prefix.Bits()) - 2
		case "network.pods":
			room = 1<<(podBits-n.prefix.Bits()) - 1
		default:
			continue
		}
		if room < hosts+spareIndexes {
			v.add(n.path, fmt.Sprintf("%s has room for %d hosts; %d and %d spare are needed", n.prefix, room, hosts, spareIndexes), "take a larger network")
		}
	}
}

// hosts is how many hosts the config asks for, as far as its counts make sense.
func (v *validator) hosts() int {
	n := max(v.c.Masters.Count, 0) + max(v.c.Etcd.Count, 0)
	for i := range v.c.Workers {
		n += min(max(v.c.Workers[i].Count, 0), 1<<20)
	}
	return n
}

// nthAddr is the n-th address of a network.
func nthAddr(p netip.Prefix, n int) netip.Addr {
	raw := p.Addr().As4()
	i := new(big.Int).SetBytes(raw[:])
	i.Add(i, big.NewInt(int64(n)))
	var out [4]byte
	i.FillBytes(out[:])
	return netip.AddrFrom4(out)
}
