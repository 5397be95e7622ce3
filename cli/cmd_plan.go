package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"hk/cli/ui"
	"hk/graph"
	"hk/graph/run"
	"hk/tasks/cluster"
)

func (a *app) cmdPlan() *ucli.Command {
	return &ucli.Command{
		Name: "plan", Category: catBuild, Usage: "say what a build would do, and why", ArgsUsage: "TARGET…",
		Description: "Looks like a build and changes nothing: no lock, no file, no request that writes. With --check\n" +
			"it exits 3 if something is stale and 4 if nothing but drift is to be repaired.",
		UsageText: "hk plan demo\nhk plan demo -o json\nhk plan demo:etcd-setup --force\nhk plan demo --verify=off --check",
		Flags: slices.Concat(selectFlags(), []ucli.Flag{
			boolFlag("check", "exit 3 if something is stale, 4 on drift"),
		}, clusterFlags()),
		Action: a.runPlan,
	}
}

func (a *app) runPlan(c *ucli.Context) error {
	f, err := outputForm(c)
	if err != nil {
		return err
	}
	b := newBuilder(a, c, f)
	b.view = notesOnly{ui.NewPlain(a.Err, ui.Options{Style: a.style(), Quiet: c.Bool("quiet"), Now: a.now})}
	if b.wish, err = a.readWish(c); err != nil {
		return err
	}
	b.name = b.wish.targets[0].Cluster
	err = b.planOnly(c.Context)
	if b.site != nil {
		err = errors.Join(err, b.site.close())
	}
	return err
}

// openForPlan opens the cluster as build does, without leave to write.
func (b *builder) openForPlan(ctx context.Context, file bool) error {
	s, err := b.a.openSite(b.c, b.name, siteOptions{file: file, prefer: !file, removals: true, tell: b.tell, runID: b.runID})
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
	return b.choose()
}

func (b *builder) planOnly(ctx context.Context) error {
	if err := b.openForPlan(ctx, true); err != nil {
		return err
	}
	d := &discovery{}
	var err error
	if b.wish.verify == run.VerifyOff {
		d.decision = b.site.sess.Decide(b.wish.ask)
		d.plan, err = b.plan(ctx, nil)
	} else {
		d, err = b.discover(ctx)
	}
	// What a build would refuse is still worth a plan, if one can be made: a
	// field that cannot be changed, a server that is gone.
	var refusal error
	if err != nil {
		if d == nil || d.decision.Action != cluster.Refuse || d.decision.Exit != ExitConfig && d.decision.Exit != ExitLost {
			return err
		}
		refusal = err
		if d.plan, err = b.plan(ctx, d.found); err != nil {
			return refusal
		}
	}
	a := b.planAnswer(ctx, d)
	if b.form == asJSON {
		if err := b.a.printJSON(a); err != nil {
			return err
		}
	} else {
		b.printPlan(a)
	}
	if refusal != nil {
		if b.c.Bool("check") {
			return refusal
		}
		b.tell("note: hk build would refuse: " + refusal.Error())
	}
	if !b.c.Bool("check") {
		return nil
	}
	return checkPlan(b.name, d.plan)
}

// checkPlan is the error of --check: stale, or nothing but drift.
func checkPlan(name string, p *run.Plan) error {
	stale, drift := 0, 0
	for i, v := range p.Verdicts {
		if v != run.Run && v != run.Maybe && v != run.IsBlocked {
			continue
		}
		if strings.HasPrefix(p.Reason(graph.Task(i)), "drift:") {
			drift++
		} else if v != run.Maybe {
			stale++
		}
	}
	switch {
	case stale > 0:
		return &exitError{code: ExitConsent, class: classState, err: fmt.Errorf("%s of %s stale", plural(stale, "task"), name), hint: "hk build " + name}
	case drift > 0:
		return &exitError{code: ExitLost, class: classState, err: fmt.Errorf("%s of %s drifted", plural(drift, "task"), name), hint: "hk build " + name + " repairs it"}
	}
	return nil
}

// planAnswer is the answer of plan, in the form of the contract (DESIGN §7).
type planAnswer struct {
	V          int                    `json:"v"`
	Cluster    string                 `json:"cluster"`
	Tasks      []planTask             `json:"tasks"`
	Removals   []string               `json:"removals"`
	ConfigDiff []cluster.ConfigChange `json:"config_diff"`
	Cost       *cluster.Cost          `json:"cost"`
}

type planTask struct {
	Task       string `json:"task"`
	State      string `json:"state"` // run, maybe, fresh, spared; unverified, blocked
	Reason     string `json:"reason"`
	ExpectedMS *int64 `json:"expected_ms"` // how long it took last time; null if unknown
}

func (b *builder) planAnswer(ctx context.Context, d *discovery) *planAnswer {
	a := &planAnswer{V: 1, Cluster: b.name, Tasks: []planTask{}, Removals: []string{}, ConfigDiff: []cluster.ConfigChange{}}
	a.ConfigDiff = append(a.ConfigDiff, d.decision.Diff...)
	a.Removals = append(a.Removals, d.decision.Remove...)
	for t := range b.sel.Selected.All() {
		pt := planTask{Task: b.site.graph.Name(t), State: d.plan.Verdicts[t].String(), Reason: d.plan.Reason(t)}
		if e := d.plan.Expected(t); e > 0 {
			ms := e.Milliseconds()
			pt.ExpectedMS = &ms
		}
		a.Tasks = append(a.Tasks, pt)
	}
	if d.found == nil {
		return a
	}
	p, err := b.site.sess.Preflight(ctx, cluster.PreflightOptions{})
	if err != nil {
		b.tell("note: the cost is not known: " + err.Error())
		return a
	}
	a.Cost = p.Cost
	for i := range p.Gates {
		if g := &p.Gates[i]; !g.OK {
			b.tell("preflight: " + g.Message)
		}
	}
	return a
}

func (b *builder) printPlan(a *planAnswer) {
	st, w := b.a.outStyle(), b.a.Out
	for _, ch := range a.ConfigDiff {
		fmt.Fprintf(w, "%s %s\n", st.Bold("change"), ch)
	}
	for _, h := range a.Removals {
		fmt.Fprintf(w, "%s %s\n", st.Red("remove"), h)
	}
	counts := map[string]int{}
	var expected time.Duration
	for _, t := range a.Tasks {
		counts[t.State]++
		if t.State == "run" && t.ExpectedMS != nil {
			expected += time.Duration(*t.ExpectedMS) * time.Millisecond
		}
		if t.State != "fresh" || b.c.Bool("verbose") {
			fmt.Fprintf(w, "%-6s %s: %s\n", t.State, t.Task, t.Reason)
		}
	}
	var parts []string
	for _, s := range []string{"run", "maybe", "fresh", "spared", "unverified", "blocked"} {
		if counts[s] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[s], s))
		}
	}
	line := fmt.Sprintf("%s: %s of %s", a.Cluster, strings.Join(parts, ", "), plural(len(a.Tasks), "task"))
	if expected > 0 {
		line += fmt.Sprintf("; %s of work if all hosts were one", ui.Duration(expected))
	}
	fmt.Fprintln(w, line)
	if c := a.Cost; c != nil && c.After != nil {
		fmt.Fprintf(w, "cost: %s a month; of what exists: %s\n", money(c.After, c.Currency), money(c.Before, c.Currency))
	}
}

func money(v *float64, currency string) string {
	if v == nil {
		return "unknown"
	}
	return fmt.Sprintf("%.2f %s", *v, currency)
}

// dryRun tells what a build would do instead of doing it. In JSON the plan is
// one line before the last event.
func (b *builder) dryRun(ctx context.Context, d *discovery) error {
	a := b.planAnswer(ctx, d)
	b.begin()
	if b.form == asText {
		b.printPlan(a)
		return nil
	}
	line, err := json.Marshal(a)
	if err != nil {
		return err
	}
	fmt.Fprintf(b.a.Out, "%s\n", line)
	return nil
}

// gates are what must be right before something is created or another config
// is kept; a failing one stops the build with its own code before any task.
func (b *builder) gates(ctx context.Context, d *discovery) error {
	if !createsServers(d) && len(d.decision.Diff) == 0 {
		return nil
	}
	p, err := b.site.sess.Preflight(ctx, cluster.PreflightOptions{SSH: b.site.world.canSign})
	if err != nil {
		return err
	}
	for i := range p.Gates {
		if g := &p.Gates[i]; g.Warning {
			b.tell("warning: " + g.Message)
		}
	}
	if err := p.Err(); err != nil {
		return err
	}
	if c := p.Cost; c != nil && c.After != nil && c.Before != nil && *c.After > *c.Before {
		b.tell(fmt.Sprintf("cost: %s a month; of what exists: %s", money(c.After, c.Currency), money(c.Before, c.Currency)))
	}
	return nil
}

// createsServers reports whether a wanted host has no server yet.
func createsServers(d *discovery) bool {
	if d.decision.Action == cluster.Create || len(d.decision.Replace) > 0 {
		return true
	}
	for t := range graph.Task(d.plan.Graph.Len()) {
		if d.plan.Verdicts[t] == run.Run && d.plan.Graph.Kind(t).ID() == "provision-nodes.server" {
			if h := d.found.Hosts[d.plan.Graph.HostName(t)]; h == nil || h.Server == nil {
				return true
			}
		}
	}
	return false
}
