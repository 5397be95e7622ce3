package run_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"hk/cache/fp"
	"hk/graph"
	"hk/graph/run"
)

// etcd is a small cluster with a guarded sequence: a cluster task, on each
// master two guarded ones, then a cluster task, then one on each worker.
func etcd(t tester, edit func(kinds []graph.Kind)) *site {
	kinds := []graph.Kind{
		{Phase: "etcd", Part: "ca", Recipe: 1, Asset: "ca", Once: true},
		{
			Phase: "etcd", Part: "data", Scope: graph.OnHost, Roles: []string{"master"}, Recipe: 1, Guard: "member", Asset: "data",
			Needs: []graph.Need{{Kind: "etcd.ca", Via: graph.ToCluster}},
		},
		{
			Phase: "etcd", Part: "service", Scope: graph.OnHost, Roles: []string{"master"}, Recipe: 1, Guard: "member",
			Needs: []graph.Need{{Kind: "etcd.data"}},
		},
		{
			Phase: "etcd", Part: "health", Recipe: 1,
			Needs: []graph.Need{{Kind: "etcd.service", Via: graph.FromAll, Quorum: graph.Majority}},
		},
		{
			Phase: "join", Part: "join", Scope: graph.OnHost, Roles: []string{"worker"}, Recipe: 1,
			Needs: []graph.Need{{Kind: "etcd.health", Via: graph.ToCluster}},
		},
	}
	if edit != nil {
		edit(kinds)
	}
	kg, err := graph.New(kinds)
	if err != nil {
		t.Fatalf("kinds: %v", err)
	}
	var hosts []graph.Host
	for i := range 3 {
		hosts = append(hosts, graph.Host{Name: fmt.Sprintf("master-%d", i+1), Roles: []string{"master"}})
	}
	for i := range 2 {
		hosts = append(hosts, graph.Host{Name: fmt.Sprintf("worker-%d", i+1), Roles: []string{"worker"}})
	}
	g, err := kg.Expand(hosts)
	if err != nil {
		t.Fatalf("expand: %v", err)
	}
	return newSite(g)
}

func (s *site) selected(t tester, only bool, targets ...graph.Target) graph.Selection {
	t.Helper()
	sel, err := s.g.Select(targets, graph.SelectOptions{Only: only})
	if err != nil {
		t.Fatalf("select: %v", err)
	}
	return sel
}

// statuses is what became of each task, and why.
func (s *site) statuses() map[string]string {
	out := map[string]string{}
	for name, f := range s.log.finished() {
		out[name] = f.Status.String() + ": " + f.Reason
		if f.Error != "" {
			out[name] += ": " + f.Error
		}
	}
	return out
}

func same(t tester, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestGuardedSequenceStopsAtTheFirstFailure(t *testing.T) {
	s := etcd(t, nil)
	s.all(t, s.build(t, s.options()))
	for _, r := range s.store.records {
		r.Took = time.Second // so that the hosts go in their order
	}
	s.config["etcd.data"], s.config["etcd.service"] = "new", "new"
	s.fail["etcd.service/master-1"] = errors.New("no quorum")
	o := s.options()
	o.Guarded, o.Jobs = true, 16
	s.build(t, o)
	stopped := "member stopped after etcd.service/master-1 did not succeed"
	want := map[string]string{
		"etcd.ca":               "fresh: same inputs",
		"etcd.data/master-1":    "ran: config:etcd.data 0 -> new",
		"etcd.data/master-2":    "blocked: " + stopped,
		"etcd.data/master-3":    "blocked: " + stopped,
		"etcd.service/master-1": s.statuses()["etcd.service/master-1"],
		"etcd.service/master-2": "blocked: etcd.service/master-1 failed",
		"etcd.service/master-3": "blocked: etcd.service/master-1 failed",
		"etcd.health":           "blocked: 0 of 3 of etcd.service are good, not a majority",
		"join.join/worker-1":    "blocked: etcd.service/master-1 failed",
		"join.join/worker-2":    "blocked: etcd.service/master-1 failed",
	}
	same(t, want, s.statuses())
	if f := s.log.finished()["etcd.service/master-1"]; f.Status != run.Failed || f.Class != "kube" || f.Error != "no quorum" {
		t.Errorf("%+v", f)
	}
}

func TestGuardedSequenceGoesHostByHost(t *testing.T) {
	s := etcd(t, nil)
	s.all(t, s.build(t, s.options()))
	s.config["etcd.data"], s.config["etcd.service"] = "new", "new"
	o := s.options()
	o.Guarded, o.Jobs = true, 16
	var order []string
	var mu sync.Mutex
	s.hook = func(name string) {
		mu.Lock()
		defer mu.Unlock()
		order = append(order, name[strings.LastIndexByte(name, '/')+1:])
	}
	s.all(t, s.build(t, o))
	if got := slices.Compact(order); len(got) != 3 {
		t.Errorf("hosts in turn: %v", order)
	}
}

// Before the cluster is established all members start together; a sequence
// that went one at a time would deadlock here.
func TestUnguardedAtBootstrap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := etcd(t, nil)
		var all sync.WaitGroup
		all.Add(3)
		s.hook = func(name string) {
			if strings.HasPrefix(name, "etcd.service") {
				all.Done()
				all.Wait()
			}
		}
		s.all(t, s.build(t, s.options()))
	})
}

func TestPoolWidths(t *testing.T) {
	s := etcd(t, func(k []graph.Kind) {
		for i := range k {
			k[i].Guard = ""
		}
		k[2].Pool = "two"
	})
	now, most := map[string]int{}, map[string]int{}
	var mu sync.Mutex
	s.hook = func(name string) {
		kind := name[:strings.IndexAny(name+"/", "/")]
		mu.Lock()
		now[kind]++
		most[kind] = max(most[kind], now[kind])
		mu.Unlock()
		time.Sleep(time.Millisecond) //nolint:forbidigo // long enough that others could overlap; nothing depends on how long
		mu.Lock()
		now[kind]--
		mu.Unlock()
	}
	o := s.options()
	o.Jobs = 16
	o.Pools = map[string]int{"two": 2, "host:": 1}
	o.PoolsOf = func(u graph.Task) []string {
		if s.g.Kind(u).Part == "join" { // all of them in one
			return []string{"host:any"}
		}
		return []string{"host:" + s.g.HostName(u)}
	}
	s.all(t, s.build(t, o))
	if most["etcd.service"] > 2 || most["join.join"] > 1 {
		t.Errorf("at a time: %v", most)
	}
}

func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := etcd(t, nil)
		s.flaky["etcd.ca"] = 2
		s.flaky["etcd.health"] = 9
		o := s.options()
		o.Clock = systemClock{}
		begin := time.Now()
		sum := s.build(t, o)
		if waited := time.Since(begin); waited != 6*time.Second { // twice 1 s + 2 s
			t.Errorf("waited %v", waited)
		}
		var got []string
		for _, e := range s.log.events {
			if r, ok := e.(run.TaskRetry); ok {
				got = append(got, fmt.Sprintf("%s %d %s %s %v", r.Name, r.Attempt, r.Class, r.Error, r.Wait))
			}
		}
		same(t, []string{
			"etcd.ca 1 cloud try again 1s", "etcd.ca 2 cloud try again 2s",
			"etcd.health 1 cloud try again 1s", "etcd.health 2 cloud try again 2s",
		}, got)
		if f := s.log.finished()["etcd.health"]; f.Status != run.Failed || f.Attempt != 3 {
			t.Errorf("%+v", f)
		}
		if r := s.store.get("etcd.health"); r.Status != fp.Failed || r.Error != "try again" || r.Attempt != 3 {
			t.Errorf("%+v", r)
		}
		if sum.Failed != 1 || sum.Blocked != 2 || sum.Causes[0].Blocked != 2 || sum.Causes[0].Class != "cloud" {
			t.Errorf("%+v", sum)
		}
	})
}

type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }

// First interrupt: what runs ends well, nothing else starts.
func TestFirstInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := etcd(t, nil)
		stop := make(chan struct{})
		s.hook = func(name string) {
			if name == "etcd.data/master-2" {
				stop <- struct{}{}
				time.Sleep(time.Second) //nolint:forbidigo // in a synctest bubble
			}
		}
		o := s.options()
		o.Clock, o.Interrupt, o.Jobs = systemClock{}, stop, 1
		sum := s.build(t, o)
		if sum.Interrupted != 1 || sum.Failed != 0 || sum.Err != nil || sum.OK() {
			t.Errorf("%+v", sum)
		}
		if got := s.statuses()["etcd.data/master-2"]; got != "ran: no record" {
			t.Errorf("what was running: %s", got)
		}
		if got := s.statuses()["etcd.health"]; got != "blocked: interrupted" {
			t.Errorf("what was not: %s", got)
		}
		for name, r := range s.store.records {
			if r.Status != fp.Done {
				t.Errorf("%s has status %d", name, r.Status)
			}
		}
		s.hook = nil
		s.all(t, s.build(t, s.options()))
		s.settled(t)
	})
}

// Second interrupt: what runs is cut off and found interrupted next time.
func TestSecondInterrupt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := etcd(t, nil)
		stop := make(chan struct{})
		w := &cutOff{world: s.world, hang: "etcd.service/master-2", stop: stop}
		o := s.options()
		o.Work, o.Clock, o.Interrupt, o.Jobs = w, systemClock{}, stop, 1
		sum := s.build(t, o)
		if sum.Interrupted != 2 || sum.Failed != 1 || sum.Causes[0].Message != "interrupted" || sum.Causes[0].Class != "ssh" {
			t.Errorf("%+v", sum)
		}
		if r := s.store.get("etcd.service/master-2"); r.Status != fp.Pending {
			t.Errorf("the record of what was cut off: %+v", r)
		}
		s.all(t, s.build(t, s.options()))
		if got := s.statuses()["etcd.service/master-2"]; got != "ran: interrupted" {
			t.Errorf("next build: %s", got)
		}
	})
}

// cutOff is a world in which one task hangs until its context ends.
type cutOff struct {
	*world
	hang string
	stop chan struct{}
}

func (w *cutOff) Do(ctx context.Context, t graph.Task, in run.Input, a run.Attempt) (run.Result, error) {
	if w.g.Name(t) != w.hang {
		return w.world.Do(ctx, t, in, a)
	}
	w.stop <- struct{}{}
	w.stop <- struct{}{}
	<-ctx.Done()
	return run.Result{}, context.Cause(ctx)
}

// A lost lease or a closed terminal: the context ends with its own cause.
func TestContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := etcd(t, nil)
		lost := errors.New("lease lost")
		ctx, cancel := context.WithCancelCause(context.Background())
		s.hook = func(name string) {
			if name == "etcd.ca" {
				cancel(lost)
			}
		}
		s.newBuild()
		sum, err := run.Build(ctx, s.options())
		if err != nil || !errors.Is(sum.Err, lost) || sum.Ran != 0 {
			t.Errorf("%+v, %v", sum, err)
		}
		if got := s.statuses()["etcd.health"]; got != "blocked: lease lost" {
			t.Errorf("%s", got)
		}
	})
}

func TestFailFast(t *testing.T) {
	s := etcd(t, nil)
	s.fail["etcd.data/master-1"] = errors.New("no space")
	o := s.options()
	o.FailFast, o.Jobs = true, 1
	sum := s.build(t, o)
	if sum.Failed != 1 || sum.Started != 2 {
		t.Errorf("%+v", sum)
	}
	if got := s.statuses()["etcd.data/master-2"]; got != "blocked: stopped after etcd.data/master-1 failed" {
		t.Errorf("%s", got)
	}
}

func TestOnly(t *testing.T) {
	s := etcd(t, nil)
	o := s.options()
	o.Only, o.Selection = true, s.selected(t, true, graph.Target{Phase: "join"})
	_, err := run.Build(context.Background(), o)
	var stale *run.StaleNeedError
	if !errors.As(err, &stale) || err.Error() != "join.join/worker-1 needs etcd.health, which is stale (no record)" {
		t.Errorf("nothing built: %v", err)
	}
	if _, err = run.MakePlan(context.Background(), o); !errors.As(err, &stale) {
		t.Errorf("plan: %v", err)
	}
	s.all(t, s.build(t, s.options()))
	s.config["join.join"], s.config["etcd.health"] = "new", "0"
	o = s.options()
	o.Only, o.Selection = true, s.selected(t, true, graph.Target{Phase: "join", Host: "worker-2"})
	sum := s.build(t, o)
	if sum.Selected != 1 || sum.Ran != 1 {
		t.Errorf("%+v", sum)
	}
	s.real["etcd.service/master-1"] = "changed"
	o = s.options()
	o.Only, o.Selection = true, s.selected(t, true, graph.Target{Phase: "etcd", Part: "health"})
	s.all(t, s.build(t, o)) // a majority is fresh
	s.real["etcd.service/master-2"] = "changed"
	_, err = run.Build(context.Background(), s.only(t, "etcd", "health"))
	if want := "etcd.health needs etcd.service/master-1, which is stale (drift: /etc/service changed)"; err == nil || err.Error() != want {
		t.Errorf("no majority is fresh: %v, want %s", err, want)
	}
}

func (s *site) only(t tester, phase, part string) run.Options {
	o := s.options()
	o.Only, o.Selection = true, s.selected(t, true, graph.Target{Phase: phase, Part: part})
	return o
}

func TestKeep(t *testing.T) {
	s := etcd(t, nil)
	keep := []run.Keep{{Phase: "etcd", Asset: "data", Flag: "--keep-data"}}
	o := s.options()
	o.Keep = keep
	_, err := run.Build(context.Background(), o)
	want := "etcd.data/master-1 is kept by --keep-data but cannot be used (no record); it is needed by etcd.service/master-1"
	if err == nil || err.Error() != want {
		t.Errorf("nothing built: %v", err)
	}
	s.all(t, s.build(t, s.options()))
	s.config["etcd.data"] = "new"
	o = s.options()
	o.Keep, o.Force, o.Selection = keep, true, s.selected(t, false, graph.Target{Phase: "etcd"})
	s.all(t, s.build(t, o))
	if got := s.statuses()["etcd.data/master-1"]; got != "spared: spared: would run because config:etcd.data 0 -> new" {
		t.Errorf("%s", got)
	}
	if got := s.statuses()["etcd.service/master-1"]; got != "ran: forced" {
		t.Errorf("%s", got)
	}
	s.real["etcd.data/master-3"] = "gone"
	o.Keep = keep
	_, err = run.Build(context.Background(), o)
	var refused *run.RefusedError
	if !errors.As(err, &refused) || refused.Kept != "etcd.data/master-3" || refused.Reason != "drift: /etc/data changed" {
		t.Errorf("changed on disk: %v", err)
	}
	o.Keep = []run.Keep{{Phase: "masters", Asset: "data", Flag: "--keep-data"}}
	o.Force = false
	if sum := s.build(t, o); sum.Spared != 0 {
		t.Errorf("an asset of another phase: %+v", sum)
	}
}

// What is made once is verified when forced, counts as run, and is never made
// again; killed in between, its record is as good as before.
func TestForcedOnce(t *testing.T) {
	s := etcd(t, nil)
	s.all(t, s.build(t, s.options()))
	o := s.options()
	o.Force, o.Selection = true, s.selected(t, false, graph.Target{Phase: "etcd", Part: "ca"})
	pending := false
	s.hook = func(string) { pending = s.store.get("etcd.ca").Status == fp.Pending }
	if sum := s.build(t, o); sum.Ran != 1 || pending || s.made["etcd.ca"] != 1 {
		t.Errorf("%+v, pending %v, made %d times", sum, pending, s.made["etcd.ca"])
	}
	s.real["etcd.ca"] = "lost"
	s.hook = nil
	o.Sink = nil
	if sum := s.build(t, o); sum.Failed != 1 || s.real["etcd.ca"] != "lost" {
		t.Errorf("%+v: it was made again", sum)
	}
}

// Adopt: everything is verified, nothing is made, what is right gets a record.
func TestVerifyOnly(t *testing.T) {
	s := etcd(t, nil)
	s.all(t, s.build(t, s.options()))
	clear(s.store.records)
	s.real["join.join/worker-1"] = "foreign"
	o := s.options()
	o.VerifyOnly = true
	sum := s.build(t, o)
	if sum.Ran != s.g.Len()-1 || sum.Failed != 1 || s.real["join.join/worker-1"] != "foreign" {
		t.Errorf("%+v", sum)
	}
}

func TestUnreachableHost(t *testing.T) {
	s := etcd(t, nil)
	s.all(t, s.build(t, s.options()))
	s.down["worker-2"] = true
	sum := s.build(t, s.options())
	if sum.Unverified != 1 || sum.Fresh != s.g.Len()-1 || sum.OK() || len(sum.Causes) != 1 {
		t.Fatalf("%+v", sum)
	}
	c := sum.Causes[0]
	c.Task = 0
	same(t, run.Cause{Name: "join.join/worker-2", Host: "worker-2", Class: "ssh", Message: "worker-2 does not answer", Tasks: 1}, c)
	s.down["master-3"] = true
	s.config["etcd.health"] = "new"
	sum = s.build(t, s.options())
	if sum.Unverified != 2 || sum.Ran != 2 || sum.Failed != 1 { // worker-2's join is stale now
		t.Errorf("%+v", sum)
	}
	if got := s.statuses()["etcd.health"]; got != "ran: config:etcd.health 0 -> new" {
		t.Errorf("%s", got)
	}
	delete(s.down, "master-3")
	delete(s.down, "worker-2")
	s.all(t, s.build(t, s.options()))
	s.settled(t)
}

// A difference once seen is written down, so that not looking cannot hide it;
// seen to be gone, it is forgotten.
func TestDriftIsRemembered(t *testing.T) {
	s := etcd(t, nil)
	s.all(t, s.build(t, s.options()))
	right := s.real["join.join/worker-1"]
	s.real["join.join/worker-1"] = "changed"
	s.fail["join.join/worker-1"] = errors.New("no")
	s.build(t, s.options())
	if r := s.store.get("join.join/worker-1"); r.Status != fp.Failed || r.Drift != "/etc/join changed" {
		t.Errorf("%+v", r)
	}
	clear(s.fail)
	// Seen, and the build died before it ran.
	r := *s.store.get("join.join/worker-1")
	r.Status = fp.Done
	s.store.records["join.join/worker-1"] = &r
	o := s.options()
	o.Verify = run.VerifyOff
	p, err := run.MakePlan(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	u, _ := s.g.Lookup("join.join/worker-1")
	if p.Verdicts[u] != run.Run || p.Reason(u) != "drift: /etc/join changed" {
		t.Errorf("plan without looking: %s (%s)", p.Verdicts[u], p.Reason(u))
	}
	s.real["join.join/worker-1"] = right
	if sum := s.build(t, s.options()); sum.Fresh != s.g.Len() {
		t.Errorf("put right by hand: %+v, %v", sum, s.statuses())
	}
	if r := s.store.get("join.join/worker-1"); r.Drift != "" {
		t.Errorf("put right by hand: %+v", r)
	}
}

// Without looking nothing is asked of the world and nothing is written.
func TestNoOpWithoutLooking(t *testing.T) {
	s := etcd(t, nil)
	s.all(t, s.build(t, s.options()))
	w := &noLook{world: s.world}
	o := s.options()
	o.Verify, o.Work, o.FreshEvents = run.VerifyOff, w, false
	commits := s.store.commits
	sum := s.build(t, o)
	if sum.Fresh != s.g.Len() || w.looks > 0 || s.calls > 0 || s.store.commits != commits {
		t.Errorf("%+v, %d looks, %d calls", sum, w.looks, s.calls)
	}
	for _, e := range s.log.events {
		if _, ok := e.(run.Progress); !ok {
			t.Errorf("event %+v", e)
		}
	}
}

type noLook struct {
	*world
	looks int
}

func (w *noLook) Look(context.Context, graph.Task, *fp.Record) (run.Look, error) {
	w.looks++
	return run.Look{}, nil
}

// The record of a task and the announcements of those it frees are one commit.
func TestDoneAndPendingShareACommit(t *testing.T) {
	s := etcd(t, nil)
	var batches [][]string
	o := s.options()
	o.Recorder = &watched{memory: s.store, each: func(c []fp.Change) {
		var names []string
		for _, x := range c {
			names = append(names, fmt.Sprint(x.Name, " ", x.Record.Status))
		}
		batches = append(batches, names)
	}}
	s.all(t, s.build(t, o))
	found := false
	for _, b := range batches {
		found = found || slices.Equal(b, []string{
			"etcd.ca 2", "etcd.data/master-1 1", "etcd.data/master-2 1", "etcd.data/master-3 1",
		})
	}
	if !found {
		t.Errorf("commits: %q", batches)
	}
}

type watched struct {
	*memory
	each func([]fp.Change)
}

func (w *watched) Commit(c []fp.Change, done func(error)) {
	w.each(c)
	w.memory.Commit(c, done)
}

// A full disk ends the build: nothing starts without its announcement.
func TestStoreRefuses(t *testing.T) {
	s := etcd(t, nil)
	full := errors.New("no space left")
	s.store.refuse = full
	sum := s.build(t, s.options())
	if !errors.Is(sum.Err, full) || s.calls != 0 || sum.Blocked != s.g.Len() {
		t.Errorf("%+v after %d calls", sum, s.calls)
	}
	s = etcd(t, nil)
	s.hook = func(name string) {
		if name == "etcd.ca" {
			s.store.mu.Lock()
			s.store.refuse = full
			s.store.mu.Unlock()
		}
	}
	sum = s.build(t, s.options())
	if !errors.Is(sum.Err, full) || sum.Failed != 1 || sum.Ran != 0 {
		t.Errorf("%+v", sum)
	}
	s.store.refuse, s.hook = nil, nil
	s.all(t, s.build(t, s.options()))
	s.settled(t)
}

// One task's panic is its own failure.
func TestPanics(t *testing.T) {
	s := etcd(t, nil)
	s.hook = func(name string) {
		if name == "etcd.service/master-2" {
			panic("oops")
		}
	}
	sum := s.build(t, s.options())
	if sum.Failed != 1 || sum.Ran != s.g.Len()-1 {
		t.Errorf("%+v", sum)
	}
	f := s.log.finished()["etcd.service/master-2"]
	var stack interface{ Stack() []byte }
	if f.Class != "bug" || f.Error != "bug: panic in etcd.service/master-2: oops" || !errors.As(f.Err, &stack) {
		t.Errorf("%+v", f)
	}
	s = etcd(t, nil)
	o := s.options()
	o.Work = &panicky{s.world}
	s.build(t, o)
	if got := s.statuses()["join.join/worker-1"]; !strings.HasPrefix(got, "failed: : inputs: bug: panic in inputs of join.join/worker-1: bug: join.join/worker-1 asks for the output of etcd.ca") {
		t.Errorf("%s", got)
	}
}

// panicky asks for what it does not need.
type panicky struct{ *world }

func (w *panicky) Input(t graph.Task, up run.Upstream) (run.Input, error) {
	if w.g.Kind(t).Part == "join" {
		ca, _ := w.g.Lookup("etcd.ca")
		up(ca)
	}
	return w.world.Input(t, up)
}

// Most urgent first: who has most behind it, by what tasks took before.
func TestOrderByCriticalPath(t *testing.T) {
	kinds := []graph.Kind{
		{Phase: "p", Part: "a", Recipe: 1},
		{Phase: "p", Part: "b", Recipe: 1},
		{Phase: "p", Part: "c", Recipe: 1, Needs: []graph.Need{{Kind: "p.b", Via: graph.ToCluster}}},
	}
	s := newSite(expand(t, kinds, 1))
	var order []string
	s.hook = func(name string) { order = append(order, name) }
	o := s.options()
	o.Jobs = 1
	s.all(t, s.build(t, o))
	same(t, []string{"p.b", "p.a", "p.c"}, order)
	s.store.get("p.a").Took = time.Hour
	for kind := range s.config {
		s.config[kind] = "new"
	}
	order = nil
	s.all(t, s.build(t, o))
	same(t, []string{"p.a", "p.b", "p.c"}, order)
}

func TestCriticalPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := etcd(t, nil)
		took := map[string]int{ // seconds
			"etcd.ca": 1, "etcd.data/master-2": 5, "etcd.data/master-1": 2, "etcd.service/master-1": 7, "etcd.health": 1, "join.join/worker-2": 3,
		}
		s.hook = func(name string) { time.Sleep(time.Duration(took[name]) * time.Second) } //nolint:forbidigo // in a synctest bubble
		o := s.options()
		o.Clock, o.Jobs = systemClock{}, 16
		sum := s.build(t, o)
		var chain []string
		for _, u := range sum.Chain {
			chain = append(chain, s.g.Name(u))
		}
		same(t, []string{"etcd.ca", "etcd.data/master-1", "etcd.service/master-1", "etcd.health", "join.join/worker-2"}, chain)
		if sum.CriticalPath != 14*time.Second || sum.Wall != 14*time.Second {
			t.Errorf("critical path %v, wall %v", sum.CriticalPath, sum.Wall)
		}
	})
}

// The events of one task, with everything DESIGN §7 prints.
func TestEvents(t *testing.T) {
	s := etcd(t, nil)
	o := s.options()
	o.Selection = s.selected(t, false, graph.Target{Phase: "etcd", Part: "data", Host: "master-2"})
	o.RunID, o.Jobs = "r7", 1
	s.all(t, s.build(t, o))
	var got []string
	for _, e := range s.log.events {
		switch e := e.(type) {
		case run.TaskStarted:
			got = append(got, fmt.Sprintf("started %s %d %s", e.Name, e.Attempt, e.Reason))
		case run.TaskFinished:
			got = append(got, fmt.Sprintf("finished %s %s %q %q %s %s %d %v", e.RunID, e.Name, e.Phase, e.Host, e.Status, e.Reason, e.Attempt, e.Duration > 0))
		case run.Progress:
			got = append(got, fmt.Sprintf("progress %d/%d %d %d", e.Finished, e.Selected, e.Running, e.Waiting))
		}
	}
	same(t, []string{
		"progress 0/2 1 1", "started etcd.ca 1 no record", "progress 0/2 1 1", "progress 0/2 2 0",
		`finished r7 etcd.ca "etcd" "" ran no record 1 true`,
		"started etcd.data/master-2 1 no record", "progress 1/2 1 0",
		`finished r7 etcd.data/master-2 "etcd" "master-2" ran no record 1 true`, "progress 2/2 0 0",
	}, compact(got))
}

// compact drops progress lines that repeat what was said.
func compact(list []string) []string {
	var out []string
	for i, s := range list {
		if i == 0 || s != list[i-1] {
			out = append(out, s)
		}
	}
	return out
}

func TestPlanBecause(t *testing.T) {
	s := etcd(t, nil)
	s.all(t, s.build(t, s.options()))
	s.config["etcd.ca"] = "new"
	p, err := run.MakePlan(context.Background(), s.options())
	if err != nil {
		t.Fatal(err)
	}
	u, _ := s.g.Lookup("etcd.service/master-2")
	var chain []string
	for _, v := range p.Because(u) {
		chain = append(chain, s.g.Name(v))
	}
	same(t, []string{"etcd.data/master-2", "etcd.ca"}, chain)
	ca, _ := s.g.Lookup("etcd.ca")
	changes, err := p.Changes(context.Background(), ca)
	if err != nil || len(changes) != 1 || changes[0].String() != "config:etcd.ca 0 -> new" {
		t.Errorf("%v, %v", changes, err)
	}
	if p.Count(run.Run) != 1 || p.Count(run.Maybe) != 6 || p.Count(run.IsFresh) != 3 || p.Expected(ca) == 0 {
		t.Errorf("%s", s.plan(t, s.options()))
	}
}

// An output that is too large, or a verification that says no, makes no record.
func TestOutputTooLarge(t *testing.T) {
	s := etcd(t, nil)
	o := s.options()
	o.Work = &loud{s.world}
	sum := s.build(t, o)
	if sum.Failed != 1 || s.store.get("etcd.ca").Good() {
		t.Errorf("%+v, record %+v", sum, s.store.get("etcd.ca"))
	}
}

// loud declares more than an output may hold.
type loud struct{ *world }

func (w *loud) Do(ctx context.Context, t graph.Task, in run.Input, a run.Attempt) (run.Result, error) {
	res, err := w.world.Do(ctx, t, in, a)
	res.Output = fp.Output{"all": strings.Repeat("x", fp.MaxOutput)}
	return res, err
}
