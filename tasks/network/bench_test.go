package network

import (
	"testing"

	"hk/cache/fp"
	"hk/graph"
	"hk/graph/run"
	"hk/tasks"
)

// BenchmarkInputs makes the inputs, declared states and fingerprints of all
// tasks of both phases on 3 + 497 hosts: the part of a no-op build that grows
// with the number of tasks. ns/task is what counts; DESIGN §10 leaves about
// 6 µs a task for everything.
func BenchmarkInputs(b *testing.B) {
	c := newCluster(b, "name: demo\nworkers: [{pool: worker, count: 497}]\n")
	out := make([]fp.Output, c.g.Len())
	for t := range graph.Task(c.g.Len()) {
		out[t], _ = c.output(t)
	}
	up := run.Upstream(func(t graph.Task) (fp.Output, bool) { return out[t], true })
	kinds := map[string]int64{}
	b.ResetTimer()
	for b.Loop() {
		w, err := tasks.NewWork(tasks.Binding{Graph: c.g, Kinds: c.kinds, View: c.view})
		if err != nil {
			b.Fatal(err)
		}
		for t := range graph.Task(c.g.Len()) {
			in, err := w.Input(t, up)
			if err != nil {
				b.Fatal(err)
			}
			in.Parts.Fingerprint()
			kinds[c.g.Kind(t).ID()]++
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.g.Len()), "ns/task")
}

// BenchmarkInputsByKind is the same for one kind at a time.
func BenchmarkInputsByKind(b *testing.B) {
	c := newCluster(b, "name: demo\nworkers: [{pool: worker, count: 497}]\n")
	up := run.Upstream(c.output)
	for k := range c.g.Kinds().Len() {
		first, end := c.g.TasksOf(k)
		b.Run(c.g.Kinds().Kind(k).ID(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w, err := tasks.NewWork(tasks.Binding{Graph: c.g, Kinds: c.kinds, View: c.view})
				if err != nil {
					b.Fatal(err)
				}
				for t := first; t < end; t++ {
					in, err := w.Input(t, up)
					if err != nil {
						b.Fatal(err)
					}
					in.Parts.Fingerprint()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*int(end-first)), "ns/task")
		})
	}
}
