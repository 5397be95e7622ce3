package cluster

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"hk/remote"
	"hk/tasks/spec"
)

// allocate gives every wanted host an index. One that has an index keeps it, by
// the unit or else by its server's label; the others get the lowest free ones
// in the order of the config. The same config and history give the same
// indices.
func allocate(names []string, have map[string]int, servers []remote.Server) (map[string]int, error) {
	out := maps.Clone(have)
	if out == nil {
		out = map[string]int{}
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
		out[h] = n
	}
	owner := map[int]string{}
	for _, h := range slices.Sorted(maps.Keys(out)) {
		if was := owner[out[h]]; was != "" {
			return nil, &Refusal{
				Exit: ExitState, World: "state",
				Message: fmt.Sprintf("hosts %s and %s both have index %d: an address cannot belong to two", was, h, out[h]),
				Hints:   []string{"remove the server of one of them"},
			}
		}
		owner[out[h]] = h
	}
	return spec.Allocate(out, names), nil
}

// layout are the wanted hosts with what follows from their index. After many
// hosts came and went an index may lie outside of the address plan.
func layout(c *spec.Cluster, alloc map[string]int) ([]spec.Host, error) {
	pods := netip.MustParsePrefix(c.Network.Pods)
	mesh := netip.MustParsePrefix(c.Network.Mesh)
	hosts := spec.Expand(c, alloc)
	for i := range hosts {
		h := &hosts[i]
		if a, err := netip.ParseAddr(h.MeshIP); err != nil || !mesh.Contains(a) {
			return nil, tooSmall("network.mesh", c.Network.Mesh, h)
		}
		if h.PodCIDR == "" {
			continue
		}
		if p, err := netip.ParsePrefix(h.PodCIDR); err != nil || !pods.Contains(p.Addr()) {
			return nil, tooSmall("network.pods", c.Network.Pods, h)
		}
	}
	return hosts, nil
}

func tooSmall(field, network string, h *spec.Host) error {
	return &Refusal{
		Exit: ExitConfig, World: "config",
		Message: fmt.Sprintf("%s (%s) is too small for host %s with index %d", field, network, h.Name, h.Index),
	}
}
