package run_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"hk/cache/fp"
	"hk/graph"
	"hk/graph/run"
)

// world is a small model of machines: for each task one value that is really
// there. It says no where a real one would.
type world struct {
	g *graph.Graph

	mu     sync.Mutex
	config map[string]string // by kind
	ids    map[string]string // identity of each host
	real   map[string]string // by task: what is there
	made   map[string]int    // by task: how often it was made, not merely found right
	down   map[string]bool   // hosts nobody reaches
	fail   map[string]error  // by task: what Do returns
	flaky  map[string]int    // by task: transient failures still to come
	store  *memory

	calls   int            // Do calls of this build
	did     map[string]int // Do calls of this build, by task
	wrong   []string       // broken promises of the engine
	now     map[string]bool
	holding map[string]string // guard -> host of the tasks that run
	broken  map[string]string // guard -> host whose task failed
	guarded bool
	// planning says that outputs may be missing.
	planning bool
	hook     func(name string) // inside Do, unlocked
	kill     *killer
}

func newWorld(g *graph.Graph) *world {
	w := &world{
		g: g, config: map[string]string{}, ids: map[string]string{}, real: map[string]string{},
		made: map[string]int{}, down: map[string]bool{}, fail: map[string]error{}, flaky: map[string]int{},
	}
	for i := range g.Kinds().Len() {
		w.config[g.Kinds().Kind(i).ID()] = "0"
	}
	for _, h := range g.Hosts() {
		w.ids[h.Name] = "id-" + h.Name
	}
	w.newBuild()
	return w
}

func (w *world) newBuild() {
	w.calls, w.did, w.now, w.wrong = 0, map[string]int{}, map[string]bool{}, nil
	w.holding, w.broken = map[string]string{}, map[string]string{}
}

// own is what goes into a task beside what it needs.
func (w *world) own(t graph.Task) string {
	return w.config[w.g.Kind(t).ID()] + " " + w.ids[w.g.HostName(t)]
}

// Input puts the outputs of everything needed with all into the value, so that
// the result depends on all of the inputs.
func (w *world) Input(t graph.Task, up run.Upstream) (run.Input, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := &fp.Parts{}
	p.Text("config:"+w.g.Kind(t).ID(), w.config[w.g.Kind(t).ID()])
	if h := w.g.HostName(t); h != "" {
		p.Opaque("alloc:id", []byte(w.ids[h]))
	}
	value := w.own(t)
	for u, need := range w.g.Needs(t) {
		if need.Quorum == graph.All && !need.After {
			o, ok := up(u)
			if !ok && !w.planning {
				w.wrong = append(w.wrong, w.g.Name(t)+" is asked for inputs before "+w.g.Name(u)+" has an output")
			}
			value += " " + w.g.Name(u) + "=" + o["v"]
		}
	}
	return run.Input{Parts: p, Value: value}, nil
}

func (w *world) Look(_ context.Context, t graph.Task, rec *fp.Record) (run.Look, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.down[w.g.HostName(t)] {
		return run.Look{Unreachable: w.g.HostName(t) + " does not answer"}, nil
	}
	if w.real[w.g.Name(t)] != rec.Observed["real"] {
		return run.Look{Drift: "/etc/" + w.g.Kind(t).Part + " changed"}, nil
	}
	return run.Look{}, nil
}

// outcome is an error with its class.
type outcome struct {
	class string
	again bool
	text  string
}

func (o *outcome) Error() string   { return o.text }
func (o *outcome) Class() string   { return o.class }
func (o *outcome) Transient() bool { return o.again }

func (w *world) Do(ctx context.Context, t graph.Task, in run.Input, a run.Attempt) (run.Result, error) {
	name := w.g.Name(t)
	w.enter(t, name, a)
	defer w.leave(t, name)
	if w.hook != nil {
		w.hook(name)
	}
	if w.kill.at("do " + name + " before") {
		return run.Result{}, errKilled
	}
	if err := ctx.Err(); err != nil {
		return run.Result{}, context.Cause(ctx)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.refuse(t, name); err != nil {
		if gd := w.g.Kind(t).Guard; gd != "" && !err.again {
			w.broken[gd] = w.g.HostName(t)
		}
		return run.Result{}, err
	}
	value := result(in.Value.(string))
	switch {
	case w.real[name] == value: // found right
	case a.VerifyOnly:
		return run.Result{}, &outcome{"bug", false, "is not what it should be"}
	default:
		w.real[name] = value
		w.made[name]++
	}
	if w.kill.at("do " + name + " after") {
		return run.Result{}, errKilled
	}
	return run.Result{Output: output(value), Observed: map[string]string{"real": value}}, nil
}

func (w *world) refuse(t graph.Task, name string) *outcome {
	if w.down[w.g.HostName(t)] {
		return &outcome{"ssh", true, "unreachable"}
	}
	if err := w.fail[name]; err != nil {
		return &outcome{"kube", false, err.Error()}
	}
	if w.flaky[name] > 0 {
		w.flaky[name]--
		return &outcome{"cloud", true, "try again"}
	}
	return nil
}

// enter checks what the engine promises before Do.
func (w *world) enter(t graph.Task, name string, a run.Attempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls++
	w.did[name]++
	if w.did[name] != a.Number {
		w.wrong = append(w.wrong, fmt.Sprintf("%s: attempt %d is call %d", name, a.Number, w.did[name]))
	}
	if w.now[name] {
		w.wrong = append(w.wrong, name+" runs twice at a time")
	}
	w.now[name] = true
	for u, need := range w.g.Needs(t) {
		if w.now[w.g.Name(u)] {
			w.wrong = append(w.wrong, name+" runs while "+w.g.Name(u)+" runs")
		}
		if r := w.store.get(w.g.Name(u)); need.Quorum == graph.All && !need.After && !r.Good() {
			w.wrong = append(w.wrong, name+" runs without a durable record of "+w.g.Name(u))
		}
	}
	if r := w.store.get(name); !a.VerifyOnly && (r == nil || r.Status != fp.Pending) {
		w.wrong = append(w.wrong, name+" runs without a pending record")
	}
	if gd := w.g.Kind(t).Guard; w.guarded && gd != "" {
		host := w.g.HostName(t)
		if h, ok := w.holding[gd]; ok && h != host {
			w.wrong = append(w.wrong, fmt.Sprintf("%s on %s runs beside %s", gd, host, h))
		}
		if h, ok := w.broken[gd]; ok && h != host {
			w.wrong = append(w.wrong, fmt.Sprintf("%s on %s runs after a failure on %s", gd, host, h))
		}
		w.holding[gd] = host
	}
}

func (w *world) leave(t graph.Task, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.now, name)
	if gd := w.g.Kind(t).Guard; gd != "" {
		for other := range w.now {
			if u, _ := w.g.Lookup(other); w.g.Kind(u).Guard == gd {
				return
			}
		}
		delete(w.holding, gd)
	}
}

func result(value string) string {
	sum := sha256.Sum256([]byte(value))
	return hex.EncodeToString(sum[:4])
}

// output is much coarser than the result, so that early cutoff happens.
func output(result string) fp.Output {
	if result[0] < '4' {
		return nil
	}
	return fp.Output{"v": result[:1]}
}

// want is the model: what must be there after a build of everything, worked out
// without the engine.
func (w *world) want() map[string]string {
	out := map[string]string{}
	for t := range graph.Task(w.g.Len()) {
		value := w.own(t)
		for u, need := range w.g.Needs(t) {
			if need.Quorum == graph.All && !need.After {
				value += " " + w.g.Name(u) + "=" + output(out[w.g.Name(u)])["v"]
			}
		}
		out[w.g.Name(t)] = result(value)
	}
	return out
}

// errKilled comes back from everything that happens in a process that is dead.
var errKilled = errors.New("killed")

// killer ends the process at one of the points it is asked about.
type killer struct {
	mu    sync.Mutex
	left  int // points still to pass; negative: never
	dead  bool
	point string
	kinds map[string]int
}

func (k *killer) at(point string) bool {
	if k == nil {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	kind := strings.Fields(point)
	k.kinds[kind[0]+" "+kind[len(kind)-1]]++
	if k.dead {
		return true
	}
	if k.left == 0 {
		k.dead, k.point = true, point
	}
	k.left--
	return k.dead
}

// memory is a Recorder that forgets nothing and can be killed.
type memory struct {
	mu      sync.Mutex
	records map[string]*fp.Record
	commits int
	writes  int
	kill    *killer
	refuse  error
	damaged map[string]bool
}

func newMemory() *memory {
	return &memory{records: map[string]*fp.Record{}, damaged: map[string]bool{}}
}

func (m *memory) get(name string) *fp.Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.records[name]
}

func (m *memory) Load(_ context.Context, each func([]byte, fp.Kept)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(m.records)) {
		if m.damaged[name] {
			each([]byte(name), fp.Kept{Damaged: true})
			continue
		}
		each([]byte(name), fp.Keep(m.records[name]))
	}
	return nil
}

func (m *memory) Whole(_ context.Context, names []string) ([]*fp.Record, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*fp.Record, len(names))
	for i, name := range names {
		if r := m.records[name]; r != nil && !m.damaged[name] {
			c := *r
			out[i] = &c
		}
	}
	return out, nil
}

func (m *memory) Commit(changes []fp.Change, done func(error)) {
	m.mu.Lock()
	m.commits++
	if m.refuse != nil {
		m.mu.Unlock()
		done(m.refuse)
		return
	}
	if m.kill.at("commit before") {
		m.mu.Unlock()
		done(errKilled)
		return
	}
	for _, c := range changes {
		m.writes++
		delete(m.damaged, c.Name)
		if c.Record == nil {
			delete(m.records, c.Name)
			continue
		}
		m.records[c.Name] = c.Record
	}
	dead := m.kill.at("commit after")
	m.mu.Unlock()
	if dead {
		done(errKilled)
		return
	}
	done(nil)
}

// answers is what must be equal between two ways to the same state: everything
// but times, runs and reasons.
func (m *memory) answers() map[string]string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]string{}
	for name, r := range m.records {
		out[name] = fmt.Sprint(r.Status, r.Fingerprint.Short(), r.Output, r.Observed, r.Drift, len(r.Parts))
	}
	return out
}

// ticks is a clock on which every question takes a millisecond and no wait
// takes any time.
type ticks struct {
	mu  sync.Mutex
	now time.Time
}

var epoch = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

func (c *ticks) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Millisecond)
	return c.now
}

func (c *ticks) AfterFunc(_ time.Duration, f func()) func() bool {
	go f()
	return func() bool { return false }
}

// log is a Sink that keeps everything.
type log struct {
	mu     sync.Mutex
	events []run.Event
	hear   func(run.Event)
}

func (l *log) Event(e run.Event) {
	l.mu.Lock()
	l.events = append(l.events, e)
	l.mu.Unlock()
	if l.hear != nil {
		l.hear(e)
	}
}

func (l *log) finished() map[string]run.TaskFinished {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := map[string]run.TaskFinished{}
	for _, e := range l.events {
		if f, ok := e.(run.TaskFinished); ok {
			if _, twice := out[f.Name]; twice {
				panic(f.Name + " finished twice")
			}
			out[f.Name] = f
		}
	}
	return out
}

// site is a world with its records.
type site struct {
	*world
	log *log
}

func newSite(g *graph.Graph) *site {
	s := &site{world: newWorld(g)}
	s.store = newMemory()
	return s
}

// options are those of a plain build of everything.
func (s *site) options() run.Options {
	s.log = &log{}
	return run.Options{
		Graph: s.g, Selection: graph.Selection{Named: s.g.FullSet(), Selected: s.g.FullSet()},
		Work: s.world, Recorder: s.store, Clock: &ticks{now: epoch}, Sink: s.log,
		RunID: "run", Now: epoch, Jobs: 4, FreshEvents: true, Verify: run.VerifyQuick,
	}
}

// build runs a build in which nothing may break a promise.
func (s *site) build(t tester, o run.Options) *run.Summary {
	t.Helper()
	s.newBuild()
	s.guarded = o.Guarded
	sum, err := run.Build(context.Background(), o)
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	for _, w := range s.wrong {
		t.Errorf("%s", w)
	}
	if n := sum.Ran + sum.Fresh + sum.Spared + sum.Unverified + sum.Failed + sum.Blocked; n != sum.Selected {
		t.Errorf("counts sum up to %d of %d selected", n, sum.Selected)
	}
	return sum
}

// ran returns the names of the tasks that were started in the last build.
func (s *site) ran() []string { return slices.Sorted(maps.Keys(s.did)) }

type tester interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}
