package run

import (
	"fmt"

	"hk/graph"
)

// guard is a guarded sequence (ENGINE, "running"): on an established cluster a
// host holds the slot from its first task that runs to the end of its last one,
// which proves its health. So two members are never disturbed at a time.
//
// After one failure in a sequence the slot stays closed for this build: the
// host that failed may be the one member the cluster can do without, and the
// next would be one too many.
type guard struct {
	name     string
	held     bool
	holder   int // host index; -1 for tasks on the cluster
	closedBy graph.Task
	left     map[int]int // selected tasks not yet finished, by host
	parked   queue
}

// newGuards counts the tasks that are not finished yet.
func newGuards(o *Options, urgency []int64, left func(graph.Task) bool) map[string]*guard {
	if !o.Guarded {
		return nil
	}
	all := map[string]*guard{}
	for t := range graph.Task(o.Graph.Len()) {
		name := o.Graph.Kind(t).Guard
		if name == "" || !left(t) {
			continue
		}
		gd := all[name]
		if gd == nil {
			gd = &guard{name: name, closedBy: -1, left: map[int]int{}, parked: queue{urgency: urgency}}
			all[name] = gd
		}
		gd.left[o.Graph.Host(t)]++
	}
	return all
}

func (p *places) guard(t graph.Task) *guard {
	if p.guards == nil {
		return nil
	}
	return p.guards[p.g.Kind(t).Guard]
}

// finished is told of each guarded task that has its final outcome.
func (p *places) finished(t graph.Task, good bool) {
	gd := p.guard(t)
	if gd == nil {
		return
	}
	host := p.g.Host(t)
	gd.left[host]--
	if !gd.held || gd.holder != host {
		return
	}
	if !good && gd.closedBy < 0 {
		gd.closedBy = t
	}
	if gd.left[host] == 0 {
		gd.held = false
	}
	if gd.closedBy >= 0 || !gd.held {
		for len(gd.parked.heap) > 0 {
			p.unpark(&gd.parked)
		}
	}
}

func (gd *guard) reason(g *graph.Graph) string {
	return fmt.Sprintf("%s stopped after %s did not succeed", gd.name, g.Name(gd.closedBy))
}
