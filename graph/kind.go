package graph

import "slices"

// Scope says whether a kind stands once for the cluster or once on each host.
type Scope uint8

const (
	// OnCluster: one task for the whole cluster.
	OnCluster Scope = iota
	// OnHost: one task on each host that has one of the kind's roles.
	OnHost
)

// Via says how an edge of the kind graph becomes edges between tasks.
type Via uint8

const (
	// Same: from a task on a host to the needed kind's task on that host. If
	// the needed kind does not stand on the host, there is no edge.
	Same Via = iota
	// ToCluster: to the needed kind's one cluster task.
	ToCluster
	// ToRole: to the needed kind's tasks on all hosts of Need.Role; only
	// towards roles whose number is small and fixed (masters, etcd).
	ToRole
	// FromAll: from a cluster task to the needed kind's tasks on all hosts.
	FromAll
)

// Quorum says how many of the tasks behind one edge must be good.
type Quorum uint8

const (
	// All of them; their output digests are part of the fingerprint.
	All Quorum = iota
	// Majority of them. Such an edge is a gate: it orders and it may block, but
	// which of them answered is not part of the fingerprint.
	Majority
	// Any number, even none: it orders only, and the kind's Inputs take what is
	// there.
	Any
)

// Need is one edge of the kind graph.
type Need struct {
	Kind   string // "phase.part" of what is needed
	Via    Via
	Role   string // with ToRole
	Quorum Quorum
	// After makes it an order only: wait until it finished in any way. Its
	// output is not part of the fingerprint and its failure does not block.
	After bool
	// Why is the reason, for people and for the test that asks it of every
	// edge between different hosts.
	Why string
}

// Kind is a part of a phase, such as etcd-setup.certs: what the code declares
// once and expansion multiplies over the hosts.
type Kind struct {
	Phase, Part string
	Scope       Scope
	Roles       []string // with OnHost: the roles it stands on; nil means every host
	// Leaving puts it on the hosts that are being removed, and on no others; all
	// other kinds stand on none of those.
	Leaving bool
	Needs   []Need
	Pool    string // name of the pool a run takes a place in; "" for none
	Guard   string // name of the guarded sequence it belongs to; "" for none
	Asset   string // what --keep-ASSET spares: data, certs, ca; "" for nothing
	Recipe  int    // bumped by hand when what Run does changes its effect; from 1
	// Once marks what is made once and never again: forced, it is verified only.
	Once bool
	// Title is what people read in help and views, such as "etcd certificates".
	Title string
}

// ID is the kind's name, "phase.part".
func (k *Kind) ID() string { return k.Phase + "." + k.Part }

// Host is a machine as the graph sees it.
type Host struct {
	Name  string
	Roles []string
	// Leaving: it exists and is not wanted any more.
	Leaving bool
}

// HasRole reports whether the host has one of the roles; no roles means yes.
func (h *Host) HasRole(roles []string) bool {
	if len(roles) == 0 {
		return true
	}
	for _, r := range h.Roles {
		if slices.Contains(roles, r) {
			return true
		}
	}
	return false
}

// carries reports whether the kind stands on the host.
func (h *Host) carries(k *Kind) bool { return h.Leaving == k.Leaving && h.HasRole(k.Roles) }

// Task is a vertex: a dense index into a Graph. Indices are a topological
// order: kinds in topological (then name) order, hosts in the order given.
type Task int32
