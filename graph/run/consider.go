package run

import (
	"fmt"

	"hk/cache/fp"
	"hk/graph"
)

// consider decides a task whose needs are all finished, as far as that is
// possible without its whole record. Of a build that has nothing to do this is
// all there is to do, a hundred thousand times over.
func (s *sched) consider(t graph.Task) {
	kept := spared(s.o, s.g.Kind(t)) != ""
	if !kept && s.unmet(t) {
		return
	}
	in, err := s.b.inputs(t, nil, false)
	if err == nil && in.missing >= 0 {
		// Whatever is needed is finished and good, so it has an output; but a
		// task that was not selected may have lost its record.
		err = fmt.Errorf("%s has no record", s.g.Name(in.missing))
	}
	if err != nil && !kept { // what is kept needs nothing
		s.finish(t, Failed, "", fmt.Errorf("inputs: %w", err))
		return
	}
	d := s.decideInput(t, &in)
	k := &d.Record
	if k.Status == 0 || k.Damaged {
		v, reason := Decide(d)
		s.settle(t, &job{in: in}, v, reason)
		return
	}
	if (s.o.Verify == VerifyOff || kept) && !k.Drifted {
		differs := false
		d.Old = func() []fp.Part { differs = true; return nil }
		if v, reason := Decide(d); v != Run && !differs {
			s.settle(t, nil, v, reason)
			return
		}
	}
	s.jobs[t] = &job{in: in}
	s.deep = append(s.deep, t)
}

func (s *sched) decideInput(t graph.Task, in *inputs) DecideInput {
	d := DecideInput{
		Record: s.b.kept[t], Parts: in.parts, Now: s.o.Now,
		Forced: s.o.Force && s.o.Selection.Named.Has(t),
		Spared: spared(s.o, s.g.Kind(t)),
	}
	if l, ok := s.keptSeen[t]; ok && d.Spared != "" {
		d.Drift, d.Unreachable = l.Drift, l.Unreachable
	}
	return d
}

// considerDeep goes on with tasks whose whole record is wanted: to say what
// changed, to look at the world with it, or to keep it beside a pending one.
func (s *sched) considerDeep() {
	const chunk = 1024
	deep := s.deep
	s.deep = nil
	for len(deep) > 0 && s.stopWhy == "" {
		part := deep[:min(chunk, len(deep))]
		deep = deep[len(part):]
		recs, err := s.b.whole(s.doCtx, part)
		if err != nil {
			s.fail(err)
			return
		}
		for i, t := range part {
			s.withRecord(t, recs[i])
		}
	}
}

func (s *sched) withRecord(t graph.Task, rec *fp.Record) {
	j := s.jobs[t]
	j.rec = rec
	if rec == nil {
		s.b.kept[t] = fp.Kept{Damaged: true}
	}
	d := s.decideInput(t, &j.in)
	_, seen := s.keptSeen[t]
	if rec != nil {
		d.Old = func() []fp.Part { return rec.Parts }
		if s.o.Verify != VerifyOff && !seen {
			// What is seen now counts, not what was seen once.
			if v, _ := Decide(d); v == IsFresh {
				s.set(t, Looking)
				s.looks = append(s.looks, t)
				return
			}
		}
		if !seen {
			d.Drift = rec.Drift
		}
	}
	v, reason := Decide(d)
	s.settle(t, j, v, reason)
}

// startLooks lets goroutines look, lookWidth at a time.
func (s *sched) startLooks() {
	if s.stopWhy != "" {
		s.looks = nil
	}
	for len(s.looks) > 0 && s.ahead < lookWidth {
		t := s.looks[0]
		s.looks = s.looks[1:]
		s.ahead++
		rec := *s.jobs[t].rec
		go func() { s.mail.post(looked{t, look(s.lookCtx, s.o.Work, s.g, t, &rec)}) }()
	}
}

// lookedAt decides with what was seen. A difference is written down before
// anything else: whatever becomes of this build, none that does not look can
// take the task for fresh.
func (s *sched) lookedAt(t graph.Task, l Look) {
	if s.stopWhy != "" {
		return // perhaps cut off; the task ends as blocked
	}
	j := s.jobs[t]
	if l.Unreachable == "" && l.Drift != j.rec.Drift {
		j.rec.Drift = l.Drift
		rec := *j.rec
		s.write(t, &rec, nil)
	}
	d := s.decideInput(t, &j.in)
	d.Drift, d.Unreachable = l.Drift, l.Unreachable
	v, reason := Decide(d)
	s.settle(t, j, v, reason)
}

// settle acts on a decision.
func (s *sched) settle(t graph.Task, j *job, v Verdict, reason string) {
	switch v {
	case Run:
		j.reason = reason
		j.verify = s.o.VerifyOnly || s.g.Kind(t).Once && reason == reasonForced
		s.jobs[t] = j
		s.set(t, Queued)
		s.needPlaces()
		s.pl.ready.push(t)
	case IsFresh:
		s.finish(t, Fresh, reason, nil)
	case IsSpared, IsBlocked: // a kept task that cannot be used, and nobody needs it
		s.finish(t, Spared, reason, nil)
	case IsUnverified:
		s.finish(t, Unverified, reason, nil)
	default:
		panic("bug: a build decided " + v.String())
	}
}

// needPlaces makes what only builds need that run something.
func (s *sched) needPlaces() {
	if s.pl != nil {
		return
	}
	s.chain = urgencies(s.b)
	urgency := s.chain
	if s.o.Shuffle != 0 {
		urgency = shuffled(s.g.Len(), s.o.Shuffle)
	}
	s.pl = newPlaces(s.o, urgency, func(t graph.Task) bool {
		return s.sel.Has(t) && !s.state[t].Final()
	})
}

// unmet blocks a task if something it requires is not good, and says so.
func (s *sched) unmet(t graph.Task) bool {
	blocked := false
	gate(s.g, t, s.good, func(n *graph.Need, first graph.Task, ok, of int) {
		blocked = true
		s.blame[t] = s.root(first)
		reason := fmt.Sprintf("%s %s", s.g.Name(first), s.state[first])
		if n.Quorum == graph.Majority {
			reason = fmt.Sprintf("%d of %d of %s are good, not a majority", ok, of, n.Kind)
		} else if r := s.root(first); r != first {
			reason = fmt.Sprintf("%s %s", s.g.Name(r), s.state[r])
		}
		s.finish(t, Blocked, reason, nil)
	})
	return blocked
}

// good reports whether a needed task has a valid record. One that is not
// selected was found good before the build began.
func (s *sched) good(u graph.Task) bool {
	return !s.sel.Has(u) || s.state[u].Good() || s.state[u] == Recording
}

// root is the task whose failure keeps t from running.
func (s *sched) root(t graph.Task) graph.Task {
	if r := s.blame[t]; r >= 0 {
		return r
	}
	return t
}
