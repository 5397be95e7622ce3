package run

import (
	"slices"
	"time"

	"hk/graph"
)

// cause notes a failed task.
func (s *sched) cause(t graph.Task, j *job, err error) {
	if j != nil && !j.started.IsZero() {
		s.sum.Tasks[j.at].Failed = true
	}
	s.sum.Causes = append(s.sum.Causes, Cause{
		Task: t, Name: s.g.Name(t), Host: s.g.HostName(t), Class: Class(err), Message: err.Error(), Tasks: 1, Err: err,
	})
}

// unreachable notes a task nobody could look at, one cause for each host.
func (s *sched) unreachable(t graph.Task, reason string) {
	host := s.g.HostName(t)
	for i := range s.sum.Causes {
		if c := &s.sum.Causes[i]; c.Err == nil && c.Host == host {
			c.Tasks++
			return
		}
	}
	class := "ssh"
	if host == "" {
		class = "cloud"
	}
	s.sum.Causes = append(s.sum.Causes, Cause{
		Task: t, Name: s.g.Name(t), Host: host, Class: class, Message: reason, Tasks: 1,
	})
}

// report tells how far the build is, if that changed.
func (s *sched) report() {
	p := Progress{
		Selected: s.sum.Selected, Running: s.count[Starting] + s.count[Running] + s.count[Recording],
		Waiting: s.unfinished(),
	}
	p.Waiting -= p.Running
	p.Finished = p.Selected - p.Waiting - p.Running
	p.Remaining = s.remaining()
	if p != s.progress {
		s.progress = p
		s.o.Sink.Event(p)
	}
}

// remaining is how long the build takes at least from here, by what tasks took
// before: the longest chain that starts with a task that runs or could.
func (s *sched) remaining() time.Duration {
	if s.pl == nil {
		return 0
	}
	var longest int64
	now := s.o.Clock.Now()
	for t := range s.running {
		longest = max(longest, s.chain[t]-int64(now.Sub(s.jobs[t].started)))
	}
	if len(s.pl.ready.heap) > 0 {
		longest = max(longest, s.chain[s.pl.ready.heap[0]])
	}
	return time.Duration(longest).Round(time.Second)
}

// finishUp ends what never began and adds up.
func (s *sched) finishUp() *Summary {
	for t := range s.sel.All() {
		if !s.state[t].Final() {
			s.end(t, Blocked, s.stopWhy, nil)
		}
	}
	s.report()
	r := s.sum
	r.Ran, r.Fresh, r.Spared = s.count[Ran], s.count[Fresh], s.count[Spared]
	r.Unverified, r.Failed, r.Blocked = s.count[Unverified], s.count[Failed], s.count[Blocked]
	r.Interrupted, r.Err, r.States = s.stage, s.err, s.state
	blocked := map[graph.Task]int{}
	for t := range s.sel.All() {
		if s.state[t] == Blocked && s.blame[t] >= 0 {
			blocked[s.blame[t]]++
		}
	}
	for i := range r.Causes {
		if r.Causes[i].Err != nil {
			r.Causes[i].Blocked = blocked[r.Causes[i].Task]
		}
	}
	s.criticalPath()
	r.Wall = s.o.Clock.Now().Sub(s.began)
	return r
}

// criticalPath finds the longest chain of tasks that ran.
func (s *sched) criticalPath() {
	if len(s.sum.Tasks) == 0 {
		return
	}
	took := make([]time.Duration, s.g.Len())
	for _, x := range s.sum.Tasks {
		took[x.Task] = x.End.Sub(x.Start)
	}
	until := make([]time.Duration, s.g.Len())
	from := make([]graph.Task, s.g.Len())
	last := graph.Task(-1)
	for t := range graph.Task(s.g.Len()) {
		from[t] = -1
		for _, e := range s.g.NeedEdges(t) {
			if until[e.Task] > until[t] {
				until[t], from[t] = until[e.Task], e.Task
			}
		}
		until[t] += took[t]
		if last < 0 || until[t] > until[last] {
			last = t
		}
	}
	s.sum.CriticalPath = until[last]
	for t := last; t >= 0; t = from[t] {
		if took[t] > 0 {
			s.sum.Chain = append(s.sum.Chain, t)
		}
	}
	slices.Reverse(s.sum.Chain)
}
