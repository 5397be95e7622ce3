package run_test

import (
	"fmt"

	"pgregory.net/rapid"

	"hk/graph"
)

// drawGraph makes a random graph that keeps the rules: up to nine kinds over up
// to five hosts.
func drawGraph(t *rapid.T) *graph.Graph {
	kinds := drawKinds(t)
	kg, err := graph.New(kinds)
	for err != nil { // guards that could wait for each other
		for i := range kinds {
			kinds[i].Guard = ""
		}
		kg, err = graph.New(kinds)
		if err != nil {
			t.Fatalf("kinds: %v", err)
		}
	}
	var hosts []graph.Host
	for i := range rapid.IntRange(1, 5).Draw(t, "hosts") {
		roles := []string{"worker"}
		if i < 3 {
			roles = []string{"master", "etcd"}
		}
		hosts = append(hosts, graph.Host{Name: fmt.Sprintf("h%d", i), Roles: roles})
	}
	g, err := kg.Expand(hosts)
	if err != nil {
		t.Fatalf("expand: %v", err)
	}
	return g
}

func drawKinds(t *rapid.T) []graph.Kind {
	var kinds []graph.Kind
	for i := range rapid.IntRange(1, 9).Draw(t, "kinds") {
		k := graph.Kind{
			Phase: fmt.Sprintf("p%d", i/3), Part: fmt.Sprintf("k%d", i), Recipe: 1,
			Scope: graph.Scope(rapid.IntRange(0, 1).Draw(t, "scope")),
			Pool:  rapid.SampledFrom([]string{"", "", "narrow"}).Draw(t, "pool"),
			Asset: rapid.SampledFrom([]string{"", "", "data"}).Draw(t, "asset"),
			Once:  rapid.IntRange(0, 5).Draw(t, "once") == 0,
		}
		if k.Scope == graph.OnHost {
			k.Roles = rapid.SampledFrom([][]string{nil, nil, {"master"}, {"worker"}}).Draw(t, "roles")
			k.Guard = rapid.SampledFrom([]string{"", "", "one", "two"}).Draw(t, "guard")
		}
		for j := range kinds {
			if n, ok := drawNeed(t, &k, &kinds[j]); ok {
				k.Needs = append(k.Needs, n)
			}
		}
		kinds = append(kinds, k)
	}
	return kinds
}

func drawNeed(t *rapid.T, k, to *graph.Kind) (graph.Need, bool) {
	if rapid.IntRange(0, 2).Draw(t, "edge") == 0 {
		return graph.Need{}, false
	}
	n := graph.Need{Kind: to.ID(), After: rapid.IntRange(0, 7).Draw(t, "after") == 0}
	switch {
	case to.Scope == graph.OnCluster:
		n.Via = graph.ToCluster
		return n, true
	case k.Scope == graph.OnCluster && rapid.Bool().Draw(t, "all"):
		n.Via = graph.FromAll
	case k.Scope == graph.OnHost && rapid.Bool().Draw(t, "same"):
		n.Via = graph.Same
		return n, true
	default:
		n.Via, n.Role = graph.ToRole, "master"
	}
	n.Quorum = graph.Quorum(rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "quorum"))
	return n, true
}
