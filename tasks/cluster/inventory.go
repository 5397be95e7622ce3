package cluster

import (
	"fmt"

	"hk/remote"
	"hk/tasks/spec"
)

// Mine is the part of an inventory that carries a UID.
func Mine(inv *remote.Inventory, uid string) *remote.Inventory {
	return &remote.Inventory{
		Time:            inv.Time,
		Servers:         keepUID(inv.Servers, uid, func(o *remote.Server) map[string]string { return o.Labels }),
		Networks:        keepUID(inv.Networks, uid, func(o *remote.Network) map[string]string { return o.Labels }),
		Firewalls:       keepUID(inv.Firewalls, uid, func(o *remote.Firewall) map[string]string { return o.Labels }),
		PlacementGroups: keepUID(inv.PlacementGroups, uid, func(o *remote.PlacementGroup) map[string]string { return o.Labels }),
		LoadBalancers:   keepUID(inv.LoadBalancers, uid, func(o *remote.LoadBalancer) map[string]string { return o.Labels }),
		SSHKeys:         keepUID(inv.SSHKeys, uid, func(o *remote.SSHKey) map[string]string { return o.Labels }),
	}
}

func keepUID[T any](all []T, uid string, labels func(*T) map[string]string) []T {
	var out []T
	for i := range all {
		l := labels(&all[i])
		if uid != "" && l[remote.LabelUID] == uid && l[remote.LabelLock] == "" {
			out = append(out, all[i])
		}
	}
	return out
}

func allLabels(inv *remote.Inventory) []map[string]string {
	var out []map[string]string
	for i := range inv.Servers {
		out = append(out, inv.Servers[i].Labels)
	}
	for i := range inv.Networks {
		out = append(out, inv.Networks[i].Labels)
	}
	for i := range inv.Firewalls {
		if inv.Firewalls[i].Labels[remote.LabelLock] == "" {
			out = append(out, inv.Firewalls[i].Labels)
		}
	}
	for i := range inv.PlacementGroups {
		out = append(out, inv.PlacementGroups[i].Labels)
	}
	for i := range inv.LoadBalancers {
		out = append(out, inv.LoadBalancers[i].Labels)
	}
	for i := range inv.SSHKeys {
		out = append(out, inv.SSHKeys[i].Labels)
	}
	return out
}

// foreignObjects names what has a name the cluster needs and is not its own.
// Objects of another cluster of the same name are told apart by their label.
func foreignObjects(inv *remote.Inventory, uid, name string, wanted []spec.Host) []string {
	need := map[string]bool{}
	for i := range wanted {
		need[wanted[i].Node] = true
	}
	var out []string
	see := func(kind string, id int64, n string, want bool, l map[string]string) {
		if want && (uid == "" || l[remote.LabelUID] != uid) && l[remote.LabelCluster] != name {
			out = append(out, fmt.Sprintf("%s %s (%d)", kind, n, id))
		}
	}
	for i := range inv.Servers {
		o := &inv.Servers[i]
		see("server", o.ID, o.Name, need[o.Name], o.Labels)
	}
	for i := range inv.Networks {
		o := &inv.Networks[i]
		see("network", o.ID, o.Name, o.Name == name, o.Labels)
	}
	for i := range inv.Firewalls {
		o := &inv.Firewalls[i]
		see("firewall", o.ID, o.Name, o.Name == name || o.Name == name+"-masters", o.Labels)
	}
	for i := range inv.LoadBalancers {
		o := &inv.LoadBalancers[i]
		see("load balancer", o.ID, o.Name, o.Name == name, o.Labels)
	}
	return out
}
