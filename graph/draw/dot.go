package draw

import (
	"fmt"
	"strings"

	"hk/graph"
)

// dot writes for Graphviz: a cluster for each phase, arrows from what is needed
// to what needs it. The library's own DOT writer has the order of its maps, does
// not escape and knows no clusters.
func (p *page) dot() {
	p.f("digraph %s {\n", quote(p.o.Title))
	p.f("  rankdir=LR;\n  node [shape=box, style=filled, fontname=\"sans-serif\", fillcolor=\"%s\"];\n", look("").fill)
	n := 0
	p.phases(func(phase string, kinds []int) {
		p.f("  subgraph cluster_%d {\n    label=%s;\n", n, quote(phase))
		n++
		for _, k := range kinds {
			for _, t := range p.tasks(k) {
				p.dotTask(t)
			}
		}
		p.f("  }\n")
	})
	for t := range p.o.Show.All() {
		p.edges(t, func(to graph.Task, n *graph.Need) {
			style := ""
			switch strengthOf(n) {
			case gates:
				style = " [style=dashed]"
			case orders:
				style = " [style=dotted]"
			case requires:
			}
			p.f("  %s -> %s%s;\n", quote(p.g.Name(to)), quote(p.g.Name(t)), style)
		})
	}
	p.f("}\n")
}

func (p *page) dotTask(t graph.Task) {
	label := p.g.Kind(t).Part
	if h := p.g.HostName(t); h != "" {
		label += "\n" + h
	}
	attrs := "label=" + quote(label)
	if s := p.o.State(t); s != "" {
		attrs += fmt.Sprintf(", fillcolor=%q, color=%q", look(s).fill, look(s).line)
	}
	if s := p.spell(t); s != "" {
		attrs += ", tooltip=" + quote(s)
	}
	p.f("    %s [%s];\n", quote(p.g.Name(t)), attrs)
}

// quote makes a quoted string of Graphviz: the quote is escaped, a line break
// is \n, and a backslash stands for itself.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`, "\r", "").Replace(s) + `"`
}
