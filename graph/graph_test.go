package graph_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"hk/graph"
)

func kind(id string, f func(*graph.Kind)) graph.Kind {
	k := graph.Kind{Recipe: 1}
	if _, err := fmt.Sscanf(id, "%1s.%s", &k.Phase, &k.Part); err != nil {
		panic(err)
	}
	if f != nil {
		f(&k)
	}
	return k
}

func onHost(roles ...string) func(*graph.Kind) {
	return func(k *graph.Kind) { k.Scope, k.Roles = graph.OnHost, roles }
}

func needs(n ...graph.Need) func(*graph.Kind) { return func(k *graph.Kind) { k.Needs = n } }

func both(f ...func(*graph.Kind)) func(*graph.Kind) {
	return func(k *graph.Kind) {
		for _, g := range f {
			g(k)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	master := graph.Need{Kind: "p.h", Via: graph.ToRole, Role: "master"}
	for name, c := range map[string]struct {
		kinds []graph.Kind
		want  string
	}{
		"twice":      {[]graph.Kind{kind("p.a", nil), kind("p.a", nil)}, "kind p.a is declared twice"},
		"name":       {[]graph.Kind{{Phase: "P", Part: "a", Recipe: 1}}, `kind "P.a": phase and part are lower-case words with digits and dashes`},
		"recipe":     {[]graph.Kind{{Phase: "p", Part: "a"}}, "kind p.a: recipe numbers start at 1"},
		"roles":      {[]graph.Kind{{Phase: "p", Part: "a", Recipe: 1, Roles: []string{"x"}}}, "kind p.a: a cluster task has no roles"},
		"leaving":    {[]graph.Kind{{Phase: "p", Part: "a", Recipe: 1, Leaving: true}}, "kind p.a: a cluster task stands on no host that leaves"},
		"unknown":    {[]graph.Kind{kind("p.cert", nil), kind("p.b", needs(graph.Need{Kind: "p.certs", Via: graph.ToCluster}))}, "kind p.b needs p.certs, which does not exist (did you mean p.cert?)"},
		"twice need": {[]graph.Kind{kind("p.a", nil), kind("p.b", needs(graph.Need{Kind: "p.a", Via: graph.ToCluster}, graph.Need{Kind: "p.a", Via: graph.ToCluster}))}, "kind p.b needs p.a twice in the same way"},
		"same":       {[]graph.Kind{kind("p.a", nil), kind("p.b", needs(graph.Need{Kind: "p.a"}))}, "kind p.b needs p.a: an edge on the same host joins two host tasks"},
		"cluster":    {[]graph.Kind{kind("p.h", onHost()), kind("p.b", needs(graph.Need{Kind: "p.h", Via: graph.ToCluster}))}, "kind p.b needs p.h: a cluster edge leads to a cluster task"},
		"all from host": {
			[]graph.Kind{kind("p.h", onHost()), kind("p.b", both(onHost(), needs(graph.Need{Kind: "p.h", Via: graph.FromAll})))},
			"kind p.b needs p.h: an edge to all hosts leads from a cluster task to host tasks: host tasks get at a set of hosts through one cluster task",
		},
		"role": {
			[]graph.Kind{kind("p.h", onHost()), kind("p.b", both(onHost(), needs(graph.Need{Kind: "p.h", Via: graph.ToRole, Role: "worker"})))},
			`kind p.b needs p.h: a role edge leads to master or etcd only, not to "worker": their number must be small and fixed`,
		},
		"quorum": {[]graph.Kind{kind("p.a", nil), kind("p.b", needs(graph.Need{Kind: "p.a", Via: graph.ToCluster, Quorum: graph.Any}))}, "kind p.b needs p.a: a quorum of one task makes no sense"},
		"self":   {[]graph.Kind{kind("p.a", needs(graph.Need{Kind: "p.a", Via: graph.ToCluster}))}, "kinds need each other in a circle: p.a -> p.a"},
		"cycle": {
			[]graph.Kind{
				kind("p.0", nil),
				kind("p.a", needs(graph.Need{Kind: "p.0", Via: graph.ToCluster}, graph.Need{Kind: "p.b", Via: graph.ToCluster})),
				kind("p.b", needs(graph.Need{Kind: "p.c", Via: graph.ToCluster})),
				kind("p.c", needs(graph.Need{Kind: "p.a", Via: graph.ToCluster})),
				kind("p.d", needs(graph.Need{Kind: "p.c", Via: graph.ToCluster})),
			},
			"kinds need each other in a circle: p.a -> p.b -> p.c -> p.a",
		},
		"guard": {
			[]graph.Kind{
				kind("p.h", both(onHost(), func(k *graph.Kind) { k.Guard = "g" })),
				kind("p.i", both(onHost(), needs(master), func(k *graph.Kind) { k.Guard = "g" })),
			},
			`kind p.i (guard "g") needs p.h (guard "g") on other hosts: a host that holds the slot could wait for one that waits for it`,
		},
		"two guards": {
			[]graph.Kind{
				kind("p.a", both(onHost(), func(k *graph.Kind) { k.Guard = "e" })),
				kind("p.b", both(onHost(), func(k *graph.Kind) { k.Guard = "f" })),
				kind("p.c", needs(graph.Need{Kind: "p.a", Via: graph.FromAll})),
				kind("p.d", both(onHost(), needs(graph.Need{Kind: "p.c", Via: graph.ToCluster}), func(k *graph.Kind) { k.Guard = "f" })),
				kind("p.x", both(onHost(), needs(graph.Need{Kind: "p.b", Via: graph.ToRole, Role: "etcd"}), func(k *graph.Kind) { k.Guard = "e" })),
			},
			`kind p.d (guard "f") needs p.a (guard "e") on other hosts: a host that holds the slot could wait for one that waits for it`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := graph.New(c.kinds)
			if err == nil || err.Error() != c.want {
				t.Errorf("got  %v\nwant %s", err, c.want)
			}
		})
	}
	var cycle *graph.CycleError
	_, err := graph.New([]graph.Kind{kind("p.a", needs(graph.Need{Kind: "p.a", Via: graph.ToCluster}))})
	if !errors.As(err, &cycle) || !slices.Equal(cycle.Path, []string{"p.a", "p.a"}) {
		t.Errorf("%v", err)
	}
	if _, err := graph.New([]graph.Kind{
		kind("p.h", onHost()), kind("p.b", both(onHost(), needs(graph.Need{Kind: "p.h", Via: graph.ToRole, Role: "edge"}))),
	}, graph.WithRoles("edge")); err != nil {
		t.Errorf("an allowed role is refused: %v", err)
	}
}

func TestExpandRefuses(t *testing.T) {
	kg := demoKinds(t)
	for _, hosts := range [][]graph.Host{{{Name: ""}}, {{Name: "a/b"}}, {{Name: "a"}, {Name: "a"}}} {
		if _, err := kg.Expand(hosts); err == nil {
			t.Errorf("%v is accepted", hosts)
		}
	}
}

// demoKinds is a small cluster: servers, one set of peers, etcd, a join.
func demoKinds(t testing.TB) *graph.KindGraph {
	t.Helper()
	kg, err := graph.New([]graph.Kind{
		{Phase: "workers", Part: "join", Scope: graph.OnHost, Roles: []string{"worker"}, Recipe: 1, Needs: []graph.Need{
			{Kind: "net.mesh"}, {Kind: "etcd.health", Via: graph.ToCluster},
		}},
		{Phase: "provision", Part: "server", Scope: graph.OnHost, Recipe: 1},
		{Phase: "net", Part: "peers", Recipe: 1, Needs: []graph.Need{{Kind: "provision.server", Via: graph.FromAll, Quorum: graph.Any}}},
		{Phase: "net", Part: "mesh", Scope: graph.OnHost, Recipe: 1, Needs: []graph.Need{
			{Kind: "provision.server"}, {Kind: "net.peers", Via: graph.ToCluster},
		}},
		{Phase: "etcd", Part: "service", Scope: graph.OnHost, Roles: []string{"etcd"}, Recipe: 1, Needs: []graph.Need{
			{Kind: "net.mesh"}, {Kind: "net.mesh", Via: graph.ToRole, Role: "etcd", Quorum: graph.Majority, Why: "members talk"},
		}},
		{Phase: "etcd", Part: "health", Recipe: 1, Needs: []graph.Need{{Kind: "etcd.service", Via: graph.FromAll}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return kg
}

func demo(t testing.TB) *graph.Graph {
	t.Helper()
	g, err := demoKinds(t).Expand([]graph.Host{
		{Name: "master-1", Roles: []string{"master", "etcd"}},
		{Name: "master-2", Roles: []string{"master", "etcd"}},
		{Name: "worker-1", Roles: []string{"worker"}},
		{Name: "worker-2", Roles: []string{"worker"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func names(g *graph.Graph, s graph.Set) []string {
	var out []string
	for t := range s.All() {
		out = append(out, g.Name(t))
	}
	return out
}

func TestExpand(t *testing.T) {
	g := demo(t)
	var got []string
	for u := range graph.Task(g.Len()) {
		line := g.Name(u) + " <-"
		for v, n := range g.Needs(u) {
			line += " " + g.Name(v)
			if n.Quorum == graph.Majority {
				line += "?"
			}
		}
		got = append(got, line)
	}
	want := []string{
		"provision.server/master-1 <-", "provision.server/master-2 <-", "provision.server/worker-1 <-", "provision.server/worker-2 <-",
		"net.peers <- provision.server/master-1 provision.server/master-2 provision.server/worker-1 provision.server/worker-2",
		"net.mesh/master-1 <- provision.server/master-1 net.peers", "net.mesh/master-2 <- provision.server/master-2 net.peers",
		"net.mesh/worker-1 <- provision.server/worker-1 net.peers", "net.mesh/worker-2 <- provision.server/worker-2 net.peers",
		"etcd.service/master-1 <- net.mesh/master-1 net.mesh/master-1? net.mesh/master-2?",
		"etcd.service/master-2 <- net.mesh/master-2 net.mesh/master-1? net.mesh/master-2?",
		"etcd.health <- etcd.service/master-1 etcd.service/master-2",
		"workers.join/worker-1 <- net.mesh/worker-1 etcd.health", "workers.join/worker-2 <- net.mesh/worker-2 etcd.health",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"workers", "provision", "net", "etcd"}, g.Kinds().Phases()); diff != "" {
		t.Errorf("phases: %s", diff)
	}
	if p := g.Kinds().Path("workers.join", "provision.server"); len(p) != 3 {
		t.Errorf("path: %v", p)
	}
	if p := g.Kinds().Path("provision.server", "workers.join"); p != nil {
		t.Errorf("path against the edges: %v", p)
	}
}

// Removal stands on the hosts that leave and on no others, and everything else on
// none of those; it is reached from the cluster's tasks and within its host.
func TestExpandLeaving(t *testing.T) {
	leaving := func(k *graph.Kind) { k.Leaving = true }
	kg, err := graph.New([]graph.Kind{
		kind("p.a", onHost()),
		kind("p.r", both(onHost(), leaving)),
		kind("p.s", both(onHost("master"), leaving, needs(graph.Need{Kind: "p.r"}))),
		kind("p.c", needs(graph.Need{Kind: "p.a", Via: graph.FromAll}, graph.Need{Kind: "p.r", Via: graph.FromAll, Quorum: graph.Any})),
	})
	if err != nil {
		t.Fatal(err)
	}
	g, err := kg.Expand([]graph.Host{
		{Name: "master-1", Roles: []string{"master"}},
		{Name: "worker-1", Roles: []string{"worker"}},
		{Name: "worker-2", Roles: []string{"worker"}, Leaving: true},
		{Name: "master-2", Roles: []string{"master"}, Leaving: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for u := range graph.Task(g.Len()) {
		line := g.Name(u) + " <-"
		for v := range g.Needs(u) {
			line += " " + g.Name(v)
		}
		got = append(got, line)
	}
	want := []string{
		"p.a/master-1 <-", "p.a/worker-1 <-", "p.r/worker-2 <-", "p.r/master-2 <-",
		"p.c <- p.a/master-1 p.a/worker-1 p.r/worker-2 p.r/master-2", "p.s/master-2 <- p.r/master-2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, bad := range []string{"p.a/worker-2", "p.r/worker-1", "p.s/worker-2"} {
		if _, ok := g.Lookup(bad); ok {
			t.Errorf("%s exists", bad)
		}
	}
}

// Names and tasks are two ways to say the same; edges and dependents are the
// same edges; indices are a topological order.
func TestGraphIsConsistent(t *testing.T) {
	g := demo(t)
	type edge struct{ from, to graph.Task }
	forward, backward := map[edge]int{}, map[edge]int{}
	for u := range graph.Task(g.Len()) {
		if v, ok := g.Lookup(g.Name(u)); !ok || v != u {
			t.Errorf("%s is looked up as %d, %v", g.Name(u), v, ok)
		}
		for _, e := range g.NeedEdges(u) {
			if e.Task >= u {
				t.Errorf("%s needs the later %s", g.Name(u), g.Name(e.Task))
			}
			forward[edge{u, e.Task}] += 1 + int(e.Need)*100
		}
		for _, e := range g.DependentEdges(u) {
			backward[edge{e.Task, u}] += 1 + int(e.Need)*100
		}
		if k, h := g.KindIndex(u), g.Host(u); h >= 0 {
			if v, ok := g.At(k, h); !ok || v != u {
				t.Errorf("%s is at %d, %v", g.Name(u), v, ok)
			}
		}
	}
	if !maps.Equal(forward, backward) {
		t.Errorf("edges differ by direction")
	}
	for _, bad := range []string{"", "net.mesh", "net.peers/", "net.peers/master-1", "net.mesh/", "net.mesh/x", "workers.join/master-1", "x.y", "net"} {
		if u, ok := g.Lookup(bad); ok {
			t.Errorf("%q is found as %s", bad, g.Name(u))
		}
	}
}

func TestSelect(t *testing.T) {
	g := demo(t)
	T := func(phase, part, host string, plus bool) graph.Target {
		return graph.Target{Phase: phase, Part: part, Host: host, Dependents: plus}
	}
	up := []string{
		"provision.server/master-1", "provision.server/master-2", "provision.server/worker-1", "provision.server/worker-2", "net.peers",
	}
	for _, c := range []struct {
		targets         []graph.Target
		named, selected []string
	}{
		{[]graph.Target{T("net", "mesh", "worker-1", false)}, []string{"net.mesh/worker-1"}, append(slices.Clone(up), "net.mesh/worker-1")},
		{[]graph.Target{T("net", "mesh", "worker-*", false)}, []string{"net.mesh/worker-1", "net.mesh/worker-2"}, append(slices.Clone(up), "net.mesh/worker-1", "net.mesh/worker-2")},
		{[]graph.Target{T("provision", "", "", false)}, up[:4], up[:4]},
		{[]graph.Target{T("", "", "worker-2", false)}, []string{"provision.server/worker-2", "net.mesh/worker-2", "workers.join/worker-2"}, nil},
		{[]graph.Target{T("etcd", "health", "", true)}, []string{"etcd.health", "workers.join/worker-1", "workers.join/worker-2"}, nil},
		{[]graph.Target{T("etcd", "health", "", false), T("provision", "server", "worker-1", false)}, []string{"provision.server/worker-1", "etcd.health"}, nil},
	} {
		sel, err := g.Select(c.targets, graph.SelectOptions{})
		if err != nil {
			t.Errorf("%v: %v", c.targets, err)
			continue
		}
		if diff := cmp.Diff(c.named, names(g, sel.Named)); diff != "" {
			t.Errorf("%v named (-want +got):\n%s", c.targets, diff)
		}
		if diff := cmp.Diff(c.selected, names(g, sel.Selected)); c.selected != nil && diff != "" {
			t.Errorf("%v selected (-want +got):\n%s", c.targets, diff)
		}
		only, err := g.Select(c.targets, graph.SelectOptions{Only: true})
		if err != nil || !slices.Equal(names(g, only.Selected), c.named) {
			t.Errorf("%v only: %v, %v", c.targets, names(g, only.Selected), err)
		}
	}
	all, err := g.Select(nil, graph.SelectOptions{})
	if err != nil || all.Named.Len() != g.Len() || all.Selected.Len() != g.Len() {
		t.Errorf("no target: %d, %v", all.Named.Len(), err)
	}
	for _, c := range []struct {
		target graph.Target
		want   string
	}{
		{T("etdc", "", "", false), `unknown phase "etdc": did you mean etcd?`},
		{T("etcd", "services", "", false), `unknown part "etcd.services": did you mean etcd.service?`},
		{T("", "", "worker-9", false), `unknown host "worker-9": did you mean worker-1 or worker-2?`},
		{T("", "", "edge-*", false), `unknown host "edge-*"`},
		{T("", "", "[", false), `unknown host "["`},
		{T("workers", "join", "master-1", true), `no task matches "workers.join/master-1+"`},
		{T("net", "peers", "master-1", false), `no task matches "net.peers/master-1"`},
		{T("zzz", "", "", false), `unknown phase "zzz"`},
	} {
		_, err := g.Select([]graph.Target{c.target}, graph.SelectOptions{})
		var unknown *graph.UnknownError
		if !errors.As(err, &unknown) || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.target, err, c.want)
		}
	}
}

func TestNeighbourhoods(t *testing.T) {
	g := demo(t)
	one := func(name string) graph.Set {
		s := g.NewSet()
		u, ok := g.Lookup(name)
		if !ok {
			t.Fatalf("no task %s", name)
		}
		s.Add(u)
		return s
	}
	same := func(got graph.Set, want ...string) {
		t.Helper()
		if diff := cmp.Diff(want, names(g, got)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
	same(g.Up(one("etcd.health"), 0), "etcd.health")
	same(g.Up(one("etcd.health"), 1), "etcd.service/master-1", "etcd.service/master-2", "etcd.health")
	same(g.Down(one("etcd.service/master-1"), 1), "etcd.service/master-1", "etcd.health")
	same(g.Down(one("etcd.service/master-1"), -1), "etcd.service/master-1", "etcd.health", "workers.join/worker-1", "workers.join/worker-2")
	same(g.Between(one("net.mesh/master-1"), one("etcd.health")),
		"net.mesh/master-1", "etcd.service/master-1", "etcd.service/master-2", "etcd.health")
	same(g.Between(one("etcd.health"), one("net.mesh/master-1")),
		"net.mesh/master-1", "etcd.service/master-1", "etcd.service/master-2", "etcd.health")
	same(g.Between(one("workers.join/worker-1"), one("workers.join/worker-2")))
}

func TestSet(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		kg, err := graph.New([]graph.Kind{{Phase: "p", Part: "a", Scope: graph.OnHost, Recipe: 1}})
		if err != nil {
			rt.Fatal(err)
		}
		var hosts []graph.Host
		for i := range rapid.IntRange(0, 200).Draw(rt, "n") {
			hosts = append(hosts, graph.Host{Name: fmt.Sprint("h", i)})
		}
		g, err := kg.Expand(hosts)
		if err != nil {
			rt.Fatal(err)
		}
		model := map[graph.Task]bool{}
		s := g.NewSet()
		for range rapid.IntRange(0, 50).Draw(rt, "ops") {
			if g.Len() == 0 {
				break
			}
			u := graph.Task(rapid.IntRange(0, g.Len()-1).Draw(rt, "task"))
			if rapid.Bool().Draw(rt, "add") {
				s.Add(u)
				model[u] = true
			} else {
				s.Remove(u)
				delete(model, u)
			}
		}
		if !slices.Equal(slices.Collect(s.All()), slices.Sorted(maps.Keys(model))) || s.Len() != len(model) {
			rt.Fatalf("%v is %v", model, slices.Collect(s.All()))
		}
		if g.FullSet().Len() != g.Len() {
			rt.Fatalf("the full set has %d of %d", g.FullSet().Len(), g.Len())
		}
	})
}

// Lanes makes a graph with about n tasks as a cluster has them: hosts with
// eight tasks each in a row, and a cluster task between the phases.
func lanes(b testing.TB, n int) *graph.Graph {
	b.Helper()
	kg := laneKinds(b)
	hosts := make([]graph.Host, n/8)
	for i := range hosts {
		hosts[i] = graph.Host{Name: fmt.Sprintf("worker-%d", i+1), Roles: []string{"worker"}}
	}
	g, err := kg.Expand(hosts)
	if err != nil {
		b.Fatal(err)
	}
	return g
}

func laneKinds(b testing.TB) *graph.KindGraph {
	b.Helper()
	var kinds []graph.Kind
	for i := range 8 {
		k := graph.Kind{Phase: fmt.Sprintf("phase-%d", i/2), Part: fmt.Sprintf("part-%d", i), Scope: graph.OnHost, Recipe: 1}
		if i > 0 {
			k.Needs = append(k.Needs, graph.Need{Kind: kinds[len(kinds)-1].ID()})
		}
		if i%2 == 0 && i > 0 {
			gate := graph.Kind{Phase: k.Phase, Part: "gate", Recipe: 1, Needs: []graph.Need{{Kind: k.Needs[0].Kind, Via: graph.FromAll}}}
			k.Needs = append(k.Needs, graph.Need{Kind: gate.ID(), Via: graph.ToCluster})
			kinds = append(kinds, gate)
		}
		kinds = append(kinds, k)
	}
	kg, err := graph.New(kinds)
	if err != nil {
		b.Fatal(err)
	}
	return kg
}

func BenchmarkExpand(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				g := lanes(b, n)
				if g.EdgeCount() > 4*g.Len() {
					b.Fatalf("%d edges for %d tasks", g.EdgeCount(), g.Len())
				}
			}
		})
	}
}
