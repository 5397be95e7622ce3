package run

import (
	"math/rand/v2"
	"time"

	"hk/graph"
)

// queue is a heap of tasks, the most urgent first. The order is total, so that
// the same build starts its tasks in the same order.
type queue struct {
	urgency []int64 // by task; shared
	heap    []graph.Task
}

func (q *queue) before(a, b graph.Task) bool {
	if q.urgency[a] != q.urgency[b] {
		return q.urgency[a] > q.urgency[b]
	}
	return a < b
}

func (q *queue) push(t graph.Task) {
	q.heap = append(q.heap, t)
	for i := len(q.heap) - 1; i > 0; {
		up := (i - 1) / 2
		if !q.before(q.heap[i], q.heap[up]) {
			break
		}
		q.heap[i], q.heap[up] = q.heap[up], q.heap[i]
		i = up
	}
}

func (q *queue) pop() (graph.Task, bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	top := q.heap[0]
	last := len(q.heap) - 1
	q.heap[0] = q.heap[last]
	q.heap = q.heap[:last]
	for i := 0; ; {
		best := i
		for c := 2*i + 1; c <= 2*i+2 && c < last; c++ {
			if q.before(q.heap[c], q.heap[best]) {
				best = c
			}
		}
		if best == i {
			return top, true
		}
		q.heap[i], q.heap[best] = q.heap[best], q.heap[i]
		i = best
	}
}

// defaultTook is how long a task is taken to run if no task of its kind ever did.
const defaultTook = time.Second

// urgencies gives each task the length of the longest chain of tasks that starts
// with it, by recorded durations: who has most behind it goes first. A task that
// never ran counts as much as its kind does on other hosts.
func urgencies(b *book) []int64 {
	g := b.g
	sum := make([]int64, g.Kinds().Len())
	n := make([]int64, g.Kinds().Len())
	for t := range b.kept {
		if d := b.kept[t].Took; d > 0 {
			k := g.KindIndex(graph.Task(t))
			sum[k] += int64(d)
			n[k]++
		}
	}
	out := make([]int64, g.Len())
	for t := graph.Task(g.Len() - 1); t >= 0; t-- {
		took := int64(b.kept[t].Took)
		if k := g.KindIndex(t); took <= 0 && n[k] > 0 {
			took = sum[k] / n[k]
		} else if took <= 0 {
			took = int64(defaultTook)
		}
		for _, e := range g.DependentEdges(t) {
			out[t] = max(out[t], out[e.Task])
		}
		out[t] += took
	}
	return out
}

// shuffled gives each task a random place that depends on the seed only.
func shuffled(n int, seed uint64) []int64 {
	r := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // an order for tests, the same for the same seed
	out := make([]int64, n)
	for i := range out {
		out[i] = r.Int64()
	}
	return out
}
