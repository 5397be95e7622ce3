package run_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"hk/cache/fp"
	"hk/graph"
	"hk/graph/run"
)

// lanes is a cluster of about n tasks: eight in a row on each host, and a
// cluster task between the phases.
func lanes(b *testing.B, n int) *graph.Graph {
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
	hosts := make([]graph.Host, n/8)
	for i := range hosts {
		hosts[i].Name = fmt.Sprintf("worker-%d", i+1)
	}
	g, err := kg.Expand(hosts)
	if err != nil {
		b.Fatal(err)
	}
	return g
}

// plain does nothing with six parts a task, about as many as a real one has.
type plain struct {
	g       *graph.Graph
	version string
}

func (p *plain) Input(t graph.Task, up run.Upstream) (run.Input, error) {
	parts := &fp.Parts{}
	parts.Text("config:kubernetes.version", p.version)
	parts.Text("config:location", "fsn1")
	parts.Text("alloc:host", p.g.HostName(t))
	parts.Text("out:server", strconv.Itoa(p.g.Host(t)))
	parts.Opaque("file:/etc/hk/x.conf", []byte("a rendered file of some length, as there are many"))
	return run.Input{Parts: parts}, nil
}

func (p *plain) Look(context.Context, graph.Task, *fp.Record) (run.Look, error) {
	return run.Look{}, nil
}

func (p *plain) Do(_ context.Context, t graph.Task, _ run.Input, _ run.Attempt) (run.Result, error) {
	return run.Result{Output: fp.Output{"id": strconv.Itoa(int(t))}}, nil
}

// frozen hands out short records that were worked out before, as a store does.
type frozen struct {
	*memory
	names [][]byte
	kept  []fp.Kept
}

func (f *frozen) Load(_ context.Context, each func([]byte, fp.Kept)) error {
	for i := range f.names {
		each(f.names[i], f.kept[i])
	}
	return nil
}

func built(b *testing.B, n int) (run.Options, *frozen) {
	g := lanes(b, n)
	o := run.Options{
		Graph: g, Selection: graph.Selection{Named: g.FullSet(), Selected: g.FullSet()},
		Work: &plain{g, "v1.37.2"}, Recorder: newMemory(), Clock: &ticks{now: epoch}, Now: epoch, Jobs: 16,
	}
	if sum, err := run.Build(context.Background(), o); err != nil || sum.Ran != g.Len() {
		b.Fatal(sum, err)
	}
	f := &frozen{memory: o.Recorder.(*memory)}
	for t := range graph.Task(g.Len()) {
		f.names = append(f.names, []byte(g.Name(t)))
		f.kept = append(f.kept, fp.Keep(f.get(g.Name(t))))
	}
	o.Recorder = f
	return o, f
}

var sizes = []int{1_000, 10_000, 100_000}

// BenchmarkNoOp is a build that has nothing to do, without the store and the
// process around it.
func BenchmarkNoOp(b *testing.B) {
	for _, n := range sizes {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			o, _ := built(b, n)
			b.ReportAllocs()
			for b.Loop() {
				if sum, err := run.Build(context.Background(), o); err != nil || sum.Fresh != o.Graph.Len() {
					b.Fatal(sum, err)
				}
			}
		})
	}
}

// BenchmarkPlan is a plan after one host's record is gone.
func BenchmarkPlan(b *testing.B) {
	for _, n := range sizes {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			o, f := built(b, n)
			f.kept[17] = fp.Kept{}
			b.ReportAllocs()
			for b.Loop() {
				if p, err := run.MakePlan(context.Background(), o); err != nil || p.Count(run.Run) != 1 {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFirstBuild runs and records everything, with a store and tasks that
// take no time.
func BenchmarkFirstBuild(b *testing.B) {
	for _, n := range sizes {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			o, f := built(b, n)
			b.ReportAllocs()
			for b.Loop() {
				clear(f.records)
				o.Recorder = f.memory
				if sum, err := run.Build(context.Background(), o); err != nil || sum.Ran != o.Graph.Len() {
					b.Fatal(sum, err)
				}
			}
		})
	}
}
