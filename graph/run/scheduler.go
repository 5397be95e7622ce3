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
	for st := Waiting; st < Ran; st++ {
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

// start makes the pending record durable; Do follows when it is. An attempt
// that makes nothing leaves nothing half made, so it announces nothing: killed,
// a verified-only task is as good as before, and not made again.
func (s *sched) start(t graph.Task) {
	j := s.jobs[t]
	s.set(t, Starting)
	j.attempt++
	if j.verify || j.attempt > 1 {
		s.begin(t)
		return
	}
	rec := fp.Record{}
	if j.rec != nil {
		rec = *j.rec
	}
	rec.Status, rec.Started, rec.RunID = fp.Pending, s.o.Clock.Now(), s.o.RunID
	rec.Reason, rec.Error, rec.Attempt = j.reason, "", 1
	s.write(t, &rec, func(err error) {
		if err != nil {
			s.free++
			s.pl.give(t)
			s.finish(t, Blocked, err.Error(), nil)
			return
		}
		s.begin(t)
	})
}

// begin calls Do in a goroutine of its own.
func (s *sched) begin(t graph.Task) {
	j := s.jobs[t]
	if s.stopWhy != "" && j.attempt == 1 { // stopped while the record was written
		s.free++
		s.pl.give(t)
		s.withdraw(t, j)
		s.finish(t, Blocked, s.stopWhy, nil)
		return
	}
	s.set(t, Running)
	s.running[t] = struct{}{}
	now := s.o.Clock.Now()
	name := s.g.Name(t)
	if j.attempt == 1 {
		j.started, j.at = now, len(s.sum.Tasks)
		s.sum.Started++
		s.sum.Tasks = append(s.sum.Tasks, Timing{Task: t, Start: now, Pool: s.g.Kind(t).Pool})
	}
	s.o.Sink.Event(TaskStarted{
		Task: t, Name: name, Attempt: j.attempt, Reason: j.reason, At: now, Expected: s.b.kept[t].Took,
	})
	a := Attempt{
		RunID: s.o.RunID, Number: j.attempt, Fingerprint: j.in.parts.Fingerprint(), Parts: j.in.parts.List(),
		Reason: j.reason, Generation: s.o.Generation, VerifyOnly: j.verify,
		Log: func(line string) { s.o.Sink.Event(LogLine{Task: t, Name: name, Line: line}) },
	}
	go func() {
		res, err := do(s.doCtx, s.o.Work, t, name, j.in.Input, a)
		s.mail.post(did{t, res, err, s.o.Clock.Now()})
	}()
}

// withdraw takes back the announcement of a run that was never begun.
func (s *sched) withdraw(t graph.Task, j *job) {
	if !j.verify {
		s.write(t, j.rec, nil)
	}
}

// didTask takes the outcome of an attempt.
func (s *sched) didTask(m did) {
	t, j := m.task, s.jobs[m.task]
	delete(s.running, t)
	s.free++
	s.pl.give(t)
	j.end(s, m.end)
	if m.err == nil {
		m.err = m.res.Output.Check()
	}
	switch {
	case m.err == nil:
		s.recordRun(t, j, m)
	case s.cutOff():
		// Cut off in the middle: the pending record stays, and says so.
		s.finish(t, Failed, j.reason, m.err)
	case transient(m.err) && j.attempt < s.o.Attempts && s.stopWhy == "":
		wait := s.o.Backoff(j.attempt)
		j.last = m.err
		s.set(t, Backoff)
		s.o.Sink.Event(TaskRetry{
			Task: t, Name: s.g.Name(t), Attempt: j.attempt, Class: Class(m.err), Error: m.err.Error(), Wait: wait,
		})
		j.stop = s.o.Clock.AfterFunc(wait, func() { s.mail.post(again{t}) })
	default:
		s.recordFailure(t, j, m.err)
		s.finish(t, Failed, j.reason, m.err)
	}
}

func (j *job) end(s *sched, at time.Time) {
	s.sum.Tasks[j.at].End = at
	s.sum.Tasks[j.at].Attempts = j.attempt
}

// recordRun writes the record of a verified run. Those that need the task are
// told at once, so that the pending records of those it frees share the commit;
// none of them starts before that commit is durable.
func (s *sched) recordRun(t graph.Task, j *job, m did) {
	rec := &fp.Record{
		Status: fp.Done, Fingerprint: j.in.parts.Fingerprint(), Output: m.res.Output, Parts: j.in.parts.List(),
		Observed: m.res.Observed, GoodUntil: m.res.GoodUntil, Started: j.started, Took: m.end.Sub(j.started),
		RunID: s.o.RunID, Reason: j.reason, Attempt: j.attempt, Generation: s.o.Generation,
	}
	s.set(t, Recording)
	s.b.learn(t, rec)
	s.write(t, rec, func(err error) {
		if err != nil {
			s.end(t, Failed, j.reason, err)
			return
		}
		s.end(t, Ran, j.reason, nil)
	})
	s.tell(t, true)
}

// recordFailure keeps what happened, beside the last good run. It is no answer
// to anything.
func (s *sched) recordFailure(t graph.Task, j *job, err error) {
	rec := fp.Record{}
	if j.rec != nil {
		rec = *j.rec
	}
	rec.Status, rec.Started, rec.RunID = fp.Failed, j.started, s.o.RunID
	rec.Reason, rec.Error, rec.Attempt = j.reason, err.Error(), j.attempt
	s.write(t, &rec, nil)
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
