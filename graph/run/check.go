package run

import (
	"context"

	"hk/cache/fp"
	"hk/graph"
)

// checkOnly refuses a build of the named tasks alone if something they need is
// stale: computed before anything runs. The named tasks count as what their
// records say, since it is they that the user wants to change.
func checkOnly(ctx context.Context, o *Options, b *book) error {
	named := o.Selection.Named
	around := b.g.Up(named, -1)
	var tasks []graph.Task
	for t := range around.All() {
		if named.Has(t) {
			around.Remove(t)
		} else if o.Verify != VerifyOff && b.kept[t].Good() {
			tasks = append(tasks, t)
		}
	}
	p := newPlan(b)
	if err := b.lookAll(ctx, tasks, p.saw); err != nil {
		return err
	}
	if err := p.fill(ctx, o, around); err != nil {
		return err
	}
	var first *StaleNeedError
	seen := map[graph.Task]bool{}
	for t := range named.All() {
		gate(b.g, t, func(u graph.Task) bool {
			switch p.Verdicts[u] {
			case NotSelected, IsFresh, IsSpared, IsUnverified:
				return true
			default:
				return false
			}
		}, func(_ *graph.Need, u graph.Task, _, _ int) {
			switch {
			case first == nil:
				first = &StaleNeedError{Task: b.g.Name(t), Need: b.g.Name(u), Reason: p.reasons[u]}
			case !seen[u]:
				first.More++
			}
			seen[u] = true
		})
	}
	if first != nil {
		return first
	}
	return nil
}

// checkKept looks at what the user keeps and refuses the build if something
// that needs it could not go on with it. With VerifyOff the record is believed.
func (s *sched) checkKept(ctx context.Context) error {
	if len(s.o.Keep) == 0 {
		return nil
	}
	var kept, look []graph.Task
	for t := range s.sel.All() {
		if spared(s.o, s.g.Kind(t)) == "" {
			continue
		}
		kept = append(kept, t)
		if s.b.kept[t].Good() && (s.o.Verify != VerifyOff || s.b.kept[t].Drifted) {
			look = append(look, t)
		}
	}
	if err := s.seeKept(ctx, look); err != nil {
		return err
	}
	for _, t := range kept {
		d := s.decideInput(t, &inputs{})
		v, reason := Decide(d)
		needed := neededBy(s.g, s.o, t)
		if v != IsBlocked || len(needed) == 0 {
			continue
		}
		e := &RefusedError{Kept: s.g.Name(t), Flag: d.Spared, Reason: reason}
		for _, u := range needed {
			e.Needed = append(e.Needed, s.g.Name(u))
		}
		return e
	}
	return nil
}

func (s *sched) seeKept(ctx context.Context, tasks []graph.Task) error {
	if s.o.Verify != VerifyOff {
		return s.b.lookAll(ctx, tasks, func(t graph.Task, rec *fp.Record, l Look) {
			if rec == nil {
				s.b.kept[t] = fp.Kept{Damaged: true}
			}
			s.keptSeen[t] = l
		})
	}
	recs, err := s.b.whole(ctx, tasks)
	if err != nil {
		return err
	}
	for i, t := range tasks {
		if recs[i] == nil {
			s.b.kept[t] = fp.Kept{Damaged: true}
			continue
		}
		s.keptSeen[t] = Look{Drift: recs[i].Drift}
	}
	return nil
}
