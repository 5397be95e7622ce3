package run

import (
	"context"
	"fmt"
	"time"

	"hk/cache/fp"
	"hk/graph"
)

// sched is a build under way. Everything in it belongs to the goroutine of
// loop; goroutines of tasks, looks, timers and the Recorder post to mail.
type sched struct {
	o    *Options
	g    *graph.Graph
	b    *book
	sel  graph.Set
	mail *mailbox

	state []State
	count [states]int
	open  []int32 // needed tasks that are not finished
	blame []graph.Task
	jobs  map[graph.Task]*job // tasks between their decision and their end

	todo  []graph.Task // Deciding
	deep  []graph.Task // Deciding, and the whole record is wanted
	looks []graph.Task // Looking, the look not yet begun
	ahead int          // looks on their way
	pl    *places      // nil until something is stale
	free  int          // jobs free

	batch    []fp.Change // to be committed at the end of this step
	landed   []func(error)
	commits  int // on their way
	keptSeen map[graph.Task]Look

	stage    int    // of the interrupt
	stopWhy  string // why nothing new starts; "" while things do
	err      error  // ends the build as a whole
	cancel   context.CancelCauseFunc
	doCtx    context.Context
	noLooks  context.CancelFunc
	lookCtx  context.Context
	sum      *Summary
	began    time.Time
	chain    []int64 // recorded length of the longest chain from each task
	running  map[graph.Task]struct{}
	progress Progress
}

// job is a task between its decision and its end.
type job struct {
	in      inputs
	rec     *fp.Record // the last good run, and what came of it; may be nil
	reason  string
	verify  bool // make nothing
	attempt int
	started time.Time   // of the first attempt
	at      int         // index in Summary.Tasks
	last    error       // of the attempt before
	stop    func() bool // ends the wait for the next attempt
}

// messages to the owner
type (
	looked struct {
		task graph.Task
		look Look
	}
	did struct {
		task graph.Task
		res  Result
		err  error
		end  time.Time
	}
	again    struct{ task graph.Task }
	recorded struct {
		landed []func(error)
		err    error
	}
)

func build(ctx context.Context, o Options) (*Summary, error) {
	o.fillIn()
	b, err := openBook(ctx, &o)
	if err != nil {
		return nil, err
	}
	if o.Only {
		if err := checkOnly(ctx, &o, b); err != nil {
			return nil, err
		}
	}
	s := newSched(ctx, &o, b)
	defer s.cancel(nil)
	defer s.noLooks()
	if err := s.checkKept(ctx); err != nil {
		return nil, err
	}
	s.loop(ctx)
	return s.finishUp(), nil
}

func (o *Options) fillIn() {
	o.Jobs = max(1, o.Jobs)
	if o.Attempts < 1 {
		o.Attempts = defaultAttempts
	}
	if o.Backoff == nil {
		o.Backoff = backoff
	}
	if o.Sink == nil {
		o.Sink = nobody{}
	}
}

type nobody struct{}

func (nobody) Event(Event) {}

func newSched(ctx context.Context, o *Options, b *book) *sched {
	n := o.Graph.Len()
	s := &sched{
		o: o, g: o.Graph, b: b, sel: o.Selection.Selected, mail: newMailbox(),
		state: make([]State, n), open: make([]int32, n), blame: make([]graph.Task, n),
		jobs: map[graph.Task]*job{}, running: map[graph.Task]struct{}{}, free: o.Jobs, keptSeen: map[graph.Task]Look{},
		sum: &Summary{}, began: o.Clock.Now(),
	}
	s.doCtx, s.cancel = context.WithCancelCause(ctx)
	s.lookCtx, s.noLooks = context.WithCancel(s.doCtx)
	s.sum.Selected = s.sel.Len()
	s.count[Waiting] = s.sum.Selected
	for t := range s.sel.All() {
		s.blame[t] = -1
		for _, e := range s.g.NeedEdges(t) {
			if s.sel.Has(e.Task) {
				s.open[t]++
			}
		}
		if s.open[t] == 0 {
			s.set(t, Deciding)
			s.todo = append(s.todo, t)
		}
	}
	return s
}

// loop runs until nothing is on its way and nothing can start.
func (s *sched) loop(ctx context.Context) {
	interrupt := s.o.Interrupt
	done := ctx.Done()
	for {
		s.step()
		if s.idle() {
			return
		}
		select {
		case <-s.mail.wake:
			for _, m := range s.mail.take() {
				s.handle(m)
			}
		case <-interrupt:
			if s.interrupted(); s.stage == 2 {
				interrupt = nil
			}
		case <-done:
			done = nil
			s.fail(context.Cause(ctx))
			s.cancelAll(context.Cause(ctx))
		}
	}
}

// step does everything that can be done without waiting.
func (s *sched) step() {
	for s.stopWhy == "" {
		for len(s.todo) > 0 && s.stopWhy == "" {
			t := s.todo[len(s.todo)-1]
			s.todo = s.todo[:len(s.todo)-1]
			s.consider(t)
		}
		s.considerDeep()
		if len(s.todo) > 0 {
			continue
		}
		// A guard that is closed blocks tasks here, which may free others.
		if s.startTasks(); len(s.todo) == 0 {
			break
		}
	}
	s.startLooks()
	s.commit()
	s.report()
}

func (s *sched) idle() bool {
	if s.ahead+s.commits+s.count[Starting]+s.count[Running]+s.count[Backoff]+s.count[Recording] > 0 {
		return false
	}
	if s.stopWhy == "" && s.unfinished() > 0 {
		// Every task is finished, on its way, or startable; a guard that waits
		// for itself is refused when the kind graph is made.
		panic(fmt.Sprintf("bug: nothing runs, and %d tasks wait", s.unfinished()))
	}
	return true
}

func (s *sched) unfinished() int {
	n := 0
	for st := range Ran {
		n += s.count[st]
	}
	return n
}

func (s *sched) handle(m any) {
	switch m := m.(type) {
	case looked:
		s.ahead--
		s.lookedAt(m.task, m.look)
	case did:
		s.didTask(m)
	case again:
		if j := s.jobs[m.task]; j != nil && s.state[m.task] == Backoff {
			s.set(m.task, Queued)
			s.pl.ready.push(m.task)
		}
	case recorded:
		s.commits--
		if m.err != nil {
			s.fail(m.err)
		}
		for _, f := range m.landed {
			f(m.err)
		}
	}
}

// startTasks fills the free jobs.
func (s *sched) startTasks() {
	for s.stopWhy == "" && s.free > 0 && s.pl != nil {
		t, closed, ok := s.pl.next()
		if !ok {
			return
		}
		if closed != nil {
			s.blame[t] = s.root(closed.closedBy)
			s.finish(t, Blocked, closed.reason(s.g), nil)
			continue
		}
		s.free--
		s.start(t)
	}
}

// finish ends a task and tells those that need it.
func (s *sched) finish(t graph.Task, st State, reason string, err error) {
	s.end(t, st, reason, err)
	s.tell(t, st.Good())
}

// end gives a task its final state.
func (s *sched) end(t graph.Task, st State, reason string, err error) {
	s.set(t, st)
	j := s.jobs[t]
	delete(s.jobs, t)
	if err != nil {
		s.cause(t, j, err)
		if s.o.FailFast {
			s.stop(fmt.Sprintf("stopped after %s failed", s.g.Name(t)))
		}
	}
	if st == Unverified {
		s.unreachable(t, reason)
	}
	if st == Fresh && !s.o.FreshEvents {
		return
	}
	k := s.g.Kind(t)
	e := TaskFinished{
		RunID: s.o.RunID, Task: t, Name: s.g.Name(t), Phase: k.Phase, Host: s.g.HostName(t),
		Status: st, Reason: reason, Err: err,
	}
	if j != nil && !j.started.IsZero() {
		e.Attempt, e.Duration = j.attempt, s.sum.Tasks[j.at].End.Sub(j.started)
	}
	if err != nil {
		e.Class, e.Error = Class(err), err.Error()
	}
	s.o.Sink.Event(e)
}

// tell counts a finished task down at those that need it, and at its guard.
func (s *sched) tell(t graph.Task, good bool) {
	if s.pl != nil {
		s.pl.finished(t, good)
	}
	for _, e := range s.g.DependentEdges(t) {
		u := e.Task
		if !s.sel.Has(u) {
			continue
		}
		if s.open[u]--; s.open[u] == 0 && s.state[u] == Waiting {
			s.set(u, Deciding)
			s.todo = append(s.todo, u)
		}
	}
}

// write puts a record into the commit of this step. A nil record removes.
func (s *sched) write(t graph.Task, rec *fp.Record, landed func(error)) {
	s.batch = append(s.batch, fp.Change{Name: s.g.Name(t), Record: rec})
	if landed != nil {
		s.landed = append(s.landed, landed)
	}
}

// commit hands the step's changes to the Recorder.
func (s *sched) commit() {
	if len(s.batch) == 0 {
		return
	}
	batch, landed := s.batch, s.landed
	s.batch, s.landed = nil, nil
	s.commits++
	s.o.Recorder.Commit(batch, func(err error) { s.mail.post(recorded{landed, err}) })
}
