package tasks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"hk/cache/fp"
	"hk/graph"
	"hk/graph/run"
	"hk/remote"
	"hk/tasks/spec"
)

// Binding is everything a build knows that turns kinds into work.
type Binding struct {
	Graph *graph.Graph
	Kinds []Kind // the graph's kinds; order does not matter
	// View is what Inputs see; Host, Out and OutOf are filled in per task.
	View View
	// Env is what Run and Verify reach; the per-task fields are filled in.
	Env Env
	// Established and EtcdBorn are asked anew for each task: a build may set
	// the marks itself.
	Established func() bool
	EtcdBorn    func() bool
	Inventory   *remote.Inventory
	// Facts and Unreachable are what discovery saw, by host.
	Facts       map[string]*remote.Facts
	Unreachable map[string]string
	// Records are those of the graph's tasks before the build, by task.
	Records func(graph.Task) *fp.Record
	Full    bool // --verify=full: hash every file anew
}

// Work binds kinds to a world; it implements run.Work.
type Work struct {
	b      Binding
	kinds  []*Kind             // by kind index of the graph
	hosts  map[string]*watched // by host name
	specs  map[string]*spec.Host
	mu     sync.Mutex
	inputs map[graph.Task]any
	owners map[string]graph.Task // "host path" -> the one task that owns it
	late   map[string]map[string][]byte
}

// NewWork checks that every kind of the graph is known.
func NewWork(b Binding) (*Work, error) {
	w := &Work{
		b: b, hosts: map[string]*watched{}, specs: map[string]*spec.Host{},
		inputs: map[graph.Task]any{}, owners: map[string]graph.Task{},
		late: map[string]map[string][]byte{},
	}
	byID := map[string]*Kind{}
	for i := range b.Kinds {
		byID[b.Kinds[i].ID()] = &b.Kinds[i]
	}
	for t := range graph.Task(b.Graph.Len()) {
		k := b.Graph.KindIndex(t)
		for len(w.kinds) <= k {
			w.kinds = append(w.kinds, nil)
		}
		if w.kinds[k] == nil {
			id := b.Graph.Kind(t).ID()
			if byID[id] == nil {
				return nil, fmt.Errorf("bug: kind %s is in the graph and not in the registry", id)
			}
			w.kinds[k] = byID[id]
		}
	}
	for i := range b.View.Hosts {
		h := &b.View.Hosts[i]
		w.specs[h.Name] = h
		w.hosts[h.Name] = &watched{facts: b.Facts[h.Name], down: b.Unreachable[h.Name]}
	}
	for i := range b.View.Leaving {
		h := &b.View.Leaving[i].Host
		w.specs[h.Name] = h
	}
	return w, nil
}

// Input implements run.Work.
func (w *Work) Input(t graph.Task, up run.Upstream) (run.Input, error) {
	k := w.kinds[w.b.Graph.KindIndex(t)]
	host := w.b.Graph.HostName(t)
	v := w.b.View
	v.Host = w.specs[host]
	v.Out = func(kind string) fp.Output {
		if o, ok := w.output(kind, host, up); ok {
			return o
		}
		o, _ := w.output(kind, "", up)
		return o
	}
	v.OutOf = func(kind, host string) (fp.Output, bool) { return w.output(kind, host, up) }
	in, err := k.inputs(&v)
	if err != nil {
		return run.Input{}, fmt.Errorf("inputs of %s: %w", w.b.Graph.Name(t), err)
	}
	p := &fp.Parts{}
	encodeInput(in, p)
	st := k.DeclaredState(in)
	for i := range st.Files {
		addFile(p, &st.Files[i])
	}
	if err := w.own(t, host, &st); err != nil {
		return run.Input{}, err
	}
	w.mu.Lock()
	w.inputs[t] = in
	w.mu.Unlock()
	return run.Input{Parts: p, Value: in}, nil
}

func (w *Work) output(kind, host string, up run.Upstream) (fp.Output, bool) {
	name := kind
	if host != "" {
		name += "/" + host
	}
	t, ok := w.b.Graph.Lookup(name)
	if !ok {
		return nil, false
	}
	return up(t)
}

// addFile puts a declared file into the fingerprint: what is rendered by its
// bytes, what is downloaded by its hash, what is written later by its place.
func addFile(p *fp.Parts, f *remote.File) {
	h := sha256.New()
	fmt.Fprintf(h, "%o %q keep=%t absent=%t later=%t link=%q\n", f.Mode, f.Owner, f.Keep, f.Absent, f.Later, f.Link)
	if f.Artifact != nil {
		p.Text("artifact:"+f.Path, f.Artifact.Name+" sha256:"+f.Artifact.FileSHA256)
	} else {
		h.Write(f.Content)
	}
	p.Opaque("file:"+f.Path, h.Sum(nil))
}

// own checks that each path and unit has one owner: two tasks that declare the
// same one would repair each other for ever.
func (w *Work) own(t graph.Task, host string, st *remote.HostState) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	claim := func(what string) error {
		key := host + " " + what
		if o, ok := w.owners[key]; ok && o != t {
			return fmt.Errorf("bug: %s is owned by both %s and %s", what, w.b.Graph.Name(o), w.b.Graph.Name(t))
		}
		w.owners[key] = t
		return nil
	}
	for i := range st.Files {
		if err := claim("file:" + st.Files[i].Path); err != nil {
			return err
		}
	}
	for i := range st.Units {
		if err := claim("unit:" + st.Units[i].Name); err != nil {
			return err
		}
	}
	return nil
}

// Look implements run.Work.
func (w *Work) Look(ctx context.Context, t graph.Task, rec *fp.Record) (run.Look, error) {
	host := w.onHost(t)
	world := World{Inventory: w.b.Inventory, UID: w.b.View.UID}
	if host != "" {
		h := w.hosts[host]
		f, down := h.get(ctx, func(ctx context.Context) (*remote.Facts, error) { return w.readFacts(ctx, host) })
		if down != "" {
			return run.Look{Unreachable: down}, nil
		}
		world.Facts = f
		if d := driftOf(rec.Observed, f); d != "" {
			return run.Look{Drift: d}, nil
		}
	}
	k := w.kinds[w.b.Graph.KindIndex(t)]
	if k.watch == nil {
		return run.Look{}, nil
	}
	w.mu.Lock()
	in, ok := w.inputs[t]
	w.mu.Unlock()
	if !ok {
		// A plan looks before it asks for inputs; what the records handed over
		// makes the ones the record was written with.
		made, err := w.Input(t, w.recorded)
		if err != nil {
			return run.Look{}, nil //nolint:nilerr // whoever asks for the inputs hears of it
		}
		in = made.Value
	}
	now := k.watch(in, &world)
	return run.Look{Drift: driftOfNotes(rec.Observed, now)}, nil
}

// onHost is the host that a task works on and whose journal vouches for it; ""
// for a task of the cluster, and for one that removes a host: it is done to the
// host from outside, whether that answers or not.
func (w *Work) onHost(t graph.Task) string {
	if w.b.Graph.Kind(t).Leaving {
		return ""
	}
	return w.b.Graph.HostName(t)
}

// recorded is the output of a task's last good run.
func (w *Work) recorded(t graph.Task) (fp.Output, bool) {
	rec := w.b.Records(t)
	if !rec.Good() {
		return nil, false
	}
	return rec.Output, true
}

// readFacts asks one host for everything its records observed. On a host that was
// never contacted there is nothing: a build that was stopped between a server's
// creation and its first contact must go on, and its server's record has only the
// cloud to be judged by.
func (w *Work) readFacts(ctx context.Context, host string) (*remote.Facts, error) {
	h, err := w.b.Env.HostOf(host)
	if errors.Is(err, remote.ErrNotFound) {
		return &remote.Facts{}, nil
	}
	if err != nil {
		return nil, err
	}
	return h.Facts(ctx, w.Query(host))
}

// Query is what to ask a host so that every record of its tasks can be judged.
func (w *Work) Query(host string) remote.FactsQuery {
	var recs []*fp.Record
	for t := range graph.Task(w.b.Graph.Len()) {
		if w.b.Graph.HostName(t) == host {
			recs = append(recs, w.b.Records(t))
		}
	}
	q := QueryOf(recs)
	q.Full = w.b.Full
	return q
}

// Do implements run.Work.
func (w *Work) Do(ctx context.Context, t graph.Task, in run.Input, a run.Attempt) (run.Result, error) {
	k := w.kinds[w.b.Graph.KindIndex(t)]
	name, host := w.b.Graph.Name(t), w.onHost(t)
	d := doing{w: w, k: k, t: t, name: name, host: host, in: in.Value, a: a, notes: map[string]string{}}
	d.env = w.b.Env
	d.env.Task, d.env.Log, d.env.VerifyOnly = name, a.Log, a.VerifyOnly
	d.env.Established, d.env.EtcdBorn = w.b.Established(), w.b.EtcdBorn()
	d.env.Note = func(key, value string) { d.notes[key] = value }
	d.env.Expires = func(at time.Time) {
		if d.until.IsZero() || at.Before(d.until) {
			d.until = at
		}
	}
	d.env.Job = d.job
	if host != "" {
		// A host whose record is not complete yet (being created, first
		// contact) has no connection; its kinds use Env.Hosts.
		if h, err := w.b.Env.HostOf(host); err == nil {
			d.env.Host = h
		} else if !errors.Is(err, remote.ErrNotFound) {
			return run.Result{}, err
		}
		if rec, ok := w.b.Env.Vault.Host(host); !ok || !rec.Seen {
			d.early = true
		}
		// Whatever happens now, what was seen of the host before is void.
		defer w.hosts[host].void()
	}
	return d.do(ctx)
}

// doing is one run of one task.
type doing struct {
	w     *Work
	k     *Kind
	t     graph.Task
	name  string
	host  string
	in    any
	a     run.Attempt
	env   Env
	notes map[string]string
	until time.Time
	early bool // the host has not been contacted: no journal yet
}

func (d *doing) do(ctx context.Context) (run.Result, error) {
	start := d.env.Now()
	if err := d.journal(ctx, fp.Pending, start, run.Result{}); err != nil {
		return run.Result{}, err
	}
	if !d.a.VerifyOnly {
		if err := d.run(ctx); err != nil {
			return run.Result{}, err
		}
	}
	var r run.Result
	var err error
	if d.k.verify != nil {
		if r.Output, err = d.k.verify(ctx, d.in, &d.env); err != nil {
			return run.Result{}, fmt.Errorf("verify: %w", err)
		}
		if err = r.Output.Check(); err != nil {
			return run.Result{}, fmt.Errorf("bug: %w", err)
		}
	}
	if r.Observed, err = d.observe(ctx); err != nil {
		return run.Result{}, fmt.Errorf("verify: %w", err)
	}
	r.GoodUntil = d.until
	return r, d.journal(ctx, fp.Done, start, r)
}

func (d *doing) run(ctx context.Context) error {
	if d.k.run != nil {
		return d.k.run(ctx, d.in, &d.env)
	}
	if d.k.declared == nil {
		return nil
	}
	_, err := d.env.Host.Apply(ctx, d.k.declared(d.in))
	return err
}

// observe reads back the declared state. What is declared must be so: a file
// with other bytes or a unit that is not up fails the task here.
func (d *doing) observe(ctx context.Context) (map[string]string, error) {
	obs := d.notes
	st := d.k.DeclaredState(d.in)
	if d.host == "" || d.env.Host == nil || empty(&st) {
		return obs, nil
	}
	f, err := d.env.Host.Facts(ctx, queryState(&st))
	if err != nil {
		return nil, err
	}
	if err := checkState(&st, f, obs); err != nil {
		return nil, err
	}
	return obs, nil
}

// job runs argv as the task's own unit. The name holds cluster, task and
// fingerprint, so that a later hk finds exactly this work again.
func (d *doing) job(ctx context.Context, j remote.Job) (*remote.JobResult, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%q %q %x %q", d.env.UID, d.name, d.a.Fingerprint, j.Argv)
	j.Unit, j.Task = "hk-"+hex.EncodeToString(h.Sum(nil))[:20], d.name
	if j.Log == nil {
		j.Log = d.a.Log
	}
	return d.env.Host.Run(ctx, j)
}

// journal writes the host's own record of the task. Entries of tasks done
// before first contact are kept and go along with the next one.
func (d *doing) journal(ctx context.Context, s fp.Status, start time.Time, r run.Result) error {
	if d.host == "" {
		return nil
	}
	rec := fp.Record{
		Status: s, Fingerprint: d.a.Fingerprint, Output: r.Output, Parts: d.a.Parts, Observed: r.Observed,
		GoodUntil: r.GoodUntil, Started: start, RunID: d.a.RunID, Reason: d.a.Reason, Attempt: d.a.Number,
		Generation: d.a.Generation,
	}
	if s == fp.Done {
		rec.Took = d.env.Now().Sub(start)
	}
	data, err := json.Marshal(&rec)
	if err != nil {
		return fmt.Errorf("bug: encoding the journal: %w", err)
	}
	w := d.w
	w.mu.Lock()
	entries := w.late[d.host]
	if entries == nil {
		entries = map[string][]byte{}
	}
	entries[d.name] = data
	seen := !d.early
	if !seen {
		if hr, ok := d.env.Vault.Host(d.host); ok && hr.Seen {
			seen = true
		}
	}
	if !seen {
		w.late[d.host] = entries
		w.mu.Unlock()
		return nil
	}
	delete(w.late, d.host)
	w.mu.Unlock()
	h, err := w.b.Env.HostOf(d.host)
	if err != nil {
		return err
	}
	if err := h.Journal(ctx, entries); err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	return nil
}

// Recheck reads every host again whose tasks ran and reports a declared state
// that another task of the same build broke: a bug, naming both.
func (w *Work) Recheck(ctx context.Context, ran []graph.Task, records func(graph.Task) *fp.Record) []error {
	touched := map[string]bool{}
	for _, t := range ran {
		if h := w.onHost(t); h != "" {
			touched[h] = true
		}
	}
	w.b.Records = records
	var mu sync.Mutex
	var bugs []error
	var wg sync.WaitGroup
	for host := range touched {
		wg.Go(func() {
			f, err := w.readFacts(ctx, host)
			if err != nil {
				return // its own tasks say so in the next build
			}
			for t := range graph.Task(w.b.Graph.Len()) {
				rec := records(t)
				if w.b.Graph.HostName(t) != host || !rec.Good() {
					continue
				}
				if d := driftOf(rec.Observed, f); d != "" {
					mu.Lock()
					bugs = append(bugs, fmt.Errorf("bug: after the build, what %s declared is broken by another task: %s", w.b.Graph.Name(t), d))
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return bugs
}

// watched is what is known of one host during a build. One reader at a time:
// the others wait for its answer instead of asking again.
type watched struct {
	mu    sync.Mutex
	facts *remote.Facts
	down  string
	stale bool
}

func (h *watched) void() {
	h.mu.Lock()
	h.stale = true
	h.mu.Unlock()
}

func (h *watched) get(ctx context.Context, read func(context.Context) (*remote.Facts, error)) (*remote.Facts, string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.down != "" && !h.stale {
		return nil, h.down
	}
	if h.facts == nil || h.stale {
		f, err := read(ctx)
		if err != nil {
			h.down = err.Error()
			h.stale = false
			return nil, h.down
		}
		h.facts, h.down, h.stale = f, "", false
	}
	return h.facts, ""
}
