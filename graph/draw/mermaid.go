package draw

import (
	"maps"
	"slices"
	"strings"

	"hk/graph"
)

// mermaid writes a flowchart for Mermaid, as GitHub and many wikis draw it.
func (p *page) mermaid() {
	if p.o.Title != "" {
		p.f("---\ntitle: %q\n---\n", p.o.Title)
	}
	p.f("flowchart LR\n")
	p.phases(func(phase string, kinds []int) {
		p.f("  subgraph %s[\"%s\"]\n", "p_"+strings.ReplaceAll(phase, "-", "_"), mermaidText(phase))
		for _, k := range kinds {
			for _, t := range p.tasks(k) {
				label := mermaidText(p.g.Kind(t).Part)
				if h := p.g.HostName(t); h != "" {
					label += "<br/>" + mermaidText(h)
				}
				p.f("    t%d[\"%s\"]\n", t, label)
			}
		}
		p.f("  end\n")
	})
	for t := range p.o.Show.All() {
		p.edges(t, func(to graph.Task, n *graph.Need) {
			arrow := map[strength]string{requires: "-->", gates: "-.->", orders: "-.-"}[strengthOf(n)]
			p.f("  t%d %s t%d\n", to, arrow, t)
		})
	}
	byState := map[string][]string{}
	for t := range p.o.Show.All() {
		if s := p.o.State(t); s != "" {
			byState[s] = append(byState[s], taskID(t))
		}
	}
	for _, s := range slices.Sorted(maps.Keys(byState)) {
		p.f("  classDef %s fill:%s,stroke:%s\n", s, look(s).fill, look(s).line)
		p.f("  class %s %s\n", strings.Join(byState[s], ","), s)
	}
}

// mermaidText writes what means something to Mermaid as numbers.
func mermaidText(s string) string {
	return strings.NewReplacer(`"`, "#quot;", "#", "#35;", "<", "#lt;", ">", "#gt;", "\n", " ").Replace(s)
}
