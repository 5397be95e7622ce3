package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	ucli "github.com/urfave/cli/v2"

	"hk/cache/fp"
	"hk/cli/ui"
	"hk/graph"
	"hk/graph/run"
)

func (a *app) cmdExplain() *ucli.Command {
	return &ucli.Command{
		Name: "explain", Category: catLook, Usage: "why tasks ran, are stale or are fresh", ArgsUsage: "TARGET…",
		Description: "Part by part, old and new, down to the change it began with. Reads records and, unless\n" +
			"--verify=off, looks at the world; changes nothing.",
		UsageText: "hk explain demo:etcd-setup\nhk explain demo:install-workers.join/worker-1 -o json",
		Flags: clusterFlags(
			stringFlag("verify", "quick", "how to look before explaining: off, quick or full"),
			boolFlag("force", "explain as if the named tasks were forced"),
		),
		Action: a.runExplain,
	}
}

func (a *app) runExplain(c *ucli.Context) error {
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
	err = b.explain(c.Context)
	if b.site != nil {
		err = errors.Join(err, b.site.close())
	}
	return err
}

type explained struct {
	Task    string          `json:"task"`
	State   string          `json:"state"`
	Reason  string          `json:"reason"`
	Changes []explainedPart `json:"changes"`
	Because []string        `json:"because"`
	LastRun *explainedRun   `json:"last_run"`
}

type explainedPart struct {
	Part string  `json:"part"`
	Old  *string `json:"old"`
	New  *string `json:"new"`
	Line *int    `json:"line"` // of the config file
	text string
}

type explainedRun struct {
	RunID   string    `json:"run_id"`
	Started time.Time `json:"started"`
	TookMS  int64     `json:"took_ms"`
	Reason  string    `json:"reason"`
	Attempt int       `json:"attempt"`
	Error   *string   `json:"error"`
}

func (b *builder) explain(ctx context.Context) error {
	if err := b.openForPlan(ctx, false); err != nil {
		return err
	}
	plan, err := b.planAnyway(ctx)
	if err != nil {
		return err
	}
	recs, err := b.site.records(ctx)
	if err != nil {
		return err
	}
	out := []explained{}
	for t := range b.sel.Named.All() {
		e, err := b.explainTask(ctx, plan, t, recs(t))
		if err != nil {
			return err
		}
		out = append(out, e)
	}
	if b.form == asJSON {
		return b.a.printJSON(struct {
			V       int         `json:"v"`
			Cluster string      `json:"cluster"`
			Tasks   []explained `json:"tasks"`
		}{1, b.name, out})
	}
	for i := range out {
		b.printExplained(&out[i])
	}
	return nil
}

// planAnyway plans on what can be seen; where the world does not answer, on the
// records.
func (b *builder) planAnyway(ctx context.Context) (*run.Plan, error) {
	if b.wish.verify != run.VerifyOff && b.site.sess.Unit() != nil {
		d, err := b.discover(ctx)
		switch {
		case err == nil:
			return d.plan, nil
		case ctx.Err() != nil:
			return nil, err
		}
		b.tell("note: by the records only: " + err.Error())
	}
	b.wish.verify = run.VerifyOff
	return b.plan(ctx, nil)
}

func (b *builder) explainTask(ctx context.Context, p *run.Plan, t graph.Task, rec *fp.Record) (explained, error) {
	e := explained{
		Task: b.site.graph.Name(t), State: p.Verdicts[t].String(), Reason: p.Reason(t),
		Changes: []explainedPart{}, Because: []string{},
	}
	for _, u := range p.Because(t) {
		e.Because = append(e.Because, b.site.graph.Name(u)+": "+p.Reason(u))
	}
	// Without a good run of before there is nothing to compare with.
	if rec != nil && rec.Fingerprint != (fp.Fingerprint{}) {
		changes, err := p.Changes(ctx, t)
		if err != nil {
			return e, err
		}
		for _, c := range changes {
			e.Changes = append(e.Changes, b.explainPart(c))
		}
	}
	if rec != nil && rec.RunID != "" {
		e.LastRun = &explainedRun{
			RunID: rec.RunID, Started: rec.Started, TookMS: rec.Took.Milliseconds(), Reason: rec.Reason, Attempt: rec.Attempt,
		}
		if rec.Error != "" {
			e.LastRun.Error = &rec.Error
		}
	}
	return e, nil
}

func (b *builder) explainPart(c run.PartChange) explainedPart {
	p := explainedPart{Part: c.Label, text: c.String()}
	if c.Old != "" {
		p.Old = &c.Old
	}
	if c.New != "" {
		p.New = &c.New
	}
	if field, ok := strings.CutPrefix(c.Label, "config:"); ok {
		if line, _, ok := b.site.src.Position(field); ok {
			p.Line = &line
			p.text += fmt.Sprintf(" (%s:%d)", b.site.config, line)
		}
	}
	return p
}

func (b *builder) printExplained(e *explained) {
	w, st := b.a.Out, b.a.outStyle()
	fmt.Fprintf(w, "%s: %s: %s\n", st.Bold(e.Task), e.State, e.Reason)
	for _, c := range e.Changes {
		fmt.Fprintf(w, "    changed: %s\n", c.text)
	}
	for _, c := range e.Because {
		fmt.Fprintf(w, "    because: %s\n", c)
	}
	if r := e.LastRun; r != nil {
		line := fmt.Sprintf("    last run: %s, %s, took %s, because: %s", r.RunID, runTime(r.Started), ui.Duration(time.Duration(r.TookMS)*time.Millisecond), orDash(r.Reason))
		if r.Error != nil {
			line += "; failed: " + *r.Error
		}
		fmt.Fprintln(w, line)
	}
}
