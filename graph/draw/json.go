package draw

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"

	"hk/graph"
)

func taskID(t graph.Task) string { return "t" + strconv.Itoa(int(t)) }

// jsonTask is a task in `hk graph -o json`; what is not known is null.
type jsonTask struct {
	Task   string     `json:"task"`
	Phase  string     `json:"phase"`
	Part   string     `json:"part"`
	Host   string     `json:"host"` // "" for cluster tasks
	State  *string    `json:"state"`
	Reason *string    `json:"reason"`
	Needs  []jsonNeed `json:"needs"`
}

type jsonNeed struct {
	Task string `json:"task"`
	// Kind is requires, gates (a majority of them must be good) or orders (it
	// is only waited for).
	Kind string `json:"kind"`
}

var strengthNames = [...]string{requires: "requires", gates: "gates", orders: "orders"}

// json writes one document, a task a line, so that large graphs can be read and
// compared line by line.
func (p *page) json() error {
	p.f("{\"v\":1,\"cluster\":")
	if err := p.value(p.o.Title); err != nil {
		return err
	}
	p.f(",\"tasks\":[")
	sep := "\n"
	for t := range p.o.Show.All() {
		k := p.g.Kind(t)
		out := jsonTask{Task: p.g.Name(t), Phase: k.Phase, Part: k.Part, Host: p.g.HostName(t), Needs: []jsonNeed{}}
		if s := p.o.State(t); s != "" {
			out.State = &s
		}
		if r := p.o.Reason(t); r != "" {
			out.Reason = &r
		}
		p.edges(t, func(to graph.Task, n *graph.Need) {
			out.Needs = append(out.Needs, jsonNeed{p.g.Name(to), strengthNames[strengthOf(n)]})
		})
		p.f("%s", sep)
		if err := p.value(out); err != nil {
			return err
		}
		sep = ",\n"
	}
	p.f("\n]}\n")
	return nil
}

// value writes a value without the line break and the HTML escapes of
// encoding/json: names and reasons stay as people typed them.
func (p *page) value(v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("writing graph: %w", err)
	}
	p.f("%s", bytes.TrimSuffix(b.Bytes(), []byte("\n")))
	return nil
}
