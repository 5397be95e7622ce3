package run

import (
	"strings"

	"hk/graph"
)

// pool is a number of places that tasks of one name share.
type pool struct {
	free   int
	parked queue // tasks that wait for a place here
}

// places hands out what a task must have before it may start: places in its
// pools and the slot of its guard. A task that cannot have all of it is parked
// at the first thing it lacks and takes nothing, so nobody holds one place
// while waiting for another.
type places struct {
	g       *graph.Graph
	o       *Options
	urgency []int64
	ready   queue
	pools   map[string]*pool
	guards  map[string]*guard
	parked  map[graph.Task]*queue // where a task was parked last
}

func newPlaces(o *Options, urgency []int64, left func(graph.Task) bool) *places {
	p := &places{
		g: o.Graph, o: o, urgency: urgency, ready: queue{urgency: urgency},
		pools: map[string]*pool{}, parked: map[graph.Task]*queue{},
	}
	p.guards = newGuards(o, urgency, left)
	return p
}

// names returns the pools of a task that have a width.
func (p *places) names(t graph.Task) []*pool {
	var out []*pool
	add := func(name string) {
		if name == "" {
			return
		}
		if q := p.pool(name); q != nil {
			out = append(out, q)
		}
	}
	add(p.g.Kind(t).Pool)
	if p.o.PoolsOf != nil {
		for _, name := range p.o.PoolsOf(t) {
			add(name)
		}
	}
	return out
}

// pool returns the pool of a name, nil if it has no limit. A width is found
// under the whole name or, for all pools of a sort, under what is before the
// colon, colon included: "ssh:" is the width of each "ssh:HOST".
func (p *places) pool(name string) *pool {
	if q, ok := p.pools[name]; ok {
		return q
	}
	width, ok := p.o.Pools[name]
	if sort, _, found := strings.Cut(name, ":"); !ok && found {
		width, ok = p.o.Pools[sort+":"]
	}
	var q *pool
	if ok {
		q = &pool{free: max(1, width), parked: queue{urgency: p.urgency}}
	}
	p.pools[name] = q
	return q
}

// next returns the most urgent task that can start, with its places taken; or
// one whose guard is closed, which must not start. ok is false if there is none.
func (p *places) next() (t graph.Task, closed *guard, ok bool) {
	for {
		t, ok = p.ready.pop()
		if !ok {
			return 0, nil, false
		}
		was := p.parked[t]
		delete(p.parked, t)
		at, closed := p.take(t)
		if at == nil {
			if closed != nil && was != nil {
				p.unpark(was) // it takes no place, so another may have it
			}
			return t, closed, true
		}
		at.push(t)
		p.parked[t] = at
		// It was let out of another place, which is free still.
		if was != nil && was != at {
			p.unpark(was)
		}
	}
}

// take takes everything the task needs, or returns where it must wait.
func (p *places) take(t graph.Task) (wait *queue, closed *guard) {
	gd := p.guard(t)
	if gd != nil {
		if gd.closedBy >= 0 {
			return nil, gd
		}
		if gd.held && gd.holder != p.g.Host(t) {
			return &gd.parked, nil
		}
	}
	pools := p.names(t)
	for _, q := range pools {
		if q.free == 0 {
			return &q.parked, nil
		}
	}
	for _, q := range pools {
		q.free--
	}
	if gd != nil {
		gd.held, gd.holder = true, p.g.Host(t)
	}
	return nil, nil
}

// give gives the places in pools back.
func (p *places) give(t graph.Task) {
	for _, q := range p.names(t) {
		q.free++
		p.unpark(&q.parked)
	}
}

// unpark lets the most urgent parked task try again.
func (p *places) unpark(q *queue) {
	if t, ok := q.pop(); ok {
		p.ready.push(t)
	}
}
