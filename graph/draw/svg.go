package draw

import (
	"cmp"
	"fmt"
	"html"
	"maps"
	"slices"
	"strings"

	"hk/graph"
)

// Measures of the drawing, in pixels.
const (
	letter    = 7.2 // width of one at the size of text, in a wide font
	boxHeight = 24
	boxGap    = 6
	columnGap = 46 // room for the edges
	rowGap    = 14
	margin    = 16
	headroom  = 64 // title and legend
)

// svg draws lanes: a row for each host, the cluster's own first; a column for
// each level of the kind graph, so that a part stands in one column on every
// host. Above mostHosts, hosts of the same roles share a row, and a box stands
// for all their tasks of a kind.
func (p *page) svg() {
	l := p.layOut()
	p.f(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" `+
		`font-family="system-ui, sans-serif" font-size="12">`+"\n", l.width, l.height, l.width, l.height)
	p.f("<title>%s</title>\n", html.EscapeString(l.title()))
	p.f(`<rect width="100%%" height="100%%" fill="#ffffff"/>` + "\n")
	p.svgHead(l)
	for i := range l.rows {
		r := &l.rows[i]
		p.f(`<rect x="%d" y="%d" width="%d" height="%d" rx="6" fill="%s"/>`+"\n",
			margin/2, r.y-rowGap/2+1, l.width-margin, r.height+rowGap-2, []string{"#fafafb", "#f3f4f6"}[i%2])
		p.f(`<text x="%d" y="%d" font-weight="600">%s</text>`+"\n", margin, r.y+16, html.EscapeString(r.name))
		if r.more != "" {
			p.f(`<text x="%d" y="%d" fill="#6b6b76" font-size="11">%s</text>`+"\n", margin, r.y+31, html.EscapeString(r.more))
		}
	}
	p.svgEdges(l)
	for i := range l.boxes {
		p.svgBox(&l.boxes[i])
	}
	p.f("</svg>\n")
}

func (p *page) svgHead(l *layout) {
	p.f(`<text x="%d" y="24" font-size="16" font-weight="600">%s</text>`+"\n", margin, html.EscapeString(l.title()))
	x := margin
	for _, s := range states() {
		n := l.byState[s]
		if n == 0 {
			continue
		}
		text := fmt.Sprintf("%s %d", s, n)
		p.f(`<rect x="%d" y="36" width="12" height="12" rx="2" fill="%s" stroke="%s"/><text x="%d" y="46">%s</text>`+"\n",
			x, look(s).fill, look(s).line, x+17, text)
		x += 17 + wide(text) + 14
	}
	for i, phase := range l.phases {
		p.f(`<rect x="%d" y="37" width="4" height="12" fill="%s"/><text x="%d" y="46">%s</text>`+"\n",
			x, stripe(i), x+8, html.EscapeString(phase))
		x += 8 + wide(phase) + 14
	}
}

func (p *page) svgBox(b *box) {
	c := look(b.state)
	p.f(`<g><title>%s</title><rect x="%d" y="%d" width="%d" height="%d" rx="4" fill="%s" stroke="%s"/>`,
		html.EscapeString(b.hint), b.x, b.y, b.width, boxHeight, c.fill, c.line)
	p.f(`<rect x="%d" y="%d" width="4" height="%d" fill="%s"/>`, b.x, b.y+3, boxHeight-6, stripe(b.phase))
	p.f(`<text x="%d" y="%d">%s</text></g>`+"\n", b.x+11, b.y+16, html.EscapeString(b.label))
}

func (p *page) svgEdges(l *layout) {
	for _, e := range l.edges {
		from, to := &l.boxes[e.from], &l.boxes[e.to]
		x1, y1, x2, y2 := from.x+from.width, from.y+boxHeight/2, to.x, to.y+boxHeight/2
		bend := max(18, (x2-x1)/3)
		look := `stroke="#8a8a96" stroke-opacity=".8"`
		if from.row != to.row {
			look = `stroke="#8a8a96" stroke-opacity=".28"`
		}
		switch e.how {
		case gates:
			look += ` stroke-dasharray="6 3"`
		case orders:
			look += ` stroke-dasharray="2 3"`
		case requires:
		}
		p.f(`<path d="M%d %d C%d %d %d %d %d %d" fill="none" %s/>`+"\n", x1, y1, x1+bend, y1, x2-bend, y2, x2, y2, look)
	}
}

// layout is where everything goes.
type layout struct {
	width, height int
	name          string
	tasks         int
	phases        []string
	byState       map[string]int
	rows          []row
	boxes         []box
	edges         []line
}

func (l *layout) title() string {
	if l.name == "" {
		return fmt.Sprintf("%d tasks", l.tasks)
	}
	return fmt.Sprintf("%s: %d tasks", l.name, l.tasks)
}

type row struct {
	name, more string
	y, height  int
}

type box struct {
	row, column, phase int
	label, state, hint string
	x, y, width        int
	kind               int
	tasks              []graph.Task
}

type line struct {
	from, to int // boxes
	how      strength
}

func wide(s string) int { return int(float64(len([]rune(s)))*letter + .5) }

func (p *page) layOut() *layout {
	l := &layout{name: p.o.Title, tasks: p.o.Show.Len(), byState: map[string]int{}}
	p.phases(func(phase string, _ []int) { l.phases = append(l.phases, phase) })
	rowOf := p.svgRows(l)
	columns := p.columns()
	at := map[[2]int]int{} // row and kind -> box
	for t := range p.o.Show.All() {
		l.byState[p.o.State(t)]++
		key := [2]int{rowOf(t), p.g.KindIndex(t)}
		i, ok := at[key]
		if !ok {
			i = len(l.boxes)
			at[key] = i
			phase := p.g.Kind(t).Phase
			l.boxes = append(l.boxes, box{
				row: key[0], kind: key[1], column: columns[key[1]], phase: slices.Index(l.phases, phase),
			})
		}
		l.boxes[i].tasks = append(l.boxes[i].tasks, t)
	}
	for i := range l.boxes {
		p.label(&l.boxes[i])
	}
	p.svgLines(l, func(t graph.Task) int { return at[[2]int{rowOf(t), p.g.KindIndex(t)}] })
	l.place()
	return l
}

// svgRows makes the rows and returns the one of a task.
func (p *page) svgRows(l *layout) func(graph.Task) int {
	g := p.g
	shown := map[int]bool{}
	for t := range p.o.Show.All() {
		shown[g.Host(t)] = true
	}
	hosts := slices.Sorted(maps.Keys(shown))
	alone := len(hosts) <= mostHosts
	crowds := map[string][]int{}
	key := func(h int) string { return strings.Join(g.Hosts()[h].Roles, " ") }
	for _, h := range hosts {
		if h >= 0 {
			crowds[key(h)] = append(crowds[key(h)], h)
		}
	}
	byHost, byKey := map[int]int{}, map[string]int{}
	for _, h := range hosts {
		switch {
		case h < 0:
			byHost[h] = len(l.rows)
			l.rows = append(l.rows, row{name: "cluster"})
		case alone || len(crowds[key(h)]) <= 3:
			byHost[h] = len(l.rows)
			l.rows = append(l.rows, row{name: g.Hosts()[h].Name})
		default:
			i, ok := byKey[key(h)]
			if !ok {
				i = len(l.rows)
				byKey[key(h)] = i
				c := crowds[key(h)]
				l.rows = append(l.rows, row{
					name: fmt.Sprintf("%d hosts", len(c)),
					more: g.Hosts()[c[0]].Name + " … " + g.Hosts()[c[len(c)-1]].Name,
				})
			}
			byHost[h] = i
		}
	}
	return func(t graph.Task) int { return byHost[g.Host(t)] }
}

// columns gives each shown kind its level: one more than the highest of what it
// needs.
func (p *page) columns() []int {
	kg := p.g.Kinds()
	out := make([]int, kg.Len())
	for k := range kg.Len() {
		if len(p.tasks(k)) == 0 {
			out[k] = -1
			continue
		}
		for n := range kg.Kind(k).Needs {
			out[k] = max(out[k], out[kg.Needed(k, n)]+1)
		}
	}
	return out
}

// label writes what a box says. One that stands for many tasks shows the worst
// of their states and how many have it.
func (p *page) label(b *box) {
	kind := p.g.Kinds().Kind(b.kind)
	b.label = kind.Part
	count := map[string]int{}
	for _, t := range b.tasks {
		count[p.o.State(t)]++
	}
	var says []string
	for _, s := range slices.Backward(states()) {
		if count[s] > 0 {
			says = append(says, fmt.Sprintf("%d %s", count[s], s))
			if b.state == "" {
				b.state = s
			}
		}
	}
	if len(b.tasks) == 1 {
		t := b.tasks[0]
		b.hint = p.g.Name(t)
		if s := p.spell(t); s != "" {
			b.hint += ": " + s
		}
		if b.state == "" { // a word we have no order for
			b.state = p.o.State(t)
		}
		return
	}
	b.label += fmt.Sprintf(" ×%d", len(b.tasks))
	if len(says) > 1 {
		b.label += ": " + says[0]
	}
	b.hint = kind.ID() + ": " + cmp.Or(strings.Join(says, ", "), fmt.Sprintf("%d tasks", len(b.tasks)))
}

// svgLines joins boxes, each pair once.
func (p *page) svgLines(l *layout, boxOf func(graph.Task) int) {
	how := map[[2]int]strength{}
	for t := range p.o.Show.All() {
		p.edges(t, func(to graph.Task, n *graph.Need) {
			key := [2]int{boxOf(to), boxOf(t)}
			if old, ok := how[key]; !ok || strengthOf(n) < old {
				how[key] = strengthOf(n)
			}
		})
	}
	for key, s := range how {
		l.edges = append(l.edges, line{key[0], key[1], s})
	}
	slices.SortFunc(l.edges, func(a, b line) int {
		return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to))
	})
}

// place gives boxes and rows their coordinates.
func (l *layout) place() {
	label := 0
	for i := range l.rows {
		label = max(label, wide(l.rows[i].name), wide(l.rows[i].more))
	}
	columns := 0
	for i := range l.boxes {
		columns = max(columns, l.boxes[i].column+1)
	}
	width := make([]int, columns)
	stack := map[[2]int]int{} // row and column -> boxes
	for i := range l.boxes {
		b := &l.boxes[i]
		b.width = wide(b.label) + 22
		width[b.column] = max(width[b.column], b.width)
		key := [2]int{b.row, b.column}
		b.y = stack[key] // its place for now
		stack[key]++
	}
	left := make([]int, columns)
	x := margin + label + 24
	for c := range columns {
		left[c] = x
		x += width[c] + columnGap
	}
	l.width = max(x-columnGap+margin, 860)
	for key, n := range stack {
		r := &l.rows[key[0]]
		r.height = max(r.height, n*(boxHeight+boxGap)-boxGap)
	}
	y := headroom + rowGap
	for i := range l.rows {
		l.rows[i].y = y
		l.rows[i].height = max(l.rows[i].height, 34)
		y += l.rows[i].height + rowGap
	}
	l.height = y + margin/2
	for i := range l.boxes {
		b := &l.boxes[i]
		b.x, b.width = left[b.column], width[b.column]
		b.y = l.rows[b.row].y + b.y*(boxHeight+boxGap)
	}
}
