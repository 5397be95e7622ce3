package run

import (
	"context"
	"fmt"
	"runtime/debug"
	"slices"

	"hk/cache/fp"
	"hk/graph"
)

// book is what is known of every task of the graph: what was kept at the
// start, and during a build what has been run since. One goroutine owns it.
type book struct {
	g    *graph.Graph
	work Work
	rec  Recorder
	kept []fp.Kept
	outs map[graph.Task]fp.Output // decoded on demand
	plan []kindParts              // by kind

	// Room that inputs uses again for each task.
	groups [][]graph.Task
	sums   []fp.OutputDigest
}

// kindParts is what the engine adds to the parts of a kind's tasks.
type kindParts struct {
	recipe int64
	labels []string // one for each kind needed with all, not only after
	// group is, for each Need of the kind, the index in labels, or -1 for a
	// need that orders only.
	group []int
	needs []int // for each Need the kind index behind it
}

func openBook(ctx context.Context, o *Options) (*book, error) {
	b := &book{
		g: o.Graph, work: o.Work, rec: o.Recorder,
		kept: make([]fp.Kept, o.Graph.Len()), outs: map[graph.Task]fp.Output{},
	}
	kg := o.Graph.Kinds()
	for i := range kg.Len() {
		k := kg.Kind(i)
		p := kindParts{recipe: int64(k.Recipe)}
		for n := range k.Needs {
			need := &k.Needs[n]
			at := -1
			if need.Quorum == graph.All && !need.After {
				label := "need:" + need.Kind
				if at = slices.Index(p.labels, label); at < 0 {
					at = len(p.labels)
					p.labels = append(p.labels, label)
				}
			}
			p.group = append(p.group, at)
			p.needs = append(p.needs, kg.Needed(i, n))
		}
		b.plan = append(b.plan, p)
	}
	if err := o.Recorder.Load(ctx, func(name []byte, k fp.Kept) {
		if t, ok := o.Graph.LookupBytes(name); ok {
			b.kept[t] = k
		}
	}); err != nil {
		return nil, fmt.Errorf("reading records: %w", err)
	}
	return b, nil
}

// output is the declared output of a task's last good run.
func (b *book) output(t graph.Task) (fp.Output, bool) {
	k := &b.kept[t]
	if !k.Ran() {
		return nil, false
	}
	if len(k.Output) == 0 {
		return nil, true
	}
	o, ok := b.outs[t]
	if !ok {
		var err error
		if o, err = fp.DecodeOutput(k.Output); err != nil {
			return nil, false // the store's checksum was right, so this is another hk's
		}
		b.outs[t] = o
	}
	return o, true
}

// learn takes in the record of a run.
func (b *book) learn(t graph.Task, r *fp.Record) {
	b.kept[t] = fp.Keep(r)
	delete(b.outs, t)
}

// inputs is everything that goes into a task.
type inputs struct {
	Input
	// parts are all of them; nil if they could not be made.
	parts *fp.Parts
	// missing is a needed task that never had an output, or -1. With it, parts
	// are a guess that holds for some labels only.
	missing graph.Task
}

// asked hears of each task whose output went into the inputs of another; own
// says that it went into the task's own parts.
type asked func(u graph.Task, own bool)

// inputs makes the parts of a task from its own and the engine's. hear may be
// nil. Unless guess is set, nothing is made while an output is missing.
func (b *book) inputs(t graph.Task, hear asked, guess bool) (in inputs, err error) {
	in.missing = -1
	p := &b.plan[b.g.KindIndex(t)]
	for len(b.groups) < len(p.labels) {
		b.groups = append(b.groups, nil)
	}
	for i := range p.labels {
		b.groups[i] = b.groups[i][:0]
	}
	for _, e := range b.g.NeedEdges(t) {
		if at := p.group[e.Need]; at >= 0 {
			if in.missing < 0 && !b.kept[e.Task].Ran() {
				if in.missing = e.Task; !guess {
					return in, nil
				}
			}
			b.groups[at] = append(b.groups[at], e.Task)
		}
	}
	if in.Input, err = b.ask(t, p, hear); err != nil {
		return in, err
	}
	parts := in.Parts
	if parts == nil {
		parts = &fp.Parts{}
	}
	parts.Int("schema", fp.Schema)
	parts.Int("recipe", p.recipe)
	for i, label := range p.labels {
		if len(b.groups[i]) > 0 {
			parts.Digest(label, b.combine(b.groups[i], hear))
		}
	}
	in.parts, in.Parts = parts, parts
	return in, nil
}

// combine is the digest of what tasks of one kind declared, in host order; a
// task that is needed twice counts once.
func (b *book) combine(tasks []graph.Task, hear asked) fp.OutputDigest {
	if len(tasks) > 1 && !slices.IsSorted(tasks) {
		slices.Sort(tasks)
	}
	tasks = slices.Compact(tasks)
	b.sums = b.sums[:0]
	for _, u := range tasks {
		b.sums = append(b.sums, b.kept[u].Digest)
		if hear != nil {
			hear(u, false)
		}
	}
	return fp.Combine(b.sums)
}

// ask calls Work.Input. An answer may rest on outputs of what the task needs
// and on no others: anything else could differ from run to run.
func (b *book) ask(t graph.Task, p *kindParts, hear asked) (in Input, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &panicError{what: "inputs of " + b.g.Name(t), value: r, stack: debug.Stack()}
		}
	}()
	return b.work.Input(t, func(u graph.Task) (fp.Output, bool) {
		if !slices.Contains(p.needs, b.g.KindIndex(u)) {
			panic(fmt.Sprintf("bug: %s asks for the output of %s, which it does not need", b.g.Name(t), b.g.Name(u)))
		}
		if hear != nil {
			hear(u, true)
		}
		return b.output(u)
	})
}

// whole reads complete records; nil for those that are not there.
func (b *book) whole(ctx context.Context, tasks []graph.Task) ([]*fp.Record, error) {
	names := make([]string, len(tasks))
	for i, t := range tasks {
		names[i] = b.g.Name(t)
	}
	recs, err := b.rec.Whole(ctx, names)
	if err != nil {
		return nil, fmt.Errorf("reading records: %w", err)
	}
	return recs, nil
}

// panicError is a panic of a task. It must not take the others' records with it.
type panicError struct {
	what  string
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("bug: panic in %s: %v", e.what, e.value) }

// Class is "bug".
func (e *panicError) Class() string { return "bug" }

// Stack is where it happened.
func (e *panicError) Stack() []byte { return e.stack }
