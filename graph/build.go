package graph

import (
	"fmt"
	"slices"
	"strings"

	dominikbraun "github.com/dominikbraun/graph"
)

// KindGraph is the checked graph of kinds. It is immutable; its kinds are in
// topological order, by name among those that are free.
type KindGraph struct {
	kinds []Kind
	index map[string]int // "phase.part" -> index in kinds
	needs [][]int32      // for each kind, the kind index behind each of its Needs
	order []string       // phases as they were declared
	lib   dominikbraun.Graph[string, string]
}

// Option changes what New accepts.
type Option func(*checks)

type checks struct{ roles []string }

// WithRoles names the roles an edge may lead to with ToRole: those whose number
// of hosts is small and fixed. Without it they are master and etcd.
func WithRoles(roles ...string) Option {
	return func(c *checks) { c.roles = roles }
}

// New checks the kinds and orders them. Every error names the kind and the rule
// it breaks; a cycle is printed as a path.
func New(kinds []Kind, opts ...Option) (*KindGraph, error) {
	c := checks{roles: []string{"master", "etcd"}}
	for _, o := range opts {
		o(&c)
	}
	byID := make(map[string]*Kind, len(kinds))
	for i := range kinds {
		k := &kinds[i]
		if err := checkKind(k); err != nil {
			return nil, err
		}
		if byID[k.ID()] != nil {
			return nil, fmt.Errorf("kind %s is declared twice", k.ID())
		}
		byID[k.ID()] = k
	}
	for i := range kinds {
		if err := checkNeeds(&kinds[i], byID, c.roles); err != nil {
			return nil, err
		}
	}
	lib, err := library(kinds)
	if err != nil {
		return nil, err
	}
	order, err := sortKinds(kinds)
	if err != nil {
		return nil, err
	}
	kg := &KindGraph{lib: lib, index: make(map[string]int, len(kinds))}
	for i := range kinds {
		if !slices.Contains(kg.order, kinds[i].Phase) {
			kg.order = append(kg.order, kinds[i].Phase)
		}
	}
	for _, i := range order {
		kg.index[kinds[i].ID()] = len(kg.kinds)
		kg.kinds = append(kg.kinds, kinds[i])
	}
	for i := range kg.kinds {
		var to []int32
		for _, n := range kg.kinds[i].Needs {
			to = append(to, int32(kg.index[n.Kind]))
		}
		kg.needs = append(kg.needs, to)
	}
	if err := kg.checkGuards(); err != nil {
		return nil, err
	}
	return kg, nil
}

func checkKind(k *Kind) error {
	for _, w := range []string{k.Phase, k.Part} {
		if w == "" || strings.Trim(w, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return fmt.Errorf("kind %q: phase and part are lower-case words with digits and dashes", k.ID())
		}
	}
	if k.Recipe < 1 {
		return fmt.Errorf("kind %s: recipe numbers start at 1", k.ID())
	}
	if k.Scope == OnCluster && len(k.Roles) > 0 {
		return fmt.Errorf("kind %s: a cluster task has no roles", k.ID())
	}
	if k.Scope == OnCluster && k.Leaving {
		return fmt.Errorf("kind %s: a cluster task stands on no host that leaves", k.ID())
	}
	return nil
}

func checkNeeds(k *Kind, byID map[string]*Kind, roles []string) error {
	type edge struct {
		kind string
		via  Via
		role string
	}
	seen := map[edge]bool{}
	for _, n := range k.Needs {
		to := byID[n.Kind]
		if to == nil {
			return fmt.Errorf("kind %s needs %s, which does not exist%s", k.ID(), n.Kind, hint(n.Kind, byID))
		}
		e := edge{n.Kind, n.Via, n.Role}
		if seen[e] {
			return fmt.Errorf("kind %s needs %s twice in the same way", k.ID(), n.Kind)
		}
		seen[e] = true
		if rule := brokenRule(k, to, &n, roles); rule != "" {
			return fmt.Errorf("kind %s needs %s: %s", k.ID(), n.Kind, rule)
		}
	}
	return nil
}

// brokenRule returns the rule of ENGINE, "the graph", that an edge breaks.
func brokenRule(k, to *Kind, n *Need, roles []string) string {
	if n.Via != ToRole && n.Role != "" {
		return "a role is given, but the edge does not lead to a role"
	}
	switch n.Via {
	case Same:
		if k.Scope != OnHost || to.Scope != OnHost {
			return "an edge on the same host joins two host tasks"
		}
	case ToCluster:
		if to.Scope != OnCluster {
			return "a cluster edge leads to a cluster task"
		}
	case ToRole:
		if to.Scope != OnHost {
			return "a role edge leads to host tasks"
		}
		if !slices.Contains(roles, n.Role) {
			return fmt.Sprintf("a role edge leads to %s only, not to %q: their number must be small and fixed",
				strings.Join(roles, " or "), n.Role)
		}
	case FromAll:
		if k.Scope != OnCluster || to.Scope != OnHost {
			return "an edge to all hosts leads from a cluster task to host tasks: " +
				"host tasks get at a set of hosts through one cluster task"
		}
	default:
		return "unknown way"
	}
	if n.Quorum != All && (n.Via == Same || n.Via == ToCluster) {
		return "a quorum of one task makes no sense"
	}
	return ""
}

// library puts the kinds into dominikbraun/graph. PreventCycles is quadratic
// there and stays off; cycles are looked for once, by sortKinds.
func library(kinds []Kind) (dominikbraun.Graph[string, string], error) {
	lib := dominikbraun.New(dominikbraun.StringHash, dominikbraun.Directed())
	for i := range kinds {
		if err := lib.AddVertex(kinds[i].ID()); err != nil {
			return nil, fmt.Errorf("adding kind %s: %w", kinds[i].ID(), err)
		}
	}
	for i := range kinds {
		done := map[string]bool{}
		for _, n := range kinds[i].Needs {
			if done[n.Kind] || n.Kind == kinds[i].ID() { // a self-loop is reported by sortKinds
				continue
			}
			done[n.Kind] = true
			if err := lib.AddEdge(kinds[i].ID(), n.Kind); err != nil {
				return nil, fmt.Errorf("adding edge %s -> %s: %w", kinds[i].ID(), n.Kind, err)
			}
		}
	}
	return lib, nil
}

// Len is the number of kinds.
func (kg *KindGraph) Len() int { return len(kg.kinds) }

// Kind returns the kind of an index below Len.
func (kg *KindGraph) Kind(i int) *Kind { return &kg.kinds[i] }

// Index returns the index of a kind by its ID.
func (kg *KindGraph) Index(id string) (int, bool) {
	i, ok := kg.index[id]
	return i, ok
}

// Needed returns the index of the kind behind the n-th need of kind i.
func (kg *KindGraph) Needed(i, n int) int { return int(kg.needs[i][n]) }

// Phases returns the names of the phases in the order in which they were first
// declared; not to be changed.
func (kg *KindGraph) Phases() []string { return kg.order }

// Path returns a shortest chain of kinds from one that needs to one that is
// needed, both ends included, or nil if there is none.
func (kg *KindGraph) Path(from, to string) []string {
	p, err := dominikbraun.ShortestPath(kg.lib, from, to)
	if err != nil {
		return nil
	}
	return p
}
