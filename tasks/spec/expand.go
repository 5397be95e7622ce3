package spec

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// privateLimit is the number of hosts up to which workers are attached to the
// private network unless their pool says otherwise: a network holds 100.
const privateLimit = 90

// Slot is a desired host before anything is allocated to it.
type Slot struct {
	Name   string // master-1
	Role   string
	Pool   string
	Number int
}

// Slots are the hosts the config asks for in their one order: masters, etcd,
// workers in the file's order of pools, each by number.
func Slots(c *Cluster) []Slot {
	var out []Slot
	add := func(role, pool string, count int) {
		for n := 1; n <= count; n++ {
			out = append(out, Slot{Name: pool + "-" + strconv.Itoa(n), Role: role, Pool: pool, Number: n})
		}
	}
	add(Master, Master, c.Masters.Count)
	add(Etcd, Etcd, c.Etcd.Count)
	for i := range c.Workers {
		add(Worker, c.Workers[i].Pool, c.Workers[i].Count)
	}
	return out
}

// Names are the names of the desired hosts, in the order of Slots.
func Names(c *Cluster) []string {
	var out []string
	for _, s := range Slots(c) {
		out = append(out, s.Name)
	}
	return out
}

// Allocate gives every name an index: the one it has, else the smallest from 1
// on that nobody has, in the order given. What exists is kept, also for hosts
// that are not in names: they are being removed and still hold theirs.
func Allocate(existing map[string]int, names []string) map[string]int {
	out := maps.Clone(existing)
	if out == nil {
		out = map[string]int{}
	}
	taken := map[int]bool{}
	for _, i := range out {
		taken[i] = true
	}
	next := 1
	for _, n := range names {
		if _, ok := out[n]; ok {
			continue
		}
		for taken[next] {
			next++
		}
		out[n], taken[next] = next, true
	}
	return out
}

// Expand are the desired hosts with what was allocated to them. Every host of
// Names must have an index; the config must have been checked.
func Expand(c *Cluster, alloc map[string]int) []Host {
	mesh, pods := netip.MustParsePrefix(c.Network.Mesh), netip.MustParsePrefix(c.Network.Pods)
	pools := map[string]*WorkerPool{}
	for i := range c.Workers {
		pools[c.Workers[i].Pool] = &c.Workers[i]
	}
	private := map[string]bool{}
	for _, p := range c.attachedPools() {
		private[p.pool] = true
	}
	slots := Slots(c)
	out := make([]Host, 0, len(slots))
	for _, s := range slots {
		index := alloc[s.Name]
		if index < 1 {
			panic("bug: host " + s.Name + " has no index")
		}
		h := Host{
			Name: s.Name, Node: c.Name + "-" + s.Name, Role: s.Role, Roles: []string{s.Role}, Pool: s.Pool, Number: s.Number,
			Location: c.Location, Index: index, MeshIP: nthAddr(mesh, index).String(), Private: private[s.Pool],
		}
		switch s.Role {
		case Master:
			h.Type = c.Masters.Type
			if c.Etcd.Count == 0 {
				h.Roles = append(h.Roles, Etcd)
			}
		case Etcd:
			h.Type = c.Etcd.Type
		case Worker:
			p := pools[s.Pool]
			h.Type, h.Labels, h.Taints = p.Type, p.Labels, p.Taints
			if p.Location != "" {
				h.Location = p.Location
			}
		}
		if s.Role != Etcd {
			h.PodCIDR = netip.PrefixFrom(nthAddr(pods, index<<(32-podBits)), podBits).String()
		}
		out = append(out, h)
	}
	return out
}

// RoleOf is what a host was made as, by its name: no pool of workers may be
// called master or etcd.
func RoleOf(host string) string {
	if at := strings.LastIndexByte(host, '-'); at >= 0 && (host[:at] == Master || host[:at] == Etcd) {
		return host[:at]
	}
	return Worker
}

// Gone is a host that exists and that the config does not ask for any more: what
// its name and its index say of it. An index of 0 is not known.
func Gone(c *Cluster, name string, index int) Host {
	at := strings.LastIndexByte(name, '-')
	h := Host{Name: name, Node: c.Name + "-" + name, Role: RoleOf(name), Pool: name[:max(at, 0)], Index: index}
	h.Number, _ = strconv.Atoi(name[at+1:]) // hk names no host otherwise
	h.Roles = []string{h.Role}
	if h.Role == Master && c.Etcd.Count == 0 { // which is as it was: it cannot be changed
		h.Roles = append(h.Roles, Etcd)
	}
	if index > 0 {
		h.MeshIP = nthAddr(netip.MustParsePrefix(c.Network.Mesh), index).String()
		if h.Role != Etcd {
			h.PodCIDR = netip.PrefixFrom(nthAddr(netip.MustParsePrefix(c.Network.Pods), index<<(32-podBits)), podBits).String()
		}
	}
	return h
}

type attachedPool struct {
	pool, path string
	count      int
}

// attachedPools are the pools whose hosts are in the private network: the
// masters if there is a load balancer, and pools of workers that say so or, up
// to 90 hosts in all, do not say otherwise.
func (c *Cluster) attachedPools() []attachedPool {
	total := c.Masters.Count + c.Etcd.Count
	for i := range c.Workers {
		total += c.Workers[i].Count
	}
	var out []attachedPool
	if c.Endpoint.Kind() == EndpointLoadBalancer {
		out = append(out, attachedPool{Master, "masters.count", c.Masters.Count})
	}
	for i := range c.Workers {
		w := &c.Workers[i]
		attached := total <= privateLimit
		if w.LoadBalanced != nil {
			attached = *w.LoadBalanced
		}
		if attached {
			out = append(out, attachedPool{w.Pool, fmt.Sprintf("workers[%d]", i), w.Count})
		}
	}
	return out
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
