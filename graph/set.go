package graph

import (
	"iter"
	"math/bits"
)

// Set is a set of tasks of one Graph, a bit each. The zero value is the empty
// set of a graph without tasks; others come from Graph.NewSet.
type Set struct {
	words []uint64
	n     int // size of the graph
}

// NewSet returns an empty set for the graph's tasks.
func (g *Graph) NewSet() Set { return Set{words: make([]uint64, (g.Len()+63)/64), n: g.Len()} }

// FullSet returns the set of all tasks of the graph.
func (g *Graph) FullSet() Set {
	s := g.NewSet()
	for i := range s.words {
		s.words[i] = ^uint64(0)
	}
	if r := s.n % 64; r != 0 {
		s.words[len(s.words)-1] = 1<<r - 1
	}
	return s
}

// Has reports whether the task is in the set.
func (s Set) Has(t Task) bool { return s.words[t>>6]&(1<<(t&63)) != 0 }

// Add puts a task in.
func (s Set) Add(t Task) { s.words[t>>6] |= 1 << (t & 63) }

// Remove takes a task out.
func (s Set) Remove(t Task) { s.words[t>>6] &^= 1 << (t & 63) }

// Union puts every task of the other set in.
func (s Set) Union(o Set) {
	for i, w := range o.words {
		s.words[i] |= w
	}
}

// Clone returns a copy.
func (s Set) Clone() Set {
	c := Set{words: make([]uint64, len(s.words)), n: s.n}
	copy(c.words, s.words)
	return c
}

// Len is the number of tasks in the set.
func (s Set) Len() int {
	n := 0
	for _, w := range s.words {
		n += bits.OnesCount64(w)
	}
	return n
}

// All iterates over the tasks in ascending, that is topological, order.
func (s Set) All() iter.Seq[Task] {
	return func(yield func(Task) bool) {
		for i, w := range s.words {
			for ; w != 0; w &= w - 1 {
				if !yield(Task(i<<6 + bits.TrailingZeros64(w))) {
					return
				}
			}
		}
	}
}
