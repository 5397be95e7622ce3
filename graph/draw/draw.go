package draw

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"hk/graph"
)

// Format is a way to write a graph.
type Format string

// The formats of `hk graph --format`.
const (
	Text    Format = "text"
	Dot     Format = "dot"
	Mermaid Format = "mermaid"
	JSON    Format = "json"
	SVG     Format = "svg"
)

// Formats are all of them, in the order of help texts.
func Formats() []Format { return []Format{Text, Dot, Mermaid, JSON, SVG} }

// Options is what is drawn beside the graph itself.
type Options struct {
	Title string // usually the cluster
	// Show limits the drawing to some tasks; the zero Set means all.
	Show graph.Set
	// State is a task's word, such as run, maybe, fresh, ran or failed; "" if
	// it is not known. Nil: nothing is known.
	State func(graph.Task) string
	// Reason is why it has that state; "" or nil for none.
	Reason func(graph.Task) string
}

// Write draws the graph.
func Write(w io.Writer, f Format, g *graph.Graph, o Options) error {
	if o.Show.Len() == 0 {
		o.Show = g.FullSet()
	}
	if o.State == nil {
		o.State = func(graph.Task) string { return "" }
	}
	if o.Reason == nil {
		o.Reason = func(graph.Task) string { return "" }
	}
	b := &page{Writer: bufio.NewWriterSize(w, 64<<10), g: g, o: o}
	switch f {
	case Text:
		b.text()
	case Dot:
		b.dot()
	case Mermaid:
		b.mermaid()
	case JSON:
		if err := b.json(); err != nil {
			return err
		}
	case SVG:
		b.svg()
	default:
		return fmt.Errorf("unknown graph format %q: did you mean %s?", f, strings.Join(near(f), " or "))
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("writing graph: %w", err)
	}
	return nil
}

func near(f Format) []string {
	var all []string
	for _, x := range Formats() {
		all = append(all, string(x))
	}
	if n := graph.Nearest(string(f), all); len(n) > 0 {
		return n
	}
	return all
}

// page is a drawing under way. Errors of writing stay in the bufio.Writer and
// come out of its Flush.
type page struct {
	*bufio.Writer
	g *graph.Graph
	o Options
}

func (p *page) f(format string, args ...any) { _, _ = fmt.Fprintf(p, format, args...) }

// tasks returns the shown tasks of a kind.
func (p *page) tasks(kind int) []graph.Task {
	var out []graph.Task
	first, end := p.g.TasksOf(kind)
	for t := first; t < end; t++ {
		if p.o.Show.Has(t) {
			out = append(out, t)
		}
	}
	return out
}

// phases calls each with every phase that has shown tasks and its kinds.
func (p *page) phases(each func(phase string, kinds []int)) {
	kg := p.g.Kinds()
	for _, phase := range kg.Phases() {
		var kinds []int
		for k := range kg.Len() {
			if kg.Kind(k).Phase == phase && len(p.tasks(k)) > 0 {
				kinds = append(kinds, k)
			}
		}
		if len(kinds) > 0 {
			each(phase, kinds)
		}
	}
}

// edges calls each with the shown edges from a task to what it needs. A task
// that is needed in several ways appears once, with the strongest.
func (p *page) edges(t graph.Task, each func(to graph.Task, n *graph.Need)) {
	kind := p.g.Kind(t)
	var done []graph.Task
	for _, want := range []strength{requires, gates, orders} {
		for _, e := range p.g.NeedEdges(t) {
			n := &kind.Needs[e.Need]
			if strengthOf(n) != want || !p.o.Show.Has(e.Task) {
				continue
			}
			// Only few edges can repeat: those of kinds needed in several ways.
			if repeats(kind, n) && slices.Contains(done, e.Task) {
				continue
			}
			if repeats(kind, n) {
				done = append(done, e.Task)
			}
			each(e.Task, n)
		}
	}
}

func repeats(k *graph.Kind, n *graph.Need) bool {
	times := 0
	for i := range k.Needs {
		if k.Needs[i].Kind == n.Kind {
			times++
		}
	}
	return times > 1
}

// strength is what an edge does.
type strength int

const (
	requires strength = iota // a good record of each is required
	gates                    // a majority is
	orders                   // it is only waited for
)

func strengthOf(n *graph.Need) strength {
	switch {
	case n.After || n.Quorum == graph.Any:
		return orders
	case n.Quorum == graph.Majority:
		return gates
	}
	return requires
}

// spell is a state with its reason.
func (p *page) spell(t graph.Task) string {
	s, r := p.o.State(t), p.o.Reason(t)
	if s != "" && r != "" {
		return s + " (" + r + ")"
	}
	return s + r
}
