package graph

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Target names tasks as people do: `CLUSTER[/HOST]` or
// `CLUSTER:PHASE[.PART][/HOST]`, with the cluster already taken off. Empty
// fields match everything.
type Target struct {
	Phase string
	Part  string
	Host  string // a name or a glob such as worker-*
	// Dependents is the `+` at the end: what needs these tasks is named too.
	Dependents bool
}

// String is the target as it was typed, without the cluster.
func (t Target) String() string {
	s := t.Phase
	if t.Part != "" {
		s += "." + t.Part
	}
	if t.Host != "" {
		s += "/" + t.Host
	}
	if t.Dependents {
		s += "+"
	}
	return s
}

// SelectOptions changes what a selection holds.
type SelectOptions struct {
	// Only leaves out what the named tasks need.
	Only bool
}

// Selection is what a build is about.
type Selection struct {
	// Named are the tasks the targets denote, those behind a `+` included.
	// Force and only apply to them.
	Named Set
	// Selected are the named ones and, unless Only, everything they need.
	Selected Set
}

// UnknownError is a target that names something the cluster does not have.
type UnknownError struct {
	What        string // "phase", "part", "host" or "task"
	Word        string
	Suggestions []string // nearest first, at most three
}

func (e *UnknownError) Error() string {
	s := fmt.Sprintf("unknown %s %q", e.What, e.Word)
	if e.What == "task" {
		s = fmt.Sprintf("no task matches %q", e.Word)
	}
	if len(e.Suggestions) > 0 {
		s += ": did you mean " + strings.Join(e.Suggestions, " or ") + "?"
	}
	return s
}

// Select turns targets into sets of tasks. No target means all tasks, named and
// selected. A word that matches nothing is an UnknownError.
func (g *Graph) Select(targets []Target, o SelectOptions) (Selection, error) {
	if len(targets) == 0 {
		return Selection{Named: g.FullSet(), Selected: g.FullSet()}, nil
	}
	named := g.NewSet()
	for _, t := range targets {
		match, err := g.match(t)
		if err != nil {
			return Selection{}, err
		}
		if t.Dependents {
			match = g.Down(match, -1)
		}
		named.Union(match)
	}
	if o.Only {
		return Selection{Named: named, Selected: named.Clone()}, nil
	}
	return Selection{Named: named, Selected: g.Up(named, -1)}, nil
}

// match returns the tasks one target denotes by itself.
func (g *Graph) match(t Target) (Set, error) {
	kinds, err := g.matchKinds(t)
	if err != nil {
		return Set{}, err
	}
	hosts, err := g.matchHosts(t.Host)
	if err != nil {
		return Set{}, err
	}
	s := g.NewSet()
	found := false
	for _, k := range kinds {
		first, end := g.TasksOf(k)
		for u := first; u < end; u++ {
			if t.Host == "" || g.hostOf[u] >= 0 && hosts[g.hostOf[u]] {
				s.Add(u)
				found = true
			}
		}
	}
	if !found {
		return Set{}, &UnknownError{What: "task", Word: t.String()}
	}
	return s, nil
}

func (g *Graph) matchKinds(t Target) ([]int, error) {
	var out []int
	var parts []string
	phase := t.Phase == ""
	for k := range g.kinds.kinds {
		kind := &g.kinds.kinds[k]
		if t.Phase != "" && kind.Phase != t.Phase {
			continue
		}
		phase = true
		parts = append(parts, kind.Part)
		if t.Part == "" || kind.Part == t.Part {
			out = append(out, k)
		}
	}
	if !phase {
		return nil, &UnknownError{What: "phase", Word: t.Phase, Suggestions: Nearest(t.Phase, g.kinds.Phases())}
	}
	if len(out) == 0 {
		near := Nearest(t.Part, parts)
		for i := range near {
			near[i] = t.Phase + "." + near[i]
		}
		return nil, &UnknownError{What: "part", Word: t.Phase + "." + t.Part, Suggestions: near}
	}
	return out, nil
}

// matchHosts marks the hosts a name or glob matches.
func (g *Graph) matchHosts(glob string) ([]bool, error) {
	if glob == "" {
		return nil, nil
	}
	out := make([]bool, len(g.hosts))
	found := false
	for i := range g.hosts {
		ok, err := path.Match(glob, g.hosts[i].Name)
		if err != nil {
			return nil, &UnknownError{What: "host", Word: glob}
		}
		out[i] = ok
		found = found || ok
	}
	if !found {
		names := make([]string, len(g.hosts))
		for i := range g.hosts {
			names[i] = g.hosts[i].Name
		}
		return nil, &UnknownError{What: "host", Word: glob, Suggestions: Nearest(glob, names)}
	}
	return out, nil
}

// Up returns the tasks and what they need, at most depth edges away; a negative
// depth means everything.
func (g *Graph) Up(from Set, depth int) Set { return g.spread(from, depth, g.NeedEdges, true) }

// Down returns the tasks and what needs them, at most depth edges away; a
// negative depth means everything.
func (g *Graph) Down(from Set, depth int) Set { return g.spread(from, depth, g.DependentEdges, false) }

// Between returns the tasks on any path from one of a to one of b, whichever of
// them needs the other, both ends included; empty if no path joins them.
func (g *Graph) Between(a, b Set) Set {
	s := intersect(g.Down(a, -1), g.Up(b, -1))
	s.Union(intersect(g.Down(b, -1), g.Up(a, -1)))
	return s
}

func intersect(a, b Set) Set {
	c := a.Clone()
	for i := range c.words {
		c.words[i] &= b.words[i]
	}
	return c
}

func (g *Graph) spread(from Set, depth int, edges func(Task) []Edge, backwards bool) Set {
	out := from.Clone()
	if depth >= 0 {
		edge := slices.Collect(from.All())
		for ; depth > 0 && len(edge) > 0; depth-- {
			var next []Task
			for _, t := range edge {
				for _, e := range edges(t) {
					if !out.Has(e.Task) {
						out.Add(e.Task)
						next = append(next, e.Task)
					}
				}
			}
			edge = next
		}
		return out
	}
	// Without a limit one pass in topological order reaches everything.
	n := Task(g.Len())
	for i := range n {
		t := i
		if backwards {
			t = n - 1 - i
		}
		if out.Has(t) {
			for _, e := range edges(t) {
				out.Add(e.Task)
			}
		}
	}
	return out
}
