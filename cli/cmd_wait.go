package cli

import (
	"context"
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
	"hk/tasks/spec"
)

// waitPause is between two questions: a Node's state changes in seconds, and
// the API answers in milliseconds.
const waitPause = time.Second

func (a *app) cmdWait() *ucli.Command {
	return &ucli.Command{
		Name: "wait", Category: catLook, Usage: "wait until a cluster is ready, or gone", ArgsUsage: "CLUSTER",
		Description: "ready: every host's Node is Ready, by the Kubernetes API with the cached credential. gone: no\n" +
			"object in the project carries the cluster's UID. phase=P: every task of phase P is done by the\n" +
			"records. Exit code 1 when the time is over.",
		UsageText: "hk wait demo\nhk wait demo --timeout 10m\nhk wait demo --for phase=etcd-setup\nhk wait demo --for gone",
		Flags: clusterFlags(
			stringFlag("for", "ready", "`STATE` to wait for: ready, gone or phase=P"),
			&ucli.DurationFlag{Name: "timeout", Value: 15 * time.Minute, Usage: "give up after `TIME`"},
		),
		Action: func(c *ucli.Context) error {
			return a.onCluster(c, siteOptions{}, func(s *site, f form) error { return a.wait(c, s, f) })
		},
	}
}

// probe says whether the state is reached, and if not what is missing.
type probe func(ctx context.Context) (missing string, err error)

func (a *app) wait(c *ucli.Context, s *site, f form) error {
	state := c.String("for")
	p, err := s.probeFor(state)
	if err != nil {
		return err
	}
	start := a.now()
	ctx, cancel := context.WithTimeout(c.Context, c.Duration("timeout"))
	defer cancel()
	missing, told := "", ""
	for {
		var perr error
		if missing, perr = p(ctx); perr != nil {
			missing = perr.Error()
		}
		if missing == "" {
			break
		}
		if ctx.Err() == nil && missing != told {
			told = missing
			s.tell("waiting: " + missing)
		}
		select {
		case <-time.After(waitPause):
			continue
		case <-ctx.Done():
		}
		break
	}
	took := a.now().Sub(start)
	if outer := c.Context; outer.Err() != nil {
		return context.Cause(outer)
	}
	if f == asJSON {
		var m *string
		if missing != "" {
			m = &missing
		}
		err = a.printJSON(struct {
			V       int     `json:"v"`
			Cluster string  `json:"cluster"`
			For     string  `json:"for"`
			OK      bool    `json:"ok"`
			Missing *string `json:"missing"`
			WaitMS  int64   `json:"wait_ms"`
		}{1, s.name, state, missing == "", m, took.Milliseconds()})
	} else if missing == "" {
		fmt.Fprintf(a.Out, "%s: %s after %s\n", s.name, state, ui.Duration(took))
	}
	if missing != "" {
		return errors.Join(err, &exitError{
			code: ExitFailed, class: classKube, err: fmt.Errorf("%s is not %s after %s: %s", s.name, state, ui.Duration(took), missing),
			hint: "hk status " + s.name + " shows what is wrong",
		})
	}
	return err
}

func (s *site) probeFor(state string) (probe, error) {
	phase, isPhase := strings.CutPrefix(state, "phase=")
	switch {
	case state == "ready":
		return s.nodesReady, nil
	case state == "gone":
		return s.gone, nil
	case isPhase:
		phases, _ := kindWords()
		if !slices.Contains(phases, phase) {
			return nil, usagef("phases are "+strings.Join(phases, ", "), "unknown phase %q", phase)
		}
		return func(ctx context.Context) (string, error) { return s.phaseDone(ctx, phase) }, nil
	}
	return nil, usagef("use --for ready, gone or phase=P", "cannot wait for %q", state)
}

// nodesReady asks the Kubernetes API. Another hk may be building, so that what
// is known of the cluster is read again each time.
func (s *site) nodesReady(ctx context.Context) (string, error) {
	if err := s.loadSession(); err != nil {
		return "", err
	}
	if s.sess.Unit() == nil {
		return "it has no credentials yet", nil
	}
	k, err := s.sess.Kube()
	if err != nil {
		return "", err
	}
	nodes, err := k.Nodes(ctx)
	if err != nil {
		return "", err
	}
	ready := map[string]bool{}
	for i := range nodes {
		ready[nodes[i].Name] = nodes[i].Ready
	}
	var missing []string
	for _, h := range s.sess.Wanted() {
		if h.Role != spec.Etcd && !ready[h.Node] {
			missing = append(missing, h.Name)
		}
	}
	if len(missing) == 0 {
		return "", nil
	}
	return "not Ready: " + strings.Join(missing, ", "), nil
}

func (s *site) gone(ctx context.Context) (string, error) {
	f, err := s.sess.Discover(ctx, cluster.Look{NoHosts: true})
	if err != nil {
		return "", err
	}
	if f.CloudErr != nil {
		return "", f.CloudErr
	}
	if n := f.Objects(); n > 0 {
		return plural(n, "cloud object") + " left", nil
	}
	return "", nil
}

// phaseDone looks at the records only: it works beside a running build.
func (s *site) phaseDone(ctx context.Context, phase string) (string, error) {
	if err := s.loadSession(); err != nil {
		return "", err
	}
	if s.sess.Unit() == nil {
		return "it is not begun yet", nil
	}
	s.graph = nil
	if err := s.prepareRecords(); err != nil {
		return "", err
	}
	work, err := s.bind(ctx, nil, false)
	if err != nil {
		return "", err
	}
	sel, err := s.graph.Select([]graph.Target{{Phase: phase}}, graph.SelectOptions{Only: true})
	if err != nil {
		return "", err
	}
	left, err := s.undone(ctx, work, sel)
	if err != nil || left == 0 {
		return "", err
	}
	return fmt.Sprintf("%s of %s to be done", plural(left, "task"), phase), nil
}

func (s *site) undone(ctx context.Context, work run.Work, sel graph.Selection) (int, error) {
	o := run.Options{
		Graph: s.graph, Selection: sel, Recorder: s.reader, Work: work, Generation: s.sess.Generation(), Now: s.a.now(),
	}
	s.resume(ctx, &o, s.sess.Decide(cluster.Ask{}).Resume)
	p, err := run.MakePlan(ctx, o)
	if err != nil {
		return 0, err
	}
	return p.Count(run.Run) + p.Count(run.Maybe) + p.Count(run.IsBlocked), nil
}
