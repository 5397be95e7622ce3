package sim

import "hk/remote"

// World of the given state, as a build uses it. lease is the lease generation
// that writes on hosts are made under.
func (w *World) Remote(lease func() uint64) remote.World {
	return remote.World{
		Name: "sim", Cloud: w.Cloud(), Hosts: w.Hosts(lease),
		NewKube: w.NewKube, NewEtcd: w.NewEtcd, Clock: w.now,
	}
}
