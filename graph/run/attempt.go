package run

import (
	"context"
	"runtime/debug"
	"time"

	"hk/cache/fp"
	"hk/graph"
)

// defaultAttempts is how often a task is tried if its errors may pass.
const defaultAttempts = 3

// backoff waits 1 s, 2 s, 4 s and so on up to 30 s. There is no jitter: tasks
// of one build are few, and what must not be asked too often has a token bucket
// of its own in remote.
func backoff(attempt int) time.Duration {
	return min(30*time.Second, time.Second<<min(attempt-1, 5))
}

// do calls Work.Do and turns a panic into an error of this task alone.
func do(ctx context.Context, w Work, t graph.Task, name string, in Input, a Attempt) (res Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &panicError{what: name, value: r, stack: debug.Stack()}
		}
		if err != nil {
			err = &TaskError{Name: name, Attempt: a.Number, Err: err}
		}
	}()
	return w.Do(ctx, t, in, a)
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
