package graph

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// CycleError is a cycle of kinds. Path starts and ends with the same kind; each
// needs the next.
type CycleError struct{ Path []string }

func (e *CycleError) Error() string {
	return "kinds need each other in a circle: " + strings.Join(e.Path, " -> ")
}

// sortKinds returns the indices of the kinds in topological order, by name
// among those that are free. It is our own because the library's sort scans
// every vertex for every vertex (dominikbraun/graph#170) and its "stable" order
// is not the least one.
func sortKinds(kinds []Kind) ([]int, error) {
	byID := make(map[string]int, len(kinds))
	for i := range kinds {
		byID[kinds[i].ID()] = i
	}
	open := make([]int, len(kinds)) // needs not yet placed
	back := make([][]int, len(kinds))
	var free []int
	for i := range kinds {
		open[i] = len(kinds[i].Needs)
		for _, n := range kinds[i].Needs {
			j := byID[n.Kind]
			back[j] = append(back[j], i)
		}
		if open[i] == 0 {
			free = append(free, i)
		}
	}
	byName := func(a, b int) int { return strings.Compare(kinds[a].ID(), kinds[b].ID()) }
	slices.SortFunc(free, byName)
	order := make([]int, 0, len(kinds))
	for len(free) > 0 {
		i := free[0]
		free = free[1:]
		order = append(order, i)
		for _, j := range back[i] {
			if open[j]--; open[j] == 0 {
				at, _ := slices.BinarySearchFunc(free, j, byName)
				free = slices.Insert(free, at, j)
			}
		}
	}
	if len(order) < len(kinds) {
		return nil, &CycleError{Path: findCycle(kinds, byID, open)}
	}
	return order, nil
}

// findCycle walks needs among the kinds that could not be placed until it meets
// one again. Each of them has a need that is not placed either, so it ends.
func findCycle(kinds []Kind, byID map[string]int, open []int) []string {
	at := slices.IndexFunc(open, func(n int) bool { return n > 0 })
	var path []string
	for {
		id := kinds[at].ID()
		if i := slices.Index(path, id); i >= 0 {
			path = append(path[i:], id)
			return path
		}
		path = append(path, id)
		for _, n := range kinds[at].Needs {
			if open[byID[n.Kind]] > 0 {
				at = byID[n.Kind]
				break
			}
		}
	}
}

// checkGuards refuses guarded sequences that could wait for themselves or each
// other. While a host holds a guard's slot, everything the rest of its sequence
// needs must be able to finish. So if a host task of guard A needs, through
// another host or the cluster, a host task of guard B, nothing of B may lead
// back to A; and A and B are different.
func (kg *KindGraph) checkGuards() error {
	type reach struct{ from, to int } // kinds, as the example for the message
	waits := map[string]map[string]reach{}
	for i := range kg.kinds {
		k := &kg.kinds[i]
		if k.Guard == "" || k.Scope != OnHost {
			continue
		}
		for _, j := range kg.crossing(i) {
			if waits[k.Guard] == nil {
				waits[k.Guard] = map[string]reach{}
			}
			waits[k.Guard][kg.kinds[j].Guard] = reach{i, j}
		}
	}
	// Whoever is reached from a guard and reaches it again is in the circle.
	for _, g := range slices.Sorted(maps.Keys(waits)) {
		seen := map[string]bool{}
		todo := []string{g}
		for len(todo) > 0 {
			at := todo[0]
			todo = todo[1:]
			for _, to := range slices.Sorted(maps.Keys(waits[at])) {
				if to == g {
					e := waits[at][to]
					return fmt.Errorf("kind %s (guard %q) needs %s (guard %q) on other hosts: "+
						"a host that holds the slot could wait for one that waits for it",
						kg.kinds[e.from].ID(), at, kg.kinds[e.to].ID(), to)
				}
				if !seen[to] {
					seen[to] = true
					todo = append(todo, to)
				}
			}
		}
	}
	return nil
}

// crossing returns the guarded host kinds that kind i reaches over at least one
// edge that leaves the host.
func (kg *KindGraph) crossing(i int) []int {
	const same, away = 1, 2 // how a kind was reached
	var out []int
	reached := make([]uint8, i+1)
	reached[i] = same
	// Kinds are in topological order, so one pass downwards from i sees each
	// kind after everything that needs it.
	for j := i; j >= 0; j-- {
		if reached[j] == 0 {
			continue
		}
		if reached[j]&away != 0 && kg.kinds[j].Scope == OnHost && kg.kinds[j].Guard != "" {
			out = append(out, j)
		}
		for n, to := range kg.needs[j] {
			if kg.kinds[j].Needs[n].Via == Same {
				reached[to] |= reached[j]
			} else {
				reached[to] |= away
			}
		}
	}
	return out
}
