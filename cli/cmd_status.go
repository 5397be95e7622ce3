package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	ucli "github.com/urfave/cli/v2"

	"hk/cli/ui"
	"hk/graph"
	"hk/graph/run"
	"hk/tasks/cluster"
)

func (a *app) cmdStatus() *ucli.Command {
	return &ucli.Command{
		Name: "status", Category: catLook, Usage: "what a cluster is and how it does, now", ArgsUsage: "[CLUSTER]",
		Description: "Asks the cloud, the hosts, etcd and the Kubernetes API at once, writes nothing and needs no config\n" +
			"file. Without a cluster: all that are known here. With --check it exits 3 if something is stale,\n" +
			"4 on drift.",
		UsageText: "hk status demo\nhk status demo -o json\nhk status --check demo",
		Flags:     clusterFlags(boolFlag("check", "exit 3 if something is stale, 4 on drift")),
		Action:    a.runStatus,
	}
}

func (a *app) runStatus(c *ucli.Context) error {
	args, err := a.wantArgs(0, 1)
	if err != nil {
		return err
	}
	f, err := outputForm(c)
	if err != nil {
		return err
	}
	if len(args) == 0 {
		return a.statusAll(c, f)
	}
	name, err := clusterArg(args[0])
	if err != nil {
		return err
	}
	st, plan, err := a.statusOf(c, name)
	if err != nil {
		return err
	}
	if f == asJSON {
		err = a.printJSON(st)
	} else {
		printStatus(a.Out, a.outStyle(), st)
	}
	if err == nil && c.Bool("check") && plan != nil {
		return checkPlan(name, plan)
	}
	return err
}

// statusAll is a line for each cluster that is known here.
func (a *app) statusAll(c *ucli.Context, f form) error {
	home, err := a.home()
	if err != nil {
		return err
	}
	names, err := a.unitStore(c, home, "").List()
	if err != nil {
		return err
	}
	list := make([]*cluster.Status, len(names))
	var wg sync.WaitGroup
	for i, n := range names {
		wg.Go(func() {
			st, _, err := a.statusOf(c, n)
			if err != nil {
				st = &cluster.Status{V: 1, Cluster: n, Warnings: []string{err.Error()}}
			}
			list[i] = st
		})
	}
	wg.Wait()
	if f == asJSON {
		return a.printJSON(map[string]any{"v": 1, "clusters": list})
	}
	t := ui.NewTable("CLUSTER", "UID", "STATE", "HOSTS", "NODES READY", "KUBERNETES", "REMARK")
	for _, st := range list {
		remark := ""
		if len(st.Warnings) > 0 {
			remark = st.Warnings[0]
		}
		t.Row(st.Cluster, text(st.UID), stateWord(st), len(st.Hosts), readyCount(st), text(st.Versions.Kubernetes), remark)
	}
	t.Write(a.Out)
	return nil
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func stateWord(st *cluster.Status) string {
	switch {
	case st.Established == nil:
		return "unknown"
	case !*st.Established:
		return "not built yet"
	case st.Ready == nil:
		return "API silent"
	case *st.Ready:
		return "ready"
	}
	return "not ready"
}

func readyCount(st *cluster.Status) string {
	n := 0
	for i := range st.Nodes {
		if st.Nodes[i].Ready {
			n++
		}
	}
	return fmt.Sprintf("%d/%d", n, len(st.Nodes))
}

// statusOf asks everything about one cluster. The plan is nil where no records
// can be judged.
func (a *app) statusOf(c *ucli.Context, name string) (st *cluster.Status, plan *run.Plan, err error) {
	s, err := a.openSite(c, name, siteOptions{})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if s.sess.Unit() != nil {
		if err := s.askForRecords(c.Context); err != nil {
			s.tell("note: the records cannot be judged: " + err.Error())
		}
	}
	if st, err = s.sess.Status(c.Context); err != nil {
		return nil, nil, err
	}
	plan, perr := s.statusPlan(c.Context)
	if perr != nil {
		st.Warnings = append(st.Warnings, "the records cannot be judged: "+perr.Error())
	}
	st.Phases = phaseStates(plan)
	st.LastRun = s.lastRun()
	return st, plan, nil
}

// askForRecords lets Status ask each host for what its records observed, in
// the same round trip.
func (s *site) askForRecords(ctx context.Context) error {
	if err := s.prepareRecords(); err != nil {
		return err
	}
	work, err := s.bind(ctx, nil, false)
	if err != nil {
		return err
	}
	s.query = work.Query
	return nil
}

// prepareRecords makes graph and records ready for a plan without a config
// file: the lock file is the credential unit's copy.
func (s *site) prepareRecords() error {
	if s.graph != nil {
		return nil
	}
	if err := s.lockFromUnit(); err != nil {
		return err
	}
	return s.expand()
}

// statusPlan decides every task as a build would, on what was just seen.
func (s *site) statusPlan(ctx context.Context) (*run.Plan, error) {
	if s.sess.Unit() == nil || s.graph == nil {
		return nil, nil
	}
	usable, err := s.recordsUsable(ctx)
	if err != nil || !usable {
		return nil, err
	}
	found := s.sess.Found()
	verify := run.VerifyOff
	if found != nil && found.Inventory != nil {
		verify = run.VerifyQuick
	}
	work, err := s.bind(ctx, found, false)
	if err != nil {
		return nil, err
	}
	all, err := s.graph.Select(nil, graph.SelectOptions{})
	if err != nil {
		return nil, err
	}
	o := run.Options{
		Graph: s.graph, Selection: all, Recorder: s.reader, Work: work, Generation: s.sess.Generation(), Now: s.a.now(), Verify: verify,
	}
	s.resume(ctx, &o, s.sess.Decide(cluster.Ask{}).Resume)
	return run.MakePlan(ctx, o)
}

// phaseLine names the phases that are not as the others are.
func phaseLine(st ui.Style, all []cluster.PhaseStatus) string {
	if !slices.ContainsFunc(all, func(p cluster.PhaseStatus) bool { return p.State != all[0].State }) && len(all) > 0 {
		return "all " + colourPhase(st, all[0].State)
	}
	var odd []string
	for _, p := range all {
		if p.State != "fresh" {
			odd = append(odd, p.Phase+" "+colourPhase(st, p.State))
		}
	}
	if len(odd) < len(all) {
		odd = append(odd, "the others "+colourPhase(st, "fresh"))
	}
	return strings.Join(odd, ", ")
}

// phaseStates sums a plan up by phase.
func phaseStates(p *run.Plan) []cluster.PhaseStatus {
	out := []cluster.PhaseStatus{}
	states := map[string]string{}
	if p != nil {
		for i, v := range p.Verdicts {
			t := graph.Task(i)
			ph := p.Graph.Kind(t).Phase
			states[ph] = worse(states[ph], verdictState(v, p.Reason(t)))
		}
	}
	for _, ph := range phaseOrder[1:] {
		st, ok := states[ph.name]
		switch {
		case p == nil:
			st = "unknown"
		case !ok:
			st = "fresh" // this cluster has nothing of it
		}
		out = append(out, cluster.PhaseStatus{Phase: ph.name, State: st})
	}
	return out
}

func verdictState(v run.Verdict, reason string) string {
	switch {
	case v == run.IsUnverified:
		return "unknown"
	case v == run.Run && strings.HasPrefix(reason, "drift:"):
		return "drifted"
	case v == run.Run, v == run.IsBlocked:
		return "stale"
	}
	return "fresh" // maybe is fresh until what it needs says otherwise
}

// worse is the state that says more about a phase.
func worse(a, b string) string {
	order := []string{"", "fresh", "unknown", "drifted", "stale"}
	if slices.Index(order, a) > slices.Index(order, b) {
		return a
	}
	return b
}

// lastRun is the newest line of the history about the cluster, nil if there is
// none.
func (s *site) lastRun() any {
	list, err := readHistory(s.home)
	if err != nil {
		return nil
	}
	for _, h := range slices.Backward(list) {
		if h.Cluster == s.name {
			return h
		}
	}
	return nil
}

func printStatus(w io.Writer, st ui.Style, s *cluster.Status) {
	fmt.Fprintf(w, "%s  UID %s  %s", st.Bold(s.Cluster), orDash(text(s.UID)), colourState(st, s))
	if v := text(s.Versions.Kubernetes); v != "" {
		fmt.Fprintf(w, "  Kubernetes %s", v)
	}
	fmt.Fprintln(w)
	printHosts(w, st, s)
	if e := s.Etcd; e != nil {
		word := st.Green("healthy")
		if !e.Healthy {
			word = st.Red("no quorum")
		}
		var names []string
		for _, m := range e.Members {
			n := m.Name
			switch {
			case m.Problem != nil:
				n += " (" + *m.Problem + ")"
			case m.Leader:
				n += " (leader)"
			case m.Learner:
				n += " (learner)"
			}
			names = append(names, n)
		}
		fmt.Fprintf(w, "etcd: %s: %s\n", word, strings.Join(names, ", "))
	}
	fmt.Fprintf(w, "phases: %s\n", phaseLine(st, s.Phases))
	if s.Credentials.Source != nil {
		fmt.Fprintf(w, "credentials: %s\n", *s.Credentials.Source)
	}
	if l := s.Lock; l != nil {
		fmt.Fprintf(w, "lock: held by %s, run %s, since %s\n", l.Holder, l.Run, runTime(l.Since))
	}
	if h, ok := s.LastRun.(historyLine); ok {
		fmt.Fprintf(w, "last run: %s, %s, exit %d\n", runTime(h.Time), countText(&h.BuildFinished), h.Exit)
	}
	for _, m := range s.Warnings {
		fmt.Fprintf(w, "%s %s\n", st.Yellow("warning:"), m)
	}
}

func printHosts(w io.Writer, st ui.Style, s *cluster.Status) {
	nodes := map[string]*cluster.NodeStatus{}
	for i := range s.Nodes {
		nodes[s.Nodes[i].Name] = &s.Nodes[i]
	}
	t := ui.NewTable("HOST", "NODE", "READY", "VERSION", "SERVER", "STATE", "ADDRESS", "TYPE")
	for i := range s.Hosts {
		h := &s.Hosts[i]
		name := s.Cluster + "-" + h.Host
		ready, ver := "", ""
		if n := nodes[name]; n != nil {
			ready, ver = st.Green("yes"), n.Version
			if !n.Ready {
				ready = st.Red("no")
				if n.Reason != nil {
					ready += " " + *n.Reason
				}
			}
			delete(nodes, name)
		} else {
			name = ""
		}
		id := ""
		if h.ServerID != nil {
			id = fmt.Sprint(*h.ServerID)
		}
		state := h.State
		if h.Problem != nil {
			state += ": " + *h.Problem
		}
		t.Row(h.Host, name, ready, ver, id, state, text(h.Address), text(h.Type))
	}
	for _, n := range slices.Sorted(keys(nodes)) {
		t.Row("", n, fmt.Sprint(nodes[n].Ready), nodes[n].Version, "", "no host of the config")
	}
	t.Write(w)
}

func colourState(st ui.Style, s *cluster.Status) string {
	w := stateWord(s)
	switch w {
	case "ready":
		return st.Green(w)
	case "not ready", "API silent":
		return st.Red(w)
	}
	return st.Yellow(w)
}

func colourPhase(st ui.Style, state string) string {
	switch state {
	case "fresh":
		return st.Green(state)
	case "stale", "drifted":
		return st.Yellow(state)
	}
	return state
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
