package cli

import (
	"slices"

	ucli "github.com/urfave/cli/v2"

	"hk/graph"
	"hk/graph/run"
	"hk/tasks/cluster"
)

// selectFlags are the flags build and plan share: what is selected and what may
// happen to it.
func selectFlags() []ucli.Flag {
	return []ucli.Flag{
		boolFlag("force", "run the named tasks even if nothing changed"),
		boolFlag("only", "build just the named tasks; refuse if a need is stale"),
		boolFlag("keep-data", "never touch etcd's data in this build"),
		boolFlag("keep-certs", "leave certificates as they are in this build"),
		boolFlag("keep-ca", "leave certificate authorities as they are (they are never made anew by themselves)"),
		boolFlag("keep-all-certs", "leave certificates and authorities as they are"),
		boolFlag("update", "agree to what changed in the config or in hk"),
		stringFlag("verify", "quick", "how to look before building: `off`, quick or full"),
		stringFlag("abandon", "", "drop the intent of run `RUN` instead of going on with it"),
	}
}

func (a *app) cmdBuild() *ucli.Command {
	return &ucli.Command{
		Name: "build", Category: catBuild, Usage: "build a cluster, or a part of it", ArgsUsage: "TARGET…",
		Description: "Runs what is stale of the targets and of what they need, and nothing else; goes on where the\n" +
			"last build stopped. A config change of a running cluster is shown and needs --update (exit 3).\n" +
			"The config is ./NAME.yaml or --config FILE.",
		UsageText: "hk build demo\nhk build demo -o json\nhk build demo:etcd-setup --force --keep-data\n" +
			"hk build demo/worker-3 --update\nhk build 'demo:install-workers/worker-*' --dry-run",
		Flags: slices.Concat(selectFlags(), []ucli.Flag{
			boolFlag("dry-run", "say what would run, run nothing"),
			&ucli.IntFlag{Name: "jobs", Aliases: []string{"j"}, Usage: "run at most `N` tasks at a time (default 32)"},
			boolFlag("fail-fast", "start nothing new after a failure"),
			boolFlag("shuffle", "run ready tasks in random order"),
			yesFlag(), confirmFlag(),
		}, clusterFlags()),
		Action: a.runBuild,
	}
}

func (a *app) runBuild(c *ucli.Context) error {
	f, err := outputForm(c)
	if err != nil {
		return err
	}
	b := newBuilder(a, c, f)
	return b.run()
}

// wish is what the flags and targets of build and plan ask for.
type wish struct {
	targets []target
	force   bool
	only    bool
	keep    []run.Keep
	verify  run.Verify
	ask     cluster.Ask
}

// readWish reads targets and flags; everything that can be judged without the
// cluster is judged here.
func (a *app) readWish(c *ucli.Context) (*wish, error) {
	words, err := a.wantArgs(1, -1)
	if err != nil {
		return nil, err
	}
	w := &wish{force: c.Bool("force"), only: c.Bool("only")}
	if w.targets, err = parseTargets(words); err != nil {
		return nil, err
	}
	for _, t := range w.targets {
		if t.Phase == "preflight" {
			return nil, usagef("hk preflight "+t.Cluster+" evaluates the gates by themselves",
				"preflight is not built: its gates are part of every build that would create something")
		}
	}
	if w.verify, err = verifyMode(c.String("verify")); err != nil {
		return nil, err
	}
	w.keep = keeps(c)
	w.ask = cluster.Ask{Update: c.Bool("update"), Abandon: c.String("abandon")}
	if n := c.String("confirm"); n != "" {
		if n != w.targets[0].Cluster {
			return nil, usagef("--confirm "+w.targets[0].Cluster, "--confirm %s is not the cluster's name", n)
		}
		w.ask.Confirm = true
	}
	return w, nil
}

func verifyMode(word string) (run.Verify, error) {
	switch word {
	case "off":
		return run.VerifyOff, nil
	case "quick":
		return run.VerifyQuick, nil
	case "full":
		return run.VerifyFull, nil
	}
	return 0, usagef("use off, quick or full", "--verify %s is not known", word)
}

// keeps are the assets spared by flags.
func keeps(c *ucli.Context) []run.Keep {
	var out []run.Keep
	add := func(flag string, assets ...string) {
		if !c.Bool(flag) {
			return
		}
		for _, a := range assets {
			if !slices.ContainsFunc(out, func(k run.Keep) bool { return k.Asset == a }) {
				out = append(out, run.Keep{Asset: a, Flag: "--" + flag})
			}
		}
	}
	add("keep-data", "data")
	add("keep-certs", "certs")
	add("keep-ca", "ca")
	add("keep-all-certs", "certs", "ca")
	return out
}

// selection turns the targets into tasks.
func (w *wish) selection(s *site) (graph.Selection, error) {
	var targets []graph.Target
	for _, t := range w.targets {
		if t.whole() {
			targets = nil // everything is more than any part of it
			break
		}
		targets = append(targets, graph.Target{Phase: t.Phase, Part: t.Part, Host: t.Host, Dependents: t.Plus})
	}
	sel, err := s.graph.Select(targets, graph.SelectOptions{Only: w.only})
	if err != nil {
		return sel, err
	}
	return sel, w.checkKept(s, sel)
}

// checkKept refuses a target that names nothing but what is kept.
func (w *wish) checkKept(s *site, sel graph.Selection) error {
	if len(w.keep) == 0 {
		return nil
	}
	flag := ""
	for t := range sel.Named.All() {
		k := s.graph.Kind(t)
		i := slices.IndexFunc(w.keep, func(k2 run.Keep) bool { return k2.Asset != "" && k2.Asset == k.Asset })
		if i < 0 {
			return nil
		}
		flag = w.keep[i].Flag
	}
	return usagef("leave one of the two out", "the target names exactly what %s keeps", flag)
}

// options are the engine's options of this wish, without a world.
func (w *wish) options(s *site, sel graph.Selection) run.Options {
	return run.Options{
		Graph: s.graph, Selection: sel, Recorder: s.reader, RunID: s.runID, Generation: s.sess.Generation(),
		Now: s.a.now(), Verify: w.verify, Force: w.force, Only: w.only, Keep: w.keep,
	}
}
