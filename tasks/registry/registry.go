// Package registry is the list of all kinds: the one place that knows every
// phase's room.
package registry

import (
	"slices"

	"hk/tasks"
	"hk/tasks/addons"
	"hk/tasks/etcd"
	"hk/tasks/ha"
	"hk/tasks/masters"
	"hk/tasks/network"
	"hk/tasks/provision"
	"hk/tasks/spec"
	"hk/tasks/workers"
)

// All returns every kind, phase by phase.
func All() []tasks.Kind {
	return slices.Concat(provision.Kinds(), network.Kinds(), etcd.Kinds(), masters.Kinds(), ha.Kinds(), workers.Kinds(), addons.Kinds())
}

// For returns the kinds that a config asks for. Edges towards a kind that it
// does not ask for fall away with it.
func For(c *spec.Cluster) []tasks.Kind {
	var out []tasks.Kind
	on := map[string]bool{}
	for _, k := range All() {
		if k.When(c) {
			out = append(out, k)
			on[k.ID()] = true
		}
	}
	for i := range out {
		needs := out[i].Needs[:0:0]
		for _, n := range out[i].Needs {
			if on[n.Kind] {
				needs = append(needs, n)
			}
		}
		out[i].Needs = needs
	}
	return out
}
