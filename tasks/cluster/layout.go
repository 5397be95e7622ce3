package cluster

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"hk/remote"
	"hk/tasks/spec"
)

// podMask is the size of a host's pod network: 254 pods, more than kubelet's
// default of 110.
const podMask = 24

// privateMost is the number of hosts up to which workers join the private
// network by default; a network holds 100 (CLUSTER.md, Names and addresses).
const privateMost = 90

// Wanted are the hosts a config asks for: masters, etcd, then workers by pool,
// each by number. What is allocated is filled in by Layout.
func Wanted(c *spec.Cluster) []spec.Host {
	var out []spec.Host
	add := func(role, pool string, n int, typ, location string) *spec.Host {
		name := pool + "-" + strconv.Itoa(n)
		out = append(out, spec.Host{
			Name: name, Node: c.Name + "-" + name, Role: role, Roles: []string{role}, Pool: pool, Number: n,
			Type: typ, Location: location,
		})
		return &out[len(out)-1]
	}
	for n := 1; n <= c.Masters.Count; n++ {
		h := add(spec.Master, spec.Master, n, c.Masters.Type, c.Location)
		h.Private = true
		if c.Etcd.Count == 0 {
			h.Roles = append(h.Roles, spec.Etcd)
		}
	}
	for n := 1; n <= c.Etcd.Count; n++ {
		add(spec.Etcd, spec.Etcd, n, c.Etcd.Type, c.Location)
	}
	pools := slices.Clone(c.Workers)
	slices.SortStableFunc(pools, func(a, b spec.WorkerPool) int { return cmp.Compare(a.Pool, b.Pool) })
	all := c.Masters.Count + c.Etcd.Count
	for _, p := range pools {
		all += p.Count
	}
	for _, p := range pools {
		private := all <= privateMost
		if p.LoadBalanced != nil {
			private = *p.LoadBalanced
		}
		for n := 1; n <= p.Count; n++ {
			h := add(spec.Worker, p.Pool, n, p.Type, cmp.Or(p.Location, c.Location))
			h.Labels, h.Taints, h.Private = p.Labels, p.Taints, private
		}
	}
	return out
}

// Allocate gives every wanted host an index. One that has an index keeps it, by
// the unit or else by its server's label; the others get the lowest free ones
// in the order of Wanted. The same config and history give the same indices.
func Allocate(wanted []spec.Host, have map[string]int, servers []remote.Server) (map[string]int, error) {
	out := map[string]int{}
	owner := map[int]string{}
	claim := func(host string, n int) error {
		if was, ok := owner[n]; ok && was != host {
			return &Refusal{
				Exit: ExitState, World: "state",
				Message: fmt.Sprintf("hosts %s and %s both have index %d", was, host, n),
				Hints:   []string{"an address cannot belong to two hosts; remove one of the two servers"},
			}
		}
		owner[n], out[host] = host, n
		return nil
	}
	hosts := make([]string, 0, len(have))
	for h := range have {
		hosts = append(hosts, h)
	}
	slices.Sort(hosts)
	for _, h := range hosts {
		if err := claim(h, have[h]); err != nil {
			return nil, err
		}
	}
	for i := range servers {
		h, n := servers[i].Labels[remote.LabelHost], index(&servers[i])
		if h == "" || n == 0 {
			continue
		}
		if had, ok := out[h]; ok && had != n {
			return nil, &Refusal{
				Exit: ExitState, World: "state",
				Message: fmt.Sprintf("host %s has index %d in the credential unit and %d on its server's label", h, had, n),
				Hints:   []string{"set the label " + remote.LabelIndex + " of server " + servers[i].Name + " back to " + strconv.Itoa(had)},
			}
		}
		if err := claim(h, n); err != nil {
			return nil, err
		}
	}
	next := 1
	for i := range wanted {
		if _, ok := out[wanted[i].Name]; ok {
			continue
		}
		for owner[next] != "" {
			next++
		}
		if err := claim(wanted[i].Name, next); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Layout fills in what follows from the index: mesh address and pod network.
func Layout(c *spec.Cluster, hosts []spec.Host, alloc map[string]int) ([]spec.Host, error) {
	mesh, err := netip.ParsePrefix(c.Network.Mesh)
	if err != nil {
		return nil, fmt.Errorf("network.mesh: %w", err)
	}
	pods, err := netip.ParsePrefix(c.Network.Pods)
	if err != nil {
		return nil, fmt.Errorf("network.pods: %w", err)
	}
	out := slices.Clone(hosts)
	for i := range out {
		h := &out[i]
		h.Index = alloc[h.Name]
		if h.Index == 0 {
			continue
		}
		a, ok := nth(mesh, h.Index, 32)
		if !ok {
			return nil, tooSmall("network.mesh", mesh, h)
		}
		h.MeshIP = a.String()
		if h.Role == spec.Etcd {
			continue
		}
		p, ok := nth(pods, h.Index, podMask)
		if !ok {
			return nil, tooSmall("network.pods", pods, h)
		}
		h.PodCIDR = netip.PrefixFrom(p, podMask).String()
	}
	return out, nil
}

func tooSmall(field string, p netip.Prefix, h *spec.Host) error {
	return &Refusal{
		Exit: ExitConfig, World: "config",
		Message: fmt.Sprintf("%s (%s) is too small for host %s with index %d", field, p, h.Name, h.Index),
	}
}

// nth is the n-th network of a mask's size in an IPv4 prefix; false if it is
// outside of it.
func nth(p netip.Prefix, n, mask int) (netip.Addr, bool) {
	if !p.Addr().Is4() || mask < p.Bits() {
		return netip.Addr{}, false
	}
	b := p.Masked().Addr().As4()
	v := uint64(b[0])<<24 | uint64(b[1])<<16 | uint64(b[2])<<8 | uint64(b[3])
	v += uint64(n) << (32 - mask)
	if v > 1<<32-1 {
		return netip.Addr{}, false
	}
	a := netip.AddrFrom4([4]byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)})
	return a, p.Contains(a)
}
