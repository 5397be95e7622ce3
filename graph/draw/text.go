package draw

import (
	"fmt"
	"strings"

	"hk/graph"
)

// mostHosts is the number of hosts above which hosts with the same to say are
// taken together.
const mostHosts = 20

// text writes a tree: phases, their parts, their hosts.
func (p *page) text() {
	edges := 0
	for t := range p.o.Show.All() {
		p.edges(t, func(graph.Task, *graph.Need) { edges++ })
	}
	if p.o.Title != "" {
		p.f("%s: ", p.o.Title)
	}
	p.f("%d tasks, %d edges\n", p.o.Show.Len(), edges)
	p.phases(func(phase string, kinds []int) {
		p.f("%s\n", phase)
		for i, k := range kinds {
			branch, below := "├─ ", "│  "
			if i == len(kinds)-1 {
				branch, below = "└─ ", "   "
			}
			p.part(k, branch, below)
		}
	})
}

func (p *page) part(k int, branch, below string) {
	kind := p.g.Kinds().Kind(k)
	tasks := p.tasks(k)
	line := branch + kind.Part
	if kind.Scope == graph.OnCluster {
		if s := p.spell(tasks[0]); s != "" {
			line += "  " + s
		}
	}
	if need := p.needs(kind); need != "" {
		line += "  ← " + need
	}
	p.f("%s\n", line)
	if kind.Scope == graph.OnCluster {
		return
	}
	groups := p.alike(tasks)
	for i, g := range groups {
		twig := "├─ "
		if i == len(groups)-1 {
			twig = "└─ "
		}
		line := below + twig + g.hosts
		if g.says != "" {
			line += "  " + g.says
		}
		p.f("%s\n", line)
	}
}

// needs lists what a kind needs: plain if required, with "?" if a majority is
// enough, in brackets if it is only waited for.
func (p *page) needs(k *graph.Kind) string {
	var out []string
	for i := range k.Needs {
		n := &k.Needs[i]
		name := n.Kind
		if rest, ok := strings.CutPrefix(name, k.Phase+"."); ok {
			name = rest
		}
		switch n.Via {
		case graph.ToRole:
			name += " of each " + n.Role
		case graph.FromAll:
			name += " of all"
		case graph.Same, graph.ToCluster:
		}
		switch strengthOf(n) {
		case gates:
			name += "?"
		case orders:
			name = "(" + name + ")"
		case requires:
		}
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}

// alikes is one line: hosts that have the same to say.
type alikes struct{ hosts, says string }

func (p *page) alike(tasks []graph.Task) []alikes {
	var out []alikes
	if len(tasks) <= mostHosts {
		for _, t := range tasks {
			out = append(out, alikes{p.g.HostName(t), p.spell(t)})
		}
		return out
	}
	at := map[string]int{}
	var names [][]string
	for _, t := range tasks {
		says := p.spell(t)
		i, ok := at[says]
		if !ok {
			i = len(out)
			at[says] = i
			out = append(out, alikes{says: says})
			names = append(names, nil)
		}
		names[i] = append(names[i], p.g.HostName(t))
	}
	for i := range out {
		out[i].hosts = crowd(names[i])
	}
	return out
}

// crowd names many hosts in few words.
func crowd(names []string) string {
	if len(names) <= 3 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%d hosts, %s … %s", len(names), names[0], names[len(names)-1])
}
