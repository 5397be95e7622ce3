package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"hk/cache"
	"hk/cache/fp"
	"hk/cli/ui"
	"hk/graph"
	"hk/graph/run"
	"hk/tasks"
	"hk/tasks/cluster"
	"hk/tasks/provision"
)

// builder is one `hk build`. Its steps are those of DESIGN §6, visibly apart:
//
//	open      config, lock file, records, graph      (no request, no write)
//	discover  the cloud and every host, in parallel  (reads only)
//	decide    the continuation matrix, then the plan (pure)
//	          -> nothing to run: done, nothing was written anywhere
//	write     run lock, lease, credential unit       (looks and decides again)
//	run       the engine
//	finish    journals, copies of the unit, history
type builder struct {
	a     *app
	c     *ucli.Context
	form  form
	start time.Time
	view  ui.View
	log   *runLog
	stop  *stopper
	runID string
	home  string

	wish *wish
	site *site
	sel  graph.Selection

	name    string
	uid     string
	begun   bool // build_started was told
	started bool // a task was started
	looked  bool // cloud or hosts were asked
	oldSets map[string]bool
	out     ui.BuildFinished
}

func newBuilder(a *app, c *ucli.Context, f form) *builder {
	b := &builder{a: a, c: c, form: f, start: a.now()}
	b.runID = newRunID(b.start)
	return b
}

// run builds and tells how it ended, whatever happened.
func (b *builder) run() error {
	err := b.prepare()
	if err == nil {
		ctx, stop, done := newStopper(b.c.Context, b.a.Signals, b.tell)
		defer done()
		b.stop = stop
		err = b.build(ctx)
		if cause := context.Cause(ctx); cause != nil && errors.Is(cause, errInterrupted) && !b.started {
			err = errInterrupted
		}
	}
	if b.site != nil {
		err = errors.Join(err, b.site.close())
	}
	return b.end(err)
}

// prepare reads what was typed and opens the view.
func (b *builder) prepare() error {
	o := ui.Options{Style: b.a.style(), Verbose: b.c.Bool("verbose"), Quiet: b.c.Bool("quiet"), Now: b.a.now}
	b.view = b.a.buildView(b.form, o)
	var err error
	if b.wish, err = b.a.readWish(b.c); err != nil {
		return err
	}
	b.name = b.wish.targets[0].Cluster
	if b.home, err = b.a.home(); err != nil {
		return err
	}
	b.log = newRunLog(b.home, b.runID, b.a.now)
	b.view = ui.Tee{b.view, b.log}
	return nil
}

// tell shows a line about the build as a whole.
func (b *builder) tell(line string) { b.view.Event(ui.Note{Text: line}) }

func (b *builder) build(ctx context.Context) error {
	s, err := b.a.openSite(b.c, b.name, siteOptions{
		file: true, write: true, removals: true, tell: b.tell, runID: b.runID,
		key: func(k cluster.KeyCreated) { b.view.Event(ui.KeyCreated{Name: k.Name, KeyID: k.KeyID}) },
	})
	if err != nil {
		return err
	}
	b.site = s
	if err := s.ensureLock(ctx); err != nil {
		return err
	}
	if err := s.expand(); err != nil {
		return err
	}
	if err := b.choose(); err != nil {
		return err
	}
	b.wish.ask.RunID = s.runID
	b.uid = s.sess.UID()
	if b.wish.verify == run.VerifyOff && !b.c.Bool("dry-run") {
		if done, err := b.tryOffline(ctx); done || err != nil {
			return err
		}
	}
	return b.online(ctx)
}

// choose selects the tasks of the targets.
func (b *builder) choose() error {
	var err error
	if b.sel, err = b.wish.selection(b.site); err != nil {
		return err
	}
	if b.wish.force {
		b.wish.ask.Forced = taskNames(b.site.graph, b.sel.Named)
	}
	return nil
}

// tryOffline is --verify=off with nothing to do: no network, no lock, nothing
// written.
func (b *builder) tryOffline(ctx context.Context) (done bool, err error) {
	s := b.site
	if s.sess.Unit() == nil {
		return false, nil
	}
	if ok, err := s.recordsUsable(ctx); err != nil || !ok {
		return false, err
	}
	if d := s.sess.Decide(b.wish.ask); d.Action != cluster.Keep && d.Action != cluster.Continue {
		return false, nil
	}
	plan, err := b.plan(ctx, nil)
	if err != nil {
		return false, err
	}
	if plan.Count(run.Run)+plan.Count(run.Maybe)+plan.Count(run.IsBlocked) > 0 {
		return false, nil
	}
	b.nothing(plan)
	return true, nil
}

// plan says what would run.
func (b *builder) plan(ctx context.Context, found *cluster.Found) (*run.Plan, error) {
	work, err := b.site.bind(ctx, found, b.wish.verify == run.VerifyFull)
	if err != nil {
		return nil, err
	}
	o := b.wish.options(b.site, b.sel)
	o.Work = work
	b.site.resume(ctx, &o, b.site.sess.Decide(b.wish.ask).Resume)
	return run.MakePlan(ctx, o)
}

// discovery is what was found, decided and planned.
type discovery struct {
	look     cluster.Look
	usable   bool // the store's records are of this generation
	found    *cluster.Found
	decision cluster.Decision
	plan     *run.Plan
}

// discover looks and decides; it changes nothing.
func (b *builder) discover(ctx context.Context) (*discovery, error) {
	s := b.site
	work, err := s.bind(ctx, nil, b.wish.verify == run.VerifyFull)
	if err != nil {
		return nil, err
	}
	usable, err := s.recordsUsable(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.world.ready(); err != nil {
		return nil, err
	}
	d := &discovery{look: cluster.Look{Query: work.Query, Journal: !usable}, usable: usable}
	b.looked = true
	if d.found, err = s.sess.Discover(ctx, d.look); err != nil {
		return nil, err
	}
	if err := b.sawLeaving(); err != nil {
		return nil, err
	}
	if !usable {
		if err := b.lookAgain(ctx, d); err != nil {
			return nil, err
		}
	}
	d.decision = s.sess.Decide(b.wish.ask)
	if d.decision.Action == cluster.Refuse {
		return d, d.decision.Err()
	}
	if d.plan, err = b.plan(ctx, d.found); err != nil {
		return d, err
	}
	if s.sess.Established() && d.decision.Action == cluster.Keep {
		if b.wish.ask.Recipes, err = newerTasks(ctx, d.plan); err != nil {
			return d, err
		}
		d.decision = s.sess.Decide(b.wish.ask)
	}
	return d, nil
}

// sawLeaving makes the graph anew if the cloud has other hosts to remove than
// those the credential unit knows.
func (b *builder) sawLeaving() error {
	s, was := b.site, names(b.site.leaving)
	if s.leaving = s.sess.Leaving(); slices.Equal(was, names(s.leaving)) {
		return nil
	}
	if err := s.expand(); err != nil {
		return err
	}
	return b.choose()
}

func names(leaving []tasks.Leaving) []string {
	out := make([]string, len(leaving))
	for i := range leaving {
		out[i] = leaving[i].Name
	}
	return out
}

// lookAgain is for records that came from the journals just now: what they
// observed was not asked for in the first look.
func (b *builder) lookAgain(ctx context.Context, d *discovery) error {
	s := b.site
	s.useRestored(ctx, d.found)
	if recs, ok := s.reader.(memory); !ok || len(recs) == 0 {
		return nil
	}
	work, err := s.bind(ctx, nil, b.wish.verify == run.VerifyFull)
	if err != nil {
		return err
	}
	d.look.Query = work.Query
	d.found, err = s.sess.Discover(ctx, d.look)
	return err
}

// online discovers, asks if need be, writes and runs.
func (b *builder) online(ctx context.Context) error {
	d, err := b.discover(ctx)
	if err != nil {
		return err
	}
	if b.c.Bool("dry-run") {
		return b.dryRun(ctx, d)
	}
	if len(d.decision.Diff) > 0 || d.decision.Action == cluster.Create || d.plan.Count(run.Run) > 0 {
		if err := b.gates(ctx, d); err != nil {
			return err
		}
	}
	if d.decision.Action == cluster.AskFirst {
		if err := b.consent(d); err != nil {
			return err
		}
		if d, err = b.discover(ctx); err != nil {
			return err
		}
		if err := d.decision.Err(); err != nil {
			return err
		}
	}
	idle := d.plan.Count(run.Run)+d.plan.Count(run.Maybe)+d.plan.Count(run.IsBlocked) == 0
	if idle && len(d.decision.Diff) == 0 && !b.site.sess.CopiesStale() && d.decision.Resume == nil {
		if !d.usable {
			if err := b.site.keepRestored(ctx); err != nil {
				return err
			}
		}
		b.nothing(d.plan)
		return b.unverified(d.found)
	}
	return b.write(ctx, d)
}

// consent asks for what the matrix wants a yes to, after showing it.
func (b *builder) consent(d *discovery) error {
	b.showChange(d)
	refused := d.decision.Err()
	// --yes answers questions that lose nothing; carrying a change to a living
	// cluster out is what --update is for.
	yes := false
	if !b.c.Bool("yes") && b.a.person() {
		ui.Aside(b.view, func() { yes = b.a.ask(b.c, "carry this out?") })
	}
	if !yes {
		return refused
	}
	if lose := d.decision.Lose; len(lose) > 0 {
		var err error
		ui.Aside(b.view, func() {
			err = b.a.confirmLoss(b.c, b.name, "this deletes "+strings.Join(lose, ", ")+" of "+b.name+" with their data")
		})
		if err != nil {
			return err
		}
		b.wish.ask.Confirm = true
	}
	b.wish.ask.Update = true
	return nil
}

// showChange tells the config fields with both values and the tasks.
func (b *builder) showChange(d *discovery) {
	st := b.a.style()
	for _, ch := range d.decision.Diff {
		b.tell(fmt.Sprintf("%s %s", st.Bold("change"), ch))
	}
	for _, h := range d.decision.Remove {
		b.tell(st.Bold("remove") + " " + h)
	}
	for t := range b.sel.Selected.All() {
		if v := d.plan.Verdicts[t]; v == run.Run || v == run.Maybe {
			b.tell(fmt.Sprintf("%s %s: %s", st.Bold(v.String()), b.site.graph.Name(t), shorten(d.plan.Reason(t), 100)))
		}
	}
}

// nothing is the end of a build that had nothing to run.
func (b *builder) nothing(p *run.Plan) {
	b.begin()
	b.out.Fresh, b.out.Spared = p.Count(run.IsFresh), p.Count(run.IsSpared)
	b.out.Unverified = p.Count(run.IsUnverified)
	if !b.c.Bool("verbose") {
		return
	}
	for t := range b.sel.Selected.All() {
		k := b.site.graph.Kind(t)
		b.view.Event(ui.TaskFinished{
			RunID: b.runID, Task: b.site.graph.Name(t), Phase: k.Phase, Host: b.site.graph.HostName(t),
			Status: p.Verdicts[t].String(), Reason: p.Reason(t),
		})
	}
}

// unverified is the error of a build that could not look everywhere.
func (b *builder) unverified(f *cluster.Found) error {
	if b.out.Unverified == 0 {
		return nil
	}
	e := &buildError{class: classSSH, msg: fmt.Sprintf("%d tasks could not be verified", b.out.Unverified)}
	down := f.Unreachable()
	for _, h := range slices.Sorted(keys(down)) {
		e.details = append(e.details, h+": "+down[h])
	}
	return e
}

// begin tells that the build begins, once.
func (b *builder) begin() {
	if b.begun {
		return
	}
	b.begun = true
	b.uid = b.site.sess.UID()
	e := ui.BuildStarted{Cluster: b.name, RunID: b.runID, Selected: b.sel.Selected.Len()}
	if b.uid != "" {
		e.UID = &b.uid
	}
	b.view.Event(e)
}

// write takes the locks, looks and decides again under them, and runs.
func (b *builder) write(ctx context.Context, d *discovery) (err error) {
	s := b.site
	if err := b.a.writableHome(); err != nil {
		return err
	}
	lock, err := cache.TakeLock(filepath.Join(b.home, "locks", b.name+".lock"), b.holder())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Release()) }()
	w, err := s.sess.Write(ctx, b.wish.ask, d.look)
	if err != nil {
		return err
	}
	if err := s.saveLock(); err != nil {
		return err
	}
	if err := b.adoptRecords(w, d); err != nil {
		return err
	}
	return b.runTasks(w)
}

func (b *builder) holder() cache.Holder {
	return cache.Holder{
		PID: pid(), Host: hostName(), User: b.a.getenv("USER"), Command: b.commandLine(), Run: b.runID, Started: b.start,
	}
}

// commandLine is what was typed, for people.
func (b *builder) commandLine() string {
	return "hk " + strings.Join(b.a.words, " ")
}

// runTasks runs what is stale and ends the run.
func (b *builder) runTasks(w *cluster.Written) error {
	s := b.site
	ctx := w.Ctx
	b.begin()
	work, err := s.bind(ctx, w.Found, b.wish.verify == run.VerifyFull)
	if err != nil {
		return err
	}
	recs, err := s.records(ctx)
	if err != nil {
		return err
	}
	b.oldSets = setsOf(recs, s.graph)
	o := b.wish.options(s, b.sel)
	o.Work, o.Clock = work, clock{}
	o.Sink = &sink{view: b.view, started: &b.started}
	o.Jobs, o.FailFast = b.jobs(), b.c.Bool("fail-fast")
	o.FreshEvents = b.c.Bool("verbose")
	o.Guarded = s.sess.Established()
	o.Pools, o.PoolsOf = pools(s)
	if b.c.Bool("shuffle") {
		o.Shuffle = uint64(b.start.UnixNano())
	}
	s.resume(ctx, &o, w.Decision.Resume)
	o.Interrupt = b.stop.building()
	sum, err := run.Build(ctx, o)
	if err != nil {
		return err
	}
	return b.finish(ctx, sum, work)
}

func (b *builder) jobs() int {
	if n := b.c.Int("jobs"); n > 0 {
		return n
	}
	return defaultJobs
}

// defaultJobs is how many tasks run at a time: most of them wait for a host or
// the cloud, so the number of cores here does not matter.
const defaultJobs = 32

// pools bound what one thing is asked at a time: the cloud's API, one host's
// connection (sshd allows ten sessions), uploads from here.
func pools(s *site) (map[string]int, func(graph.Task) []string) {
	widths := map[string]int{"hcloud": 8, "upload": 4, "etcd-member": 1, "drain": 1, "apiserver": 1}
	if !s.sess.Established() {
		// Bootstrap is unguarded: masters and members come up together.
		delete(widths, "etcd-member")
		delete(widths, "apiserver")
	}
	per := make([][]string, len(s.graph.Hosts())) // the wanted ones come first
	for i := range s.hosts {
		name := "ssh:" + s.hosts[i].Name
		widths[name] = 8
		per[i] = []string{name}
	}
	return widths, func(t graph.Task) []string {
		if h := s.graph.Host(t); h >= 0 {
			return per[h]
		}
		return nil
	}
}

// finish ends a run: it proves that no task broke what another declared, tells
// the masters, and judges.
func (b *builder) finish(ctx context.Context, sum *run.Summary, work *tasks.Work) error {
	s := b.site
	b.count(sum)
	if err := b.dropRecords(ctx, sum); err != nil && ctx.Err() == nil {
		return err
	}
	s.forget()
	var ran []graph.Task
	for t, st := range sum.States {
		if st == run.Ran {
			ran = append(ran, graph.Task(t))
		}
	}
	var bugs []error
	if ctx.Err() == nil && len(ran) > 0 {
		recs, err := s.records(ctx)
		if err != nil {
			return err
		}
		bugs = work.Recheck(ctx, ran, recs)
	}
	err := b.verdict(ctx, sum, bugs)
	if ctx.Err() != nil {
		return err
	}
	journal, jerr := b.journal(ctx, ran)
	warnings, ferr := s.sess.Finish(ctx, cluster.Outcome{
		OK: err == nil, Whole: b.sel.Selected.Len() == s.graph.Len(), Journal: journal,
	})
	for _, w := range warnings {
		b.tell("warning: " + w)
	}
	return errors.Join(err, jerr, ferr)
}

// dropRecords forgets, in one transaction, the records of hosts that are gone:
// removed in this run, or in one that was killed before it came to this.
func (b *builder) dropRecords(ctx context.Context, sum *run.Summary) error {
	s := b.site
	there := map[string]bool{"": true}
	for i := range s.hosts {
		there[s.hosts[i].Name] = true
	}
	for i := range s.leaving {
		t, ok := s.graph.Lookup(provision.RemoveKind + "/" + s.leaving[i].Name)
		there[s.leaving[i].Name] = !ok || !sum.States[t].Good()
	}
	var gone []fp.Change
	err := s.recs.Load(ctx, func(name []byte, _ fp.Kept) {
		if n := string(name); !there[hostOfTask(n)] {
			gone = append(gone, fp.Change{Name: n})
		}
	})
	if err != nil || len(gone) == 0 {
		return err
	}
	done := make(chan error, 1)
	s.recs.Commit(gone, func(err error) { done <- err })
	return <-done
}

// journal is what became of the cluster tasks that ran, for the masters, with
// the large values the records refer to.
func (b *builder) journal(ctx context.Context, ran []graph.Task) (map[string][]byte, error) {
	s := b.site
	recs, err := s.records(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string][]byte{}
	for _, t := range ran {
		if s.graph.Host(t) >= 0 {
			continue
		}
		if r := recs(t); r != nil {
			data, err := json.Marshal(r)
			if err != nil {
				return nil, err
			}
			out[s.graph.Name(t)] = data
		}
	}
	if len(out) == 0 {
		return out, nil
	}
	now := setsOf(recs, s.graph)
	for d := range b.oldSets {
		if !now[d] {
			out[setPrefix+d] = nil
		}
	}
	for d := range now {
		digest, err := parseDigest(d)
		if err != nil {
			return nil, err
		}
		if v, err := s.recs.Value(ctx, digest); err == nil && v != nil {
			out[setPrefix+d] = v
		}
	}
	return out, nil
}

func (b *builder) count(sum *run.Summary) {
	b.out.Ran, b.out.Fresh, b.out.Spared = sum.Ran, sum.Fresh, sum.Spared
	b.out.Unverified, b.out.Failed, b.out.Blocked = sum.Unverified, sum.Failed, sum.Blocked
	b.out.CriticalPathMS = sum.CriticalPath.Milliseconds()
	b.started = b.started || sum.Started > 0
}

// verdict turns a summary into an error.
func (b *builder) verdict(ctx context.Context, sum *run.Summary, bugs []error) error {
	switch {
	case errors.Is(context.Cause(ctx), cluster.ErrLeaseLost):
		return &exitError{
			code: ExitLocked, class: classState, err: context.Cause(ctx),
			hint: "another hk may work on the cluster now (hk status " + b.name + " names it); run the same command again later",
		}
	case sum.Interrupted > 0:
		return errInterrupted
	case sum.Err != nil:
		return sum.Err
	case len(bugs) > 0:
		e := &buildError{class: classBug, msg: "a task broke what another declared", hint: bugHint, code: ExitBug}
		for _, err := range bugs {
			e.details = append(e.details, err.Error())
		}
		return e
	case sum.OK():
		return nil
	}
	return causes(sum)
}

// causes is the error of a build with failed tasks: root causes first, what
// they block as a count.
func causes(sum *run.Summary) error {
	e := &buildError{class: classState}
	for i, c := range sum.Causes {
		if i == 0 {
			e.class = c.Class
		}
		who := c.Name
		if c.Tasks > 1 && c.Host != "" {
			who = fmt.Sprintf("%s (%d tasks)", c.Host, c.Tasks)
		}
		line := who + ": " + c.Message
		if c.Blocked > 0 {
			line += fmt.Sprintf(" (blocks %d)", c.Blocked)
		}
		e.details = append(e.details, line)
	}
	var parts []string
	for _, p := range []struct {
		n    int
		what string
	}{{sum.Failed, "failed"}, {sum.Unverified, "could not be verified"}, {sum.Blocked, "blocked"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.what))
		}
	}
	e.msg = fmt.Sprintf("%s of %d tasks", strings.Join(parts, ", "), sum.Selected)
	e.hint = "repair the cause and run the same command again: it goes on where this run stopped; hk logs last TASK shows a task's output"
	return e
}

// buildError is how a build that ran ended badly.
type buildError struct {
	class, msg, hint string
	details          []string
	code             int // 0: 1
}

func (e *buildError) Error() string { return e.msg }

// Hint is what to do about it.
func (e *buildError) Hint() string { return e.hint }

// Details are the root causes.
func (e *buildError) Details() []string { return e.details }

// Class is the world of the first root cause.
func (e *buildError) Class() string { return e.class }

// ExitCode is 1 unless said otherwise.
func (e *buildError) ExitCode() int {
	if e.code == 0 {
		return ExitFailed
	}
	return e.code
}

// end tells how the build ended: the last event, the log, the history, and the
// summary or the error for people.
func (b *builder) end(err error) error {
	v := judge(err)
	if b.started {
		switch v.code {
		case ExitConsent, ExitLost, ExitConfig, ExitCloud, ExitSSH, ExitCredentials, ExitState:
			v.code = ExitFailed
		}
	}
	b.out.Cluster, b.out.Exit = b.name, v.code
	if b.name == "" && len(b.a.cmd.args()) > 0 {
		if t, terr := parseTarget(b.a.cmd.args()[0]); terr == nil {
			b.out.Cluster = t.Cluster
		}
	}
	if b.begun {
		b.out.RunID = &b.runID
	}
	b.out.WallMS = b.a.now().Sub(b.start).Milliseconds()
	if b.site != nil && b.site.world != nil {
		b.out.APICalls = b.site.world.calls()
	}
	if err != nil {
		b.out.Error = &ui.BuildError{Class: v.class, Message: err.Error()}
		if h := hintsOf(err); len(h) > 0 && h[0] != "" {
			b.out.Error.Hint = &h[0]
		}
	}
	if b.view != nil {
		b.view.Event(b.out)
		b.view.Close()
		b.a.ended = true
	}
	if b.log != nil && (b.begun || b.started) && !b.c.Bool("dry-run") {
		if lerr := b.log.finish(b.commandLine(), b.out, b.looked && b.begun); lerr != nil {
			fmt.Fprintln(b.a.Err, "warning: the run's log could not be written:", lerr)
		}
	}
	if err != nil {
		return &exitError{code: v.code, class: v.class, err: err}
	}
	if b.form == asText && !b.c.Bool("quiet") && !b.c.Bool("dry-run") {
		fmt.Fprintln(b.a.Out, b.summary())
	}
	return nil
}

func (b *builder) summary() string {
	wall := ui.Duration(time.Duration(b.out.WallMS) * time.Millisecond)
	if b.out.Ran == 0 {
		return fmt.Sprintf("%s: nothing to do: %s (%s)", b.name, countText(&b.out), wall)
	}
	return fmt.Sprintf("%s: %s in %s (critical path %s)", b.name, countText(&b.out), wall,
		ui.Duration(time.Duration(b.out.CriticalPathMS)*time.Millisecond))
}

func taskNames(g *graph.Graph, set graph.Set) []string {
	var out []string
	for t := range set.All() {
		out = append(out, g.Name(t))
	}
	return out
}

func hostOfTask(name string) string {
	_, host, _ := strings.Cut(name, "/")
	return host
}

// newerTasks are those that are stale because this hk does them in another way
// than the one that ran them last: their own parts differ, and not by the
// config, an upstream's output or a key.
func newerTasks(ctx context.Context, p *run.Plan) ([]string, error) {
	var out []string
	for i, v := range p.Verdicts {
		t := graph.Task(i)
		if v != run.Run || !isInputReason(p.Reason(t)) {
			continue
		}
		changes, err := p.Changes(ctx, t)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(changes, func(c run.PartChange) bool {
			class, _, _ := strings.Cut(c.Label, ":")
			return slices.Contains([]string{"recipe", "schema", "versions", "artifact", "file", "config"}, class)
		}) {
			out = append(out, p.Graph.Name(t)+": "+shorten(p.Reason(t), 100))
		}
	}
	return out, nil
}

// isInputReason tells changed inputs from all other reasons to run.
func isInputReason(reason string) bool {
	for _, other := range []string{"no record", "record damaged", "interrupted", "the last run failed", "forced", "drift:", "expires "} {
		if strings.HasPrefix(reason, other) {
			return false
		}
	}
	return true
}

// adoptRecords makes the store's records those of the cluster as it is now:
// under its UID, of its generation, restored from the hosts' journals where
// they were of another one.
func (b *builder) adoptRecords(w *cluster.Written, d *discovery) error {
	s := b.site
	// The graph is made anew: the write step allocated what was only planned,
	// and a new cluster has its UID now.
	if err := s.expand(); err != nil {
		return err
	}
	if agreed := slices.Sorted(slices.Values(w.Decision.Remove)); !slices.Equal(agreed, slices.Sorted(slices.Values(names(s.leaving)))) {
		return fmt.Errorf("bug: the graph removes %v, agreed to were %v", names(s.leaving), agreed)
	}
	var err error
	if b.sel, err = b.wish.selection(s); err != nil {
		return err
	}
	if !d.usable {
		s.useRestored(w.Ctx, w.Found)
	}
	if err := s.keepRestored(w.Ctx); err != nil {
		return err
	}
	s.forget()
	return nil
}
