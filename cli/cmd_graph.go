package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"hk/cli/ui"
	"hk/graph"
	"hk/graph/draw"
	"hk/graph/run"
)

func (a *app) cmdGraph() *ucli.Command {
	var formats []string
	for _, f := range draw.Formats() {
		formats = append(formats, string(f))
	}
	return &ucli.Command{
		Name: "graph", Category: catLook, Usage: "draw the task graph of a cluster", ArgsUsage: "[TARGET…]",
		Description: "States come from the records; nothing is asked of the world. With --up or --down the targets and\n" +
			"what they need, or what needs them; without targets: the one cluster known here.",
		UsageText: "hk graph demo\nhk graph demo:etcd-setup --up --depth 1\nhk graph demo --format svg >demo.svg\n" +
			"hk graph demo --path demo:etcd-setup.ca demo:addons.dns\nhk graph demo --stale -o json",
		Flags: []ucli.Flag{
			stringFlag("format", "", "`FORM` of the drawing: "+strings.Join(formats, ", ")),
			boolFlag("up", "with what the targets need"),
			boolFlag("down", "with what needs the targets"),
			stringFlag("path", "", "only what is on the way from target `A` to the last target"),
			&ucli.IntFlag{Name: "depth", Value: -1, Usage: "follow --up and --down `N` edges far"},
			boolFlag("stale", "only what would run, or may"),
			configFlag(), tokenDirFlag(), outputFlag(), quietFlag(),
		},
		Action: a.runGraph,
	}
}

func (a *app) runGraph(c *ucli.Context) error {
	words, err := a.wantArgs(0, -1)
	if err != nil {
		return err
	}
	format, err := graphFormat(c)
	if err != nil {
		return err
	}
	if p := c.String("path"); p != "" {
		words = append(words, p)
	}
	targets, err := parseTargets(words)
	if err != nil {
		return err
	}
	name, err := a.oneCluster(targets)
	if err != nil {
		return err
	}
	b := newBuilder(a, c, asText)
	b.name, b.view = name, notesOnly{ui.NewPlain(a.Err, ui.Options{Style: a.style(), Quiet: c.Bool("quiet"), Now: a.now})}
	err = b.graph(c.Context, format, targets)
	if b.site != nil {
		err = errors.Join(err, b.site.close())
	}
	return err
}

func graphFormat(c *ucli.Context) (draw.Format, error) {
	f, err := outputForm(c)
	if err != nil {
		return "", err
	}
	format := draw.Format(c.String("format"))
	switch {
	case format == "" && f == asJSON:
		return draw.JSON, nil
	case format == "":
		return draw.Text, nil
	case !slices.Contains(draw.Formats(), format):
		return "", usagef(fmt.Sprintf("formats are %v", draw.Formats()), "graph format %q", format)
	}
	return format, nil
}

// oneCluster is the cluster of the targets, or the only one known here.
func (a *app) oneCluster(targets []target) (string, error) {
	if len(targets) > 0 {
		return targets[0].Cluster, nil
	}
	known := a.knownClusters()
	switch len(known) {
	case 1:
		return known[0], nil
	case 0:
		return "", usagef("hk init NAME begins one", "no cluster is known here")
	}
	return "", usagef("name one of "+strings.Join(known, ", "), "%d clusters are known here", len(known))
}

func (b *builder) graph(ctx context.Context, format draw.Format, targets []target) error {
	b.wish = &wish{targets: targets, verify: run.VerifyOff}
	s, err := b.a.openSite(b.c, b.name, siteOptions{prefer: true, offline: true, tell: b.tell, runID: b.runID})
	if err != nil {
		return err
	}
	b.site = s
	if err := s.prepareRecords(); err != nil {
		return err
	}
	o := draw.Options{Title: b.name}
	if o.Show, err = b.shown(targets); err != nil {
		return err
	}
	if o.Show.Len() == 0 {
		return usagef("one of the two must need the other", "nothing is on the way between the two targets")
	}
	plan, err := b.recordedPlan(ctx)
	if err != nil {
		b.tell("note: states are not known: " + err.Error())
	}
	if plan != nil {
		o.State = func(t graph.Task) string { return plan.Verdicts[t].String() }
		o.Reason = plan.Reason
	}
	if b.c.Bool("stale") {
		if plan == nil {
			return &exitError{code: ExitFailed, class: classState, err: fmt.Errorf("nothing is known of %s yet, so all of it is stale", b.name), hint: "leave --stale out"}
		}
		for t := range o.Show.All() {
			if v := plan.Verdicts[t]; v != run.Run && v != run.Maybe {
				o.Show.Remove(t)
			}
		}
		if o.Show.Len() == 0 {
			b.tell("nothing is stale")
			return nil
		}
	}
	return draw.Write(b.a.Out, format, s.graph, o)
}

// recordedPlan decides every task by the records; nil if there are none.
func (b *builder) recordedPlan(ctx context.Context) (*run.Plan, error) {
	s := b.site
	if s.sess.Unit() == nil || s.lock == nil {
		return nil, nil
	}
	if ok, err := s.recordsUsable(ctx); err != nil || !ok {
		return nil, err
	}
	all, err := s.graph.Select(nil, graph.SelectOptions{})
	if err != nil {
		return nil, err
	}
	b.sel = all
	return b.plan(ctx, nil)
}

// shown are the tasks to be drawn.
func (b *builder) shown(targets []target) (graph.Set, error) {
	g := b.site.graph
	sets := make([]graph.Set, len(targets))
	for i, t := range targets {
		w := wish{targets: []target{t}, only: true}
		sel, err := w.selection(b.site)
		if err != nil {
			return graph.Set{}, err
		}
		sets[i] = sel.Named
	}
	if b.c.String("path") != "" {
		if len(sets) < 2 {
			return graph.Set{}, usagef("hk graph --path A B", "--path needs two targets")
		}
		return g.Between(sets[len(sets)-1], sets[len(sets)-2]), nil
	}
	if len(sets) == 0 {
		return g.FullSet(), nil
	}
	show := g.NewSet()
	for _, s := range sets {
		show.Union(s)
	}
	named := show.Clone()
	if b.c.Bool("up") {
		show.Union(g.Up(named, b.c.Int("depth")))
	}
	if b.c.Bool("down") {
		show.Union(g.Down(named, b.c.Int("depth")))
	}
	return show, nil
}
