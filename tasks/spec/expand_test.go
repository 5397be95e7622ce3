package spec

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestAllocate(t *testing.T) {
	cases := map[string]struct {
		existing map[string]int
		names    []string
		want     map[string]int
	}{
		"new":           {nil, []string{"master-1", "worker-1"}, map[string]int{"master-1": 1, "worker-1": 2}},
		"kept":          {map[string]int{"worker-1": 7}, []string{"master-1", "worker-1"}, map[string]int{"master-1": 1, "worker-1": 7}},
		"gaps":          {map[string]int{"a": 1, "c": 3}, []string{"a", "b", "c", "d"}, map[string]int{"a": 1, "b": 2, "c": 3, "d": 4}},
		"being removed": {map[string]int{"gone": 1}, []string{"b"}, map[string]int{"gone": 1, "b": 2}},
		"nobody":        {nil, nil, map[string]int{}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(c.want, Allocate(c.existing, c.names)); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestAllocateNeverMoves: whatever comes and goes, an index belongs to one host
// for life, and none is given twice.
func TestAllocateNeverMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alloc := map[string]int{}
		for range rapid.IntRange(1, 8).Draw(t, "builds") {
			names := rapid.SliceOfNDistinct(rapid.StringMatching(`[a-d]-[1-9]`), 0, 12, rapid.ID[string]).Draw(t, "names")
			next := Allocate(alloc, names)
			seen := map[int]string{}
			for n, i := range next {
				if old, ok := alloc[n]; ok && old != i {
					t.Fatalf("%s moved from %d to %d", n, old, i)
				}
				if seen[i] != "" || i < 1 {
					t.Fatalf("%s and %s have index %d", n, seen[i], i)
				}
				seen[i] = n
			}
			alloc = next
			for n := range alloc { // some hosts go for good
				if rapid.Bool().Draw(t, "gone") {
					delete(alloc, n)
				}
			}
		}
	})
}

func TestExpand(t *testing.T) {
	c, _ := parse(t, valid["pools"])
	hosts := Expand(c, Allocate(map[string]int{"gpu-1": 300}, Names(c)))
	var lines []string
	for _, h := range hosts {
		lines = append(lines, fmt.Sprintf("%s %s %s %v %s %s %d %s %s private=%t labels=%d taints=%d",
			h.Name, h.Node, h.Role, h.Roles, h.Type, h.Location, h.Index, h.MeshIP, h.PodCIDR, h.Private, len(h.Labels), len(h.Taints)))
	}
	want := `master-1 a-master-1 master [master etcd] cx23 fsn1 1 10.100.0.1 10.128.1.0/24 private=true labels=0 taints=0
master-2 a-master-2 master [master etcd] cx23 fsn1 2 10.100.0.2 10.128.2.0/24 private=true labels=0 taints=0
master-3 a-master-3 master [master etcd] cx23 fsn1 3 10.100.0.3 10.128.3.0/24 private=true labels=0 taints=0
small-1 a-small-1 worker [worker] cx23 nbg1 4 10.100.0.4 10.128.4.0/24 private=false labels=0 taints=0
gpu-1 a-gpu-1 worker [worker] ccx13 fsn1 300 10.100.1.44 10.129.44.0/24 private=true labels=2 taints=2
gpu-2 a-gpu-2 worker [worker] ccx13 fsn1 5 10.100.0.5 10.128.5.0/24 private=true labels=2 taints=2`
	if d := cmp.Diff(want, strings.Join(lines, "\n")); d != "" {
		t.Error(d)
	}
}

// A host that is not wanted any more is what it was while it was.
func TestGone(t *testing.T) {
	for _, text := range []string{valid["pools"], "name: a\nmasters: {count: 3}\netcd: {count: 3}\n"} {
		c, _ := parse(t, text)
		for _, want := range Expand(c, Allocate(map[string]int{"gpu-1": 300}, Names(c))) {
			got := Gone(c, want.Name, want.Index)
			want.Type, want.Location, want.Private, want.Labels, want.Taints = "", "", false, nil, nil
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
		}
	}
}

func TestExpandEtcdPool(t *testing.T) {
	c, _ := parse(t, valid["etcd pool"])
	hosts := Expand(c, Allocate(nil, Names(c)))
	var names []string
	for _, h := range hosts {
		names = append(names, h.Name)
		if h.Role == Etcd && (h.PodCIDR != "" || h.Private || h.Type != "cax11") {
			t.Errorf("etcd host %+v", h)
		}
		if h.Role == Master && h.Has(Etcd) {
			t.Errorf("%s carries etcd beside a pool of its own", h.Name)
		}
	}
	if want := "master-1 master-2 etcd-1 etcd-2 etcd-3 worker-1 worker-2"; strings.Join(names, " ") != want {
		t.Errorf("order %v", names)
	}
}

func TestPrivateByDefaultUpTo90Hosts(t *testing.T) {
	for workers, want := range map[int]bool{87: true, 88: false} {
		c, _ := parse(t, fmt.Sprintf("name: a\nworkers: [{pool: w, count: %d}]\n", workers))
		hosts := Expand(c, Allocate(nil, Names(c)))
		if got := hosts[len(hosts)-1].Private; got != want {
			t.Errorf("%d workers: private %t, want %t", workers, got, want)
		}
		if !hosts[0].Private {
			t.Errorf("%d workers: a master behind a load balancer is not attached", workers)
		}
	}
}
