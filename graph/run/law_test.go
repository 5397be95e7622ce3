package run_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"hk/cache/fp"
	"hk/graph"
	"hk/graph/run"
)

// The laws of DESIGN §3, each against the model in world_test.go.

// disturb changes something a user, an accident or time could change.
func (s *site) disturb(t *rapid.T) {
	task := rapid.IntRange(0, max(0, s.g.Len()-1)).Draw(t, "task")
	if s.g.Len() == 0 {
		return
	}
	name := s.g.Name(graph.Task(task))
	kind := s.g.Kind(graph.Task(task)).ID()
	switch rapid.SampledFrom([]string{"config", "drift", "rebuild", "forget", "damage"}).Draw(t, "disturbance") {
	case "config":
		s.config[kind] = fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "value"))
	case "drift":
		s.real[name] = "changed by hand"
	case "rebuild":
		host := s.g.HostName(graph.Task(task))
		if host == "" {
			return
		}
		s.ids[host] += "'"
		for n := range s.real {
			if u, _ := s.g.Lookup(n); s.g.HostName(u) == host {
				delete(s.real, n)
			}
		}
	case "forget":
		delete(s.store.records, name)
	case "damage":
		if s.store.records[name] != nil {
			s.store.damaged[name] = true
		}
	}
}

// stale is the model of the decision: the tasks a build must run if nothing
// fails, in no more words than the law needs.
func (s *site) stale(verify run.Verify, forced func(string) bool) []string {
	want := s.want()
	var out []string
	for t := range graph.Task(s.g.Len()) {
		name := s.g.Name(t)
		rec := s.store.records[name]
		switch {
		case rec == nil, rec.Status != fp.Done, s.store.damaged[name],
			rec.Observed["real"] != want[name],
			verify != run.VerifyOff && s.real[name] != want[name],
			verify == run.VerifyOff && rec.Drift != "",
			forced != nil && forced(name):
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// settled checks that everything is as the model wants it.
func (s *site) settled(t tester) {
	t.Helper()
	if diff := cmp.Diff(s.want(), s.real); diff != "" {
		t.Errorf("end state (-want +got):\n%s", diff)
	}
	for name := range s.real {
		if r := s.store.records[name]; !r.Good() || r.Drift != "" {
			t.Errorf("%s has the record %+v", name, r)
		}
	}
}

// noOnce takes the mark off all kinds: forced and found wrong, such a task
// fails, which is right and not what some tests are about.
func (s *site) noOnce() {
	for i := range s.g.Kinds().Len() {
		s.g.Kinds().Kind(i).Once = false
	}
}

func (s *site) all(t tester, sum *run.Summary) {
	t.Helper()
	if !sum.OK() {
		t.Errorf("build is not complete: %+v", sum)
	}
}

func TestLawMinimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSite(drawGraph(t))
		s.all(t, s.build(t, s.options()))
		s.settled(t)
		for range rapid.IntRange(0, 3).Draw(t, "disturbances") {
			s.disturb(t)
		}
		o := s.options()
		o.Verify = run.Verify(rapid.IntRange(0, 2).Draw(t, "verify"))
		want := s.stale(o.Verify, nil)
		s.all(t, s.build(t, o))
		if diff := cmp.Diff(want, s.ran(), empty); diff != "" {
			t.Errorf("ran (-must +did):\n%s", diff)
		}
		for name, n := range s.did {
			if n != 1 {
				t.Errorf("%s ran %d times", name, n)
			}
		}
		if o.Verify != run.VerifyOff {
			s.settled(t)
		}
		writes := s.store.writes
		sum := s.build(t, s.options())
		if o.Verify != run.VerifyOff && (sum.Fresh != s.g.Len() || s.store.writes != writes) {
			t.Errorf("a build with nothing to do: %+v, %d writes", sum, s.store.writes-writes)
		}
	})
}

// empty makes an empty and a nil slice the same.
var empty = cmp.Transformer("empty", func(s []string) map[int]string {
	return maps.Collect(slices.All(s))
})

// That nothing runs before what it needs is checked at each Do (world.enter).
// Here: nothing waits for what it does not need. One task hangs, and all that
// do not need it must finish; a build that waits too long is a deadlock, which
// synctest reports.
func TestLawOrdered(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		g := drawGraph(rt)
		if g.Len() == 0 {
			return
		}
		hang := graph.Task(rapid.IntRange(0, g.Len()-1).Draw(rt, "hang"))
		shuffle := rapid.Uint64().Draw(rt, "shuffle")
		synctest.Test(t, func(t *testing.T) {
			s := newSite(g)
			one := g.NewSet()
			one.Add(hang)
			left := g.Len() - g.Down(one, -1).Len()
			free := make(chan struct{})
			if left == 0 {
				close(free)
			}
			s.hook = func(name string) {
				if name == g.Name(hang) {
					<-free
				}
			}
			o := s.options()
			o.Jobs, o.Shuffle = 1000, shuffle
			s.log.hear = func(e run.Event) {
				if f, ok := e.(run.TaskFinished); ok && f.Task != hang {
					if left--; left == 0 {
						close(free)
					}
				}
			}
			s.all(t, s.build(t, o))
			s.settled(t)
		})
	})
}

// A task whose output is the same again makes nothing below it stale: a build
// after an edit runs the edited kind's tasks and those for which an output they
// need has changed, and no others.
func TestLawEarlyCutoff(t *testing.T) {
	cut := 0
	rapid.Check(t, func(t *rapid.T) {
		s := newSite(drawGraph(t))
		s.all(t, s.build(t, s.options()))
		if s.g.Kinds().Len() == 0 {
			return
		}
		before := outputs(s.store.records)
		kind := s.g.Kinds().Kind(rapid.IntRange(0, s.g.Kinds().Len()-1).Draw(t, "kind")).ID()
		s.config[kind] = "edited"
		s.all(t, s.build(t, s.options()))
		after := outputs(s.store.records)
		for u := range graph.Task(s.g.Len()) {
			name := s.g.Name(u)
			must := s.g.Kind(u).ID() == kind
			for v, need := range s.g.Needs(u) {
				changed := before[s.g.Name(v)] != after[s.g.Name(v)]
				must = must || changed && need.Quorum == graph.All && !need.After
				if s.did[s.g.Name(v)] > 0 && !changed {
					cut++
				}
			}
			if ran := s.did[name] > 0; ran != must {
				t.Errorf("%s ran: %v, an input changed: %v", name, ran, must)
			}
		}
	})
	if cut == 0 {
		t.Errorf("no output was ever the same again: the test shows nothing")
	}
}

func outputs(records map[string]*fp.Record) map[string]fp.OutputDigest {
	out := map[string]fp.OutputDigest{}
	for name, r := range records {
		out[name] = r.Output.Digest()
	}
	return out
}

// The recipe number and each config field of a kind are inputs of exactly its
// tasks, and the reason says which changed.
func TestLawSelfTracking(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := drawKinds(t)
		for i := range kinds {
			kinds[i].Guard = ""
		}
		s := newSite(expand(t, kinds, 3))
		s.all(t, s.build(t, s.options()))
		at := rapid.IntRange(0, len(kinds)-1).Draw(t, "kind")
		id := kinds[at].ID()
		want := ""
		if rapid.Bool().Draw(t, "recipe") {
			kinds[at].Recipe = 2
			want = "recipe 1 -> 2"
		} else {
			s.config[id] = "edited"
			want = "config:" + id + " 0 -> edited"
		}
		s.g = expand(t, kinds, 3)
		s.all(t, s.build(t, s.options()))
		for name, f := range s.log.finished() {
			of := s.g.Kind(f.Task).ID() == id
			if of && (f.Status != run.Ran || f.Reason != want) {
				t.Errorf("%s: %s (%s)", name, f.Status, f.Reason)
			}
			if !of && f.Status == run.Ran && !strings.HasPrefix(f.Reason, "need:") {
				t.Errorf("%s ran: %s", name, f.Reason)
			}
		}
	})
}

func expand(t tester, kinds []graph.Kind, hosts int) *graph.Graph {
	kg, err := graph.New(kinds)
	if err != nil {
		t.Fatalf("kinds: %v", err)
	}
	var list []graph.Host
	for i := range hosts {
		list = append(list, graph.Host{Name: fmt.Sprintf("h%d", i), Roles: []string{"master", "worker"}})
	}
	g, err := kg.Expand(list)
	if err != nil {
		t.Fatalf("expand: %v", err)
	}
	return g
}

// A new machine of an old name is stale everywhere.
func TestLawIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSite(drawGraph(t))
		s.all(t, s.build(t, s.options()))
		host := rapid.SampledFrom(s.g.Hosts()).Draw(t, "host").Name
		s.ids[host] = "another machine"
		o := s.options()
		o.Verify = run.VerifyOff
		s.all(t, s.build(t, o))
		for u := range graph.Task(s.g.Len()) {
			if s.g.HostName(u) == host && s.did[s.g.Name(u)] == 0 {
				t.Errorf("%s did not run on the new machine", s.g.Name(u))
			}
		}
	})
}

// Killed anywhere and built again, the end state is that of an undisturbed
// build, and nothing that was right is made twice.
func TestLawCrashSafe(t *testing.T) {
	points := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		g := drawGraph(t)
		s := newSite(g)
		if rapid.Bool().Draw(t, "begin built") {
			s.all(t, s.build(t, s.options()))
			s.disturb(t)
		}
		calm := s.fork()
		calm.all(t, calm.build(t, calm.options()))
		for range rapid.IntRange(1, 3).Draw(t, "kills") {
			s.killed(t, rapid.IntRange(0, 4*g.Len()+4).Draw(t, "after"), points)
		}
		made := maps.Clone(s.made)
		right := map[string]bool{}
		for name, v := range s.want() {
			right[name] = s.real[name] == v
		}
		s.all(t, s.build(t, s.options()))
		s.settled(t)
		if diff := cmp.Diff(calm.store.answers(), s.store.answers()); diff != "" {
			t.Errorf("records (-undisturbed +killed):\n%s", diff)
		}
		for name := range right {
			if right[name] && s.made[name] != made[name] {
				t.Errorf("%s was right and is made again", name)
			}
		}
		if sum := s.build(t, s.options()); sum.Fresh != s.g.Len() {
			t.Errorf("not converged: %+v, ran %v", sum, s.ran())
		}
	})
	for _, kind := range []string{"do before", "do after", "commit before", "commit after"} {
		t.Logf("%s: %d points passed", kind, points[kind])
		if points[kind] == 0 {
			t.Errorf("no build was ever at %q", kind)
		}
	}
}

// fork is a copy of everything that outlives a process.
func (s *site) fork() *site {
	c := newSite(s.g)
	c.config, c.ids, c.real, c.made = maps.Clone(s.config), maps.Clone(s.ids), maps.Clone(s.real), maps.Clone(s.made)
	c.store.records, c.store.damaged = maps.Clone(s.store.records), maps.Clone(s.store.damaged)
	return c
}

// killed runs a build whose process ends at the n-th point. Everything it does
// after that happens to nobody.
func (s *site) killed(t *rapid.T, n int, points map[string]int) {
	k := &killer{left: n, kinds: points}
	s.kill, s.store.kill = k, k
	o := s.options()
	o.Jobs = rapid.SampledFrom([]int{1, 3}).Draw(t, "jobs")
	s.newBuild()
	if _, err := run.Build(context.Background(), o); err != nil {
		t.Fatalf("build: %v", err)
	}
	for _, w := range s.wrong {
		t.Errorf("%s", w)
	}
	s.kill, s.store.kill = nil, nil
}

// Without its cache a build makes the same state again, and makes nothing anew
// that is there already.
func TestLawDisposable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSite(drawGraph(t))
		s.all(t, s.build(t, s.options()))
		before, made := s.store.answers(), maps.Clone(s.made)
		clear(s.store.records)
		s.all(t, s.build(t, s.options()))
		s.settled(t)
		if diff := cmp.Diff(before, s.store.answers()); diff != "" {
			t.Errorf("records (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(made, s.made); diff != "" {
			t.Errorf("made (-before +after):\n%s", diff)
		}
	})
}

// Only success makes a record: what fails has none that answers anything, what
// needs it is blocked, everything else is done; and the causes are named.
func TestLawHonest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSite(drawGraph(t))
		if rapid.Bool().Draw(t, "begin built") {
			s.all(t, s.build(t, s.options()))
			for kind := range s.config {
				s.config[kind] = "edited"
			}
		}
		for u := range graph.Task(s.g.Len()) {
			switch rapid.IntRange(0, 5).Draw(t, "fate") {
			case 0:
				s.fail[s.g.Name(u)] = errors.New("does not verify")
			case 1:
				s.flaky[s.g.Name(u)] = rapid.IntRange(1, 4).Draw(t, "times")
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "down") == 0 {
			s.down[s.g.Hosts()[0].Name] = true
		}
		sum := s.build(t, s.options())
		s.honest(t, sum)
		clear(s.fail)
		clear(s.flaky)
		clear(s.down)
		s.all(t, s.build(t, s.options()))
		s.settled(t)
	})
}

func (s *site) honest(t tester, sum *run.Summary) {
	t.Helper()
	failed := map[string]int{}
	for _, c := range sum.Causes {
		if c.Err != nil {
			failed[c.Name] = c.Blocked
		}
	}
	blocked := 0
	for name, f := range s.log.finished() {
		r := s.store.records[name]
		if f.Status.Good() && !r.Good() || f.Status == run.Failed && r.Good() {
			t.Errorf("%s is %s and has the record %+v", name, f.Status, r)
		}
		blocked += failed[name]
		if _, cause := failed[name]; (f.Status == run.Failed) != cause {
			t.Errorf("%s is %s, named as a cause: %v", name, f.Status, cause)
		}
		if f.Status == run.Blocked != s.mustBlock(f.Task) {
			t.Errorf("%s is %s (%s), something it requires is not good: %v", name, f.Status, f.Reason, s.mustBlock(f.Task))
		}
	}
	if blocked != sum.Blocked {
		t.Errorf("%d tasks are blocked, the causes account for %d", sum.Blocked, blocked)
	}
}

// mustBlock is the rule of quorums, from the final states.
func (s *site) mustBlock(t graph.Task) bool {
	kind := s.g.Kind(t)
	good, of := make([]int, len(kind.Needs)), make([]int, len(kind.Needs))
	fin := s.log.finished()
	for _, e := range s.g.NeedEdges(t) {
		of[e.Need]++
		if fin[s.g.Name(e.Task)].Status.Good() {
			good[e.Need]++
		}
	}
	for i, n := range kind.Needs {
		if !n.After && (n.Quorum == graph.All && good[i] < of[i] || n.Quorum == graph.Majority && of[i] > 0 && 2*good[i] <= of[i]) {
			return true
		}
	}
	return false
}

// A plan writes nothing and does nothing.
func TestLawQuiet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSite(drawGraph(t))
		if rapid.Bool().Draw(t, "begin built") {
			s.all(t, s.build(t, s.options()))
			s.disturb(t)
		}
		before := s.fork()
		commits, calls := s.store.commits, s.calls
		o := s.options()
		o.Verify = run.Verify(rapid.IntRange(0, 2).Draw(t, "verify"))
		if _, err := run.MakePlan(context.Background(), o); err != nil {
			t.Fatalf("plan: %v", err)
		}
		if s.store.commits != commits || s.calls != calls || len(s.log.events) > 0 {
			t.Errorf("a plan made %d commits, %d calls, %d events", s.store.commits-commits, s.calls-calls, len(s.log.events))
		}
		if diff := cmp.Diff(before.store.answers(), s.store.answers()); diff != "" {
			t.Errorf("records:\n%s", diff)
		}
	})
}

// Force runs the named tasks and nothing else, unless an output changed.
func TestLawForcedIsNarrow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSite(drawGraph(t))
		s.all(t, s.build(t, s.options()))
		if s.g.Len() == 0 {
			return
		}
		made := maps.Clone(s.made)
		o := s.options()
		k := s.g.Kind(graph.Task(rapid.IntRange(0, s.g.Len()-1).Draw(t, "task")))
		sel, err := s.g.Select([]graph.Target{{Phase: k.Phase, Part: k.Part}}, graph.SelectOptions{})
		if err != nil {
			t.Fatalf("select: %v", err)
		}
		o.Force, o.Selection = true, sel
		sum := s.build(t, o)
		s.all(t, sum)
		if sum.Selected != sel.Selected.Len() {
			t.Errorf("%d of %d selected", sum.Selected, sel.Selected.Len())
		}
		for name, f := range s.log.finished() {
			if named := sel.Named.Has(f.Task); named != (f.Status == run.Ran) || named && f.Reason != "forced" {
				t.Errorf("%s: %s (%s)", name, f.Status, f.Reason)
			}
		}
		if diff := cmp.Diff(made, s.made); diff != "" {
			t.Errorf("force made anew what was there (-before +after):\n%s", diff)
		}
	})
}

// What is kept is not run and not recorded; what needs it uses what it declared
// last; what cannot do without a record is refused by name before anything runs.
func TestLawSparedIsSafe(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSite(drawGraph(t))
		s.noOnce()
		if rapid.IntRange(0, 3).Draw(t, "begin built") > 0 {
			s.all(t, s.build(t, s.options()))
		}
		for range rapid.IntRange(0, 2).Draw(t, "disturbances") {
			s.disturb(t)
		}
		before := s.fork()
		o := s.options()
		o.Verify = run.Verify(rapid.IntRange(0, 1).Draw(t, "verify"))
		o.Keep = []run.Keep{{Asset: "data", Flag: "--keep-data"}}
		o.Force = rapid.Bool().Draw(t, "force")
		s.newBuild()
		sum, err := run.Build(context.Background(), o)
		for _, w := range s.wrong {
			t.Errorf("%s", w)
		}
		if refused, ok := errors.AsType[*run.RefusedError](err); ok {
			if s.calls > 0 || !cmp.Equal(before.store.answers(), s.store.answers()) {
				t.Errorf("refused (%v) after %d calls", err, s.calls)
			}
			if u, _ := s.g.Lookup(refused.Kept); s.g.Kind(u).Asset != "data" || s.usable(refused.Kept, o.Verify) {
				t.Errorf("refused without need: %v", err)
			}
			return
		}
		if err != nil {
			t.Fatalf("build: %v", err)
		}
		s.all(t, sum)
		for u := range graph.Task(s.g.Len()) {
			name := s.g.Name(u)
			if s.g.Kind(u).Asset != "data" {
				continue
			}
			if s.did[name] > 0 || s.real[name] != before.real[name] || !cmp.Equal(s.store.records[name], before.store.records[name]) {
				t.Errorf("%s is kept and was touched", name)
			}
		}
	})
}

// usable is the model of a kept task that others may go on with.
func (s *site) usable(name string, verify run.Verify) bool {
	r := s.store.records[name]
	if !r.Good() || s.store.damaged[name] {
		return false
	}
	if verify == run.VerifyOff {
		return r.Drift == ""
	}
	return s.real[name] == r.Observed["real"]
}

// However many jobs and in whatever order: the same end state; and the same
// plan, word for word.
func TestLawDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSite(drawGraph(t))
		if rapid.Bool().Draw(t, "begin built") {
			s.all(t, s.build(t, s.options()))
			s.disturb(t)
			s.disturb(t)
		}
		plans := map[string]bool{}
		var first *site
		for _, jobs := range []int{1, 16} {
			for _, seed := range []uint64{0, rapid.Uint64().Draw(t, "seed")} {
				c := s.fork()
				o := c.options()
				plans[c.plan(t, o)] = true
				o.Jobs, o.Shuffle, o.Guarded = jobs, seed, rapid.Bool().Draw(t, "guarded")
				o.Pools = map[string]int{"narrow": 1}
				c.all(t, c.build(t, o))
				if first == nil {
					first = c
				}
				if diff := cmp.Diff(first.store.answers(), c.store.answers()); diff != "" {
					t.Errorf("jobs %d, seed %d (-jobs 1 +now):\n%s", jobs, seed, diff)
				}
				if diff := cmp.Diff(first.ran(), c.ran(), empty); diff != "" {
					t.Errorf("jobs %d, seed %d ran (-jobs 1 +now):\n%s", jobs, seed, diff)
				}
			}
		}
		if len(plans) != 1 {
			t.Errorf("%d different plans", len(plans))
		}
	})
}

func (s *site) plan(t tester, o run.Options) string {
	t.Helper()
	s.planning = true
	defer func() { s.planning = false }()
	p, err := run.MakePlan(context.Background(), o)
	if err != nil {
		t.Fatalf("plan: %v", err)
	}
	var b strings.Builder
	for u := range graph.Task(s.g.Len()) {
		fmt.Fprintln(&b, s.g.Name(u), p.Verdicts[u], p.Reason(u))
	}
	return b.String()
}

// What a plan says will run does run, what runs was said to run or maybe, and a
// maybe that runs names what it needs whose output changed.
func TestPlanPredictsBuild(t *testing.T) {
	maybes := 0
	rapid.Check(t, func(t *rapid.T) {
		s := newSite(drawGraph(t))
		s.noOnce()
		if rapid.IntRange(0, 4).Draw(t, "begin built") > 0 {
			s.all(t, s.build(t, s.options()))
		}
		for range rapid.IntRange(0, 3).Draw(t, "disturbances") {
			s.disturb(t)
		}
		if rapid.Bool().Draw(t, "partly built") { // so that records rest on outputs that are no more
			o := s.options()
			k := s.g.Kinds().Kind(rapid.IntRange(0, s.g.Kinds().Len()-1).Draw(t, "kind"))
			if sel, err := s.g.Select([]graph.Target{{Phase: k.Phase}}, graph.SelectOptions{}); err == nil {
				o.Selection = sel
				s.all(t, s.build(t, o))
				s.disturb(t)
			}
		}
		o := s.options()
		o.Verify = run.Verify(rapid.IntRange(0, 1).Draw(t, "verify"))
		o.Force = rapid.IntRange(0, 3).Draw(t, "force") == 0
		if o.Force && s.g.Len() > 0 {
			o.Selection.Named = s.g.NewSet()
			o.Selection.Named.Add(graph.Task(rapid.IntRange(0, s.g.Len()-1).Draw(t, "forced")))
		}
		s.planning = true
		p, err := run.MakePlan(context.Background(), o)
		s.planning = false
		if err != nil {
			t.Fatalf("plan: %v", err)
		}
		s.all(t, s.build(t, o))
		for name, f := range s.log.finished() {
			ran := f.Status == run.Ran
			switch v := p.Verdicts[f.Task]; {
			case v == run.Run && !ran:
				t.Errorf("%s: plan run (%s), build %s (%s)", name, p.Reason(f.Task), f.Status, f.Reason)
			case v == run.Maybe && ran:
				maybes++
				if !strings.HasPrefix(f.Reason, "need:") || !strings.Contains(f.Reason, "output changed") {
					t.Errorf("%s: maybe, ran because %s", name, f.Reason)
				}
				if len(p.Because(f.Task)) == 0 {
					t.Errorf("%s: maybe because of nothing", name)
				}
			case v != run.Run && v != run.Maybe && ran:
				t.Errorf("%s: plan %s, build ran (%s)", name, v, f.Reason)
			}
		}
	})
	if maybes == 0 {
		t.Errorf("no maybe ever ran: the test shows nothing")
	}
}
