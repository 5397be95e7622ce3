package graph

import (
	"fmt"
	"iter"
	"slices"
	"sort"
	"strings"
)

// Edge is one end of an edge between two tasks.
type Edge struct {
	Task Task // at the other end
	// Need is the index of the edge's Need in the Needs of the kind of the task
	// that needs.
	Need int32
}

// Graph is the task graph of one cluster: dense arrays, immutable, safe for
// concurrent reading.
type Graph struct {
	kinds *KindGraph
	hosts []Host
	byHst map[string]int32

	first []Task    // first[k]: first task of kind k; first[len] is Len
	on    [][]int32 // on[k]: the hosts of kind k, ascending; nil for cluster kinds

	kindOf []int32
	hostOf []int32 // -1 for cluster tasks

	needAt []int32 // needs[needAt[t]:needAt[t+1]] are the edges of t
	needs  []Edge
	backAt []int32
	backs  []Edge
}

// Expand multiplies the kinds over the hosts. Tasks are ordered by kind, then by
// the order of hosts, so that indices are a topological order. A need whose
// kind stands on none of the hosts it points to gives no edge.
func (kg *KindGraph) Expand(hosts []Host) (*Graph, error) {
	g := &Graph{kinds: kg, hosts: slices.Clone(hosts), byHst: make(map[string]int32, len(hosts))}
	for i := range g.hosts {
		name := g.hosts[i].Name
		if name == "" || strings.ContainsAny(name, "/:+*") {
			return nil, fmt.Errorf("host %q: not a name", name)
		}
		if _, ok := g.byHst[name]; ok {
			return nil, fmt.Errorf("host %s is listed twice", name)
		}
		g.byHst[name] = int32(i)
	}
	g.place()
	g.connect()
	return g, nil
}

// place numbers the tasks.
func (g *Graph) place() {
	type place struct {
		roles   string
		leaving bool
	}
	lists := map[place][]int32{} // kinds that stand on the same hosts share the list
	n := Task(0)
	for k := range g.kinds.kinds {
		kind := &g.kinds.kinds[k]
		g.first = append(g.first, n)
		if kind.Scope == OnCluster {
			g.on = append(g.on, nil)
			n++
			continue
		}
		key := place{strings.Join(kind.Roles, "\x00"), kind.Leaving}
		list, ok := lists[key]
		if !ok {
			list = make([]int32, 0, len(g.hosts))
			for h := range g.hosts {
				if g.hosts[h].carries(kind) {
					list = append(list, int32(h))
				}
			}
			lists[key] = list
		}
		g.on = append(g.on, list)
		n += Task(len(list))
	}
	g.first = append(g.first, n)
	g.kindOf = make([]int32, n)
	g.hostOf = make([]int32, n)
	for k := range g.kinds.kinds {
		for t := g.first[k]; t < g.first[k+1]; t++ {
			g.kindOf[t] = int32(k)
			g.hostOf[t] = -1
			if list := g.on[k]; list != nil {
				g.hostOf[t] = list[t-g.first[k]]
			}
		}
	}
}

// connect fills the edge arrays, first those of needs, then the same reversed.
func (g *Graph) connect() {
	n := g.Len()
	g.needAt = make([]int32, n+1)
	g.needs = make([]Edge, 0, 4*n)
	byRole := map[[2]string][]Task{} // kind and role -> tasks
	for k := range g.kinds.kinds {
		for t := g.first[k]; t < g.first[k+1]; t++ {
			g.needAt[t] = int32(len(g.needs))
			g.connectTask(t, k, byRole)
		}
	}
	g.needAt[n] = int32(len(g.needs))

	g.backAt = make([]int32, n+1)
	for _, e := range g.needs {
		g.backAt[e.Task+1]++
	}
	for t := range n {
		g.backAt[t+1] += g.backAt[t]
	}
	g.backs = make([]Edge, len(g.needs))
	fill := slices.Clone(g.backAt[:n])
	for t := range Task(n) {
		for _, e := range g.NeedEdges(t) {
			g.backs[fill[e.Task]] = Edge{Task: t, Need: e.Need}
			fill[e.Task]++
		}
	}
}

func (g *Graph) connectTask(t Task, k int, byRole map[[2]string][]Task) {
	kind := &g.kinds.kinds[k]
	for i := range kind.Needs {
		need := &kind.Needs[i]
		to := int(g.kinds.needs[k][i])
		switch need.Via {
		case Same:
			if u, ok := g.At(to, int(g.hostOf[t])); ok {
				g.needs = append(g.needs, Edge{u, int32(i)})
			}
		case ToCluster:
			g.needs = append(g.needs, Edge{g.first[to], int32(i)})
		case FromAll:
			for u := g.first[to]; u < g.first[to+1]; u++ {
				g.needs = append(g.needs, Edge{u, int32(i)})
			}
		case ToRole:
			key := [2]string{need.Kind, need.Role}
			list, ok := byRole[key]
			if !ok {
				list = []Task{}
				for u := g.first[to]; u < g.first[to+1]; u++ {
					if g.hosts[g.hostOf[u]].HasRole([]string{need.Role}) {
						list = append(list, u)
					}
				}
				byRole[key] = list
			}
			for _, u := range list {
				g.needs = append(g.needs, Edge{u, int32(i)})
			}
		}
	}
}

// Len is the number of tasks.
func (g *Graph) Len() int { return len(g.kindOf) }

// EdgeCount is the number of edges between tasks.
func (g *Graph) EdgeCount() int { return len(g.needs) }

// Kinds is the graph of kinds it was expanded from.
func (g *Graph) Kinds() *KindGraph { return g.kinds }

// Hosts returns the hosts in their order; not to be changed.
func (g *Graph) Hosts() []Host { return g.hosts }

// HostIndex returns the index of a host by name.
func (g *Graph) HostIndex(name string) (int, bool) {
	h, ok := g.byHst[name]
	return int(h), ok
}

// Kind is the kind of a task.
func (g *Graph) Kind(t Task) *Kind { return &g.kinds.kinds[g.kindOf[t]] }

// KindIndex is the index of a task's kind in Kinds.
func (g *Graph) KindIndex(t Task) int { return int(g.kindOf[t]) }

// Host is the index of a task's host in Hosts, or -1 for a cluster task.
func (g *Graph) Host(t Task) int { return int(g.hostOf[t]) }

// HostName is the name of a task's host, "" for a cluster task.
func (g *Graph) HostName(t Task) string {
	if h := g.hostOf[t]; h >= 0 {
		return g.hosts[h].Name
	}
	return ""
}

// Name is what people and records call a task: "phase.part/host", or
// "phase.part" for a cluster task.
func (g *Graph) Name(t Task) string {
	k := g.Kind(t)
	if h := g.hostOf[t]; h >= 0 {
		return k.Phase + "." + k.Part + "/" + g.hosts[h].Name
	}
	return k.Phase + "." + k.Part
}

// Lookup finds a task by its name.
func (g *Graph) Lookup(name string) (Task, bool) { return g.LookupBytes([]byte(name)) }

// LookupBytes is Lookup without an allocation, for those who read a hundred
// thousand keys.
func (g *Graph) LookupBytes(name []byte) (Task, bool) {
	id, host := name, []byte(nil)
	for i, c := range name {
		if c == '/' {
			id, host = name[:i], name[i+1:]
			break
		}
	}
	k, ok := g.kinds.index[string(id)]
	if !ok {
		return 0, false
	}
	if g.kinds.kinds[k].Scope == OnCluster {
		return g.first[k], host == nil
	}
	h, ok := g.byHst[string(host)]
	if !ok || host == nil {
		return 0, false
	}
	return g.At(k, int(h))
}

// At returns the task of a kind on a host; a cluster kind has one for any host.
func (g *Graph) At(kind, host int) (Task, bool) {
	list := g.on[kind]
	if g.kinds.kinds[kind].Scope == OnCluster {
		return g.first[kind], true
	}
	i := host // every host has the kind: the usual case needs no search
	if len(list) != len(g.hosts) {
		i = sort.Search(len(list), func(i int) bool { return int(list[i]) >= host })
	}
	if i < 0 || i >= len(list) || int(list[i]) != host {
		return 0, false
	}
	return g.first[kind] + Task(i), true
}

// TasksOf returns the tasks of a kind as a range, from first up to but not
// including end, in host order.
func (g *Graph) TasksOf(kind int) (first, end Task) { return g.first[kind], g.first[kind+1] }

// NeedEdges returns the edges to what a task needs, in the order of its kind's
// Needs, then host order; not to be changed.
func (g *Graph) NeedEdges(t Task) []Edge { return g.needs[g.needAt[t]:g.needAt[t+1]] }

// DependentEdges returns the edges from what needs a task, in task order; not
// to be changed. Edge.Need counts in the Needs of the dependent's kind.
func (g *Graph) DependentEdges(t Task) []Edge { return g.backs[g.backAt[t]:g.backAt[t+1]] }

// Needs iterates over what a task needs, with the need behind each edge.
func (g *Graph) Needs(t Task) iter.Seq2[Task, *Need] {
	return func(yield func(Task, *Need) bool) {
		k := g.Kind(t)
		for _, e := range g.NeedEdges(t) {
			if !yield(e.Task, &k.Needs[e.Need]) {
				return
			}
		}
	}
}

// Dependents iterates over what needs a task, with the need behind each edge.
func (g *Graph) Dependents(t Task) iter.Seq2[Task, *Need] {
	return func(yield func(Task, *Need) bool) {
		for _, e := range g.DependentEdges(t) {
			if !yield(e.Task, &g.Kind(e.Task).Needs[e.Need]) {
				return
			}
		}
	}
}
