package run

import (
	"context"
	"slices"
	"time"

	"hk/cache/fp"
	"hk/graph"
)

// Verdict is what Decide says of a task.
type Verdict uint8

const (
	// NotSelected: the plan does not cover the task.
	NotSelected Verdict = iota
	// Run: it is stale and will run.
	Run
	// Maybe: its own inputs are unchanged, but something it needs runs or may
	// run, and its output may change.
	Maybe
	// IsFresh: nothing to do.
	IsFresh
	// IsSpared: the user keeps it.
	IsSpared
	// IsUnverified: nobody can look at it; its record counts.
	IsUnverified
	// IsBlocked: it cannot run, because of what it needs or its inputs, or it
	// is kept and cannot be used.
	IsBlocked

	verdicts
)

var verdictNames = [verdicts]string{"", "run", "maybe", "fresh", "spared", "unverified", "blocked"}

// String is the verdict's word in plans.
func (v Verdict) String() string { return verdictNames[v] }

// Plan is what a build would do, task by task. Without failures and without
// changes from outside: what it says will run does run, and what runs is said
// to run or maybe.
type Plan struct {
	Graph    *graph.Graph
	Verdicts []Verdict // by task; NotSelected where not covered

	reasons []string
	because []graph.Task // the task a verdict comes from, or -1
	counts  [verdicts]int
	book    *book
	looks   map[graph.Task]Look
}

// Reason is why the task has its verdict.
func (p *Plan) Reason(t graph.Task) string { return p.reasons[t] }

// Count is the number of tasks with a verdict.
func (p *Plan) Count(v Verdict) int { return p.counts[v] }

// Expected is how long the task took last time; 0 if it never ran.
func (p *Plan) Expected(t graph.Task) time.Duration { return p.book.kept[t].Took }

// Because follows a verdict that comes from another task to where it began. The
// last one is the root; t itself is not in it.
func (p *Plan) Because(t graph.Task) []graph.Task {
	var chain []graph.Task
	for u := p.because[t]; u >= 0; u = p.because[u] {
		chain = append(chain, u)
	}
	return chain
}

// Changes returns what differs between the inputs of the task's last good run
// and now, as far as the plan can know it.
func (p *Plan) Changes(ctx context.Context, t graph.Task) ([]PartChange, error) {
	recs, err := p.book.whole(ctx, []graph.Task{t})
	if err != nil || recs[0] == nil {
		return nil, err
	}
	in, err := p.book.inputs(t, nil, false)
	if err != nil || in.parts == nil {
		return nil, err
	}
	return Diff(recs[0].Parts, in.parts.List()), nil
}

// Parts returns the labelled parts of the task now, nil if they cannot be made
// yet.
func (p *Plan) Parts(t graph.Task) ([]fp.Part, error) {
	in, err := p.book.inputs(t, nil, false)
	if err != nil || in.parts == nil {
		return nil, err
	}
	return in.parts.List(), nil
}

func makePlan(ctx context.Context, o Options) (*Plan, error) {
	b, err := openBook(ctx, &o)
	if err != nil {
		return nil, err
	}
	if o.Only {
		if err := checkOnly(ctx, &o, b); err != nil {
			return nil, err
		}
	}
	p := newPlan(b)
	if o.Verify != VerifyOff {
		var tasks []graph.Task
		for t := range o.Selection.Selected.All() {
			if b.kept[t].Good() {
				tasks = append(tasks, t)
			}
		}
		if err := b.lookAll(ctx, tasks, p.saw); err != nil {
			return nil, err
		}
	}
	if err := p.fill(ctx, &o, o.Selection.Selected); err != nil {
		return nil, err
	}
	return p, nil
}

func newPlan(b *book) *Plan {
	n := b.g.Len()
	return &Plan{
		Graph: b.g, Verdicts: make([]Verdict, n), reasons: make([]string, n),
		because: make([]graph.Task, n), book: b, looks: map[graph.Task]Look{},
	}
}

// saw keeps a look that says anything.
func (p *Plan) saw(t graph.Task, rec *fp.Record, l Look) {
	if rec == nil {
		p.book.kept[t] = fp.Kept{Damaged: true}
		return
	}
	// A look that found nothing is kept if it contradicts the record.
	if l != (Look{}) || p.book.kept[t].Drifted {
		p.looks[t] = l
	}
}

// fill decides every task in topological order. It writes nothing and asks the
// world nothing.
func (p *Plan) fill(ctx context.Context, o *Options, selected graph.Set) error {
	for t := range selected.All() {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		v, reason, because, err := p.decide(ctx, o, t)
		if err != nil {
			return err
		}
		p.Verdicts[t], p.reasons[t], p.because[t] = v, reason, because
		p.counts[v]++
	}
	return nil
}

func (p *Plan) decide(ctx context.Context, o *Options, t graph.Task) (Verdict, string, graph.Task, error) {
	b := p.book
	d := DecideInput{
		Record: b.kept[t], Now: o.Now,
		Forced: o.Force && o.Selection.Named.Has(t),
		Spared: spared(o, b.g.Kind(t)),
	}
	if d.Spared == "" {
		if u := p.blockedBy(t); u >= 0 {
			return IsBlocked, "needs " + b.g.Name(u), u, nil
		}
	}
	because, err := p.inputs(t, &d)
	if err != nil && d.Spared == "" {
		return IsBlocked, err.Error(), -1, nil
	}
	if err := p.seen(ctx, t, &d); err != nil {
		return 0, "", -1, err
	}
	v, reason := Decide(d)
	if v != Maybe {
		because = -1
	}
	if v == IsBlocked && d.Spared != "" && len(neededBy(b.g, o, t)) == 0 {
		v = IsSpared
	}
	return v, reason, because, nil
}

// inputs fills in the parts as far as they are known, and which upstreams may
// still change them. It returns the first of those, or -1.
func (p *Plan) inputs(t graph.Task, d *DecideInput) (because graph.Task, err error) {
	because = -1
	b := p.book
	if !d.Record.Good() { // it runs, whatever the parts are
		return -1, nil
	}
	unknown := func(u graph.Task) {
		if because < 0 {
			because = u
		}
		if id := b.g.Kind(u).ID(); !slices.Contains(d.Unknown, id) {
			d.Unknown = append(d.Unknown, id)
		}
	}
	in, err := b.inputs(t, func(u graph.Task, own bool) {
		if v := p.Verdicts[u]; v == Run || v == Maybe || !b.kept[u].Ran() {
			unknown(u)
			d.Derived = d.Derived || own
		}
	}, true)
	if in.missing >= 0 {
		unknown(in.missing)
		if err != nil {
			return because, nil //nolint:nilerr // nothing is known of the parts, which is no error of a plan
		}
	}
	d.Parts = in.parts
	return because, err
}

// seen fills in what was observed and how to get at the old parts. The record
// is read at most once.
func (p *Plan) seen(ctx context.Context, t graph.Task, d *DecideInput) error {
	var rec *fp.Record
	var err error
	read := func() *fp.Record {
		if rec == nil && err == nil {
			var recs []*fp.Record
			if recs, err = p.book.whole(ctx, []graph.Task{t}); err == nil {
				rec = recs[0]
			}
		}
		if rec == nil {
			return &fp.Record{}
		}
		return rec
	}
	d.Old = func() []fp.Part { return read().Parts }
	if l, ok := p.looks[t]; ok {
		d.Drift, d.Unreachable = l.Drift, l.Unreachable
	} else if d.Record.Drifted {
		d.Drift = read().Drift
	}
	return err
}

// blockedBy returns a task that is blocked and whose good record this one
// requires, or -1.
func (p *Plan) blockedBy(t graph.Task) graph.Task {
	g := p.book.g
	bad := graph.Task(-1)
	gate(g, t, func(u graph.Task) bool {
		return p.Verdicts[u] != IsBlocked
	}, func(_ *graph.Need, u graph.Task, _, _ int) { bad = u })
	return bad
}

// gate reports for each need of t that is not met: the first task of it that is
// not good, how many are and of how many. It stops at the first.
func gate(g *graph.Graph, t graph.Task, good func(graph.Task) bool, unmet func(n *graph.Need, first graph.Task, ok, of int)) {
	edges := g.NeedEdges(t)
	kind := g.Kind(t)
	for i := 0; i < len(edges); {
		need := &kind.Needs[edges[i].Need]
		ok, of, first := 0, 0, graph.Task(-1)
		for at := edges[i].Need; i < len(edges) && edges[i].Need == at; i++ {
			of++
			if good(edges[i].Task) {
				ok++
			} else if first < 0 {
				first = edges[i].Task
			}
		}
		if first >= 0 && !need.After && (need.Quorum == graph.All || need.Quorum == graph.Majority && 2*ok <= of) {
			unmet(need, first, ok, of)
			return
		}
	}
}

// spared returns the flag that keeps a kind's tasks, or "".
func spared(o *Options, k *graph.Kind) string {
	if k.Asset == "" {
		return ""
	}
	for _, keep := range o.Keep {
		if keep.Asset == k.Asset && (keep.Phase == "" || keep.Phase == k.Phase) {
			return keep.Flag
		}
	}
	return ""
}

// neededBy returns the selected tasks that require the record of t and are not
// kept themselves.
func neededBy(g *graph.Graph, o *Options, t graph.Task) []graph.Task {
	var out []graph.Task
	for u, need := range g.Dependents(t) {
		if o.Selection.Selected.Has(u) && !need.After && need.Quorum == graph.All &&
			spared(o, g.Kind(u)) == "" && !slices.Contains(out, u) {
			out = append(out, u)
		}
	}
	return out
}
