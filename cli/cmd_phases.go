package cli

import (
	"fmt"
	"slices"
	"strings"

	ucli "github.com/urfave/cli/v2"

	"hk/cli/ui"
	"hk/graph"
	"hk/tasks"
	"hk/tasks/registry"
)

// phaseOrder is the order people know, with what each phase is about.
var phaseOrder = []struct{ name, about string }{
	{"preflight", "gates before anything is created: token, names, types, ranges, limits, cost"},
	{"provision-nodes", "network, firewall, servers, first contact, operating system, programs"},
	{"network-setup", "WireGuard mesh between all hosts"},
	{"etcd-setup", "etcd, TLS both ways, on the masters or on hosts of its own"},
	{"install-masters", "certificate authorities, control plane on every master"},
	{"setup-high-availability", "local endpoint on every host, external endpoint for people"},
	{"install-workers", "workers join"},
	{"addons", "pod network, readiness, DNS"},
}

func (a *app) cmdPhases() *ucli.Command {
	return &ucli.Command{
		Name: "phases", Category: catLook, Usage: "the phases of a build and their parts",
		UsageText: "hk phases\nhk phases -o json", Flags: []ucli.Flag{outputFlag()},
		Action: func(c *ucli.Context) error {
			if _, err := a.wantArgs(0, 0); err != nil {
				return err
			}
			f, err := outputForm(c)
			if err != nil {
				return err
			}
			return a.printPhases(f)
		},
	}
}

func (a *app) printPhases(f form) error {
	type row struct {
		Phase string   `json:"phase"`
		About string   `json:"about"`
		Parts []string `json:"parts"`
	}
	_, parts := kindWords()
	var rows []row
	for _, p := range phaseOrder {
		r := row{p.name, p.about, parts[p.name]}
		if r.Parts == nil {
			r.Parts = []string{}
		}
		rows = append(rows, r)
	}
	if f == asJSON {
		return a.printJSON(map[string]any{"v": 1, "phases": rows})
	}
	t := ui.NewTable("PHASE", "PARTS", "ABOUT")
	for _, r := range rows {
		t.Row(r.Phase, strings.Join(r.Parts, " "), r.About)
	}
	t.Write(a.Out)
	return nil
}

// kindWords are the phases that can be targets, and the parts of each in the
// order in which they run.
func kindWords() ([]string, map[string][]string) {
	parts := map[string][]string{}
	kinds := registry.All()
	kg, err := kindGraph(kinds)
	if err != nil {
		panic("bug: the kinds make no graph: " + err.Error())
	}
	for i := range kg.Len() {
		k := kg.Kind(i)
		parts[k.Phase] = append(parts[k.Phase], k.Part)
	}
	var phases []string
	for _, p := range phaseOrder {
		if len(parts[p.name]) > 0 {
			phases = append(phases, p.name)
		}
	}
	return phases, parts
}

// helpTasks describes every kind, from the registry itself.
func (a *app) helpTasks() error {
	kinds := registry.All()
	fmt.Fprint(a.Out, "Every kind of task. A kind on a host is a task, such as etcd-setup.certs/master-1.\n")
	for _, p := range phaseOrder {
		var of []tasks.Kind
		for i := range kinds {
			if kinds[i].Phase == p.name {
				of = append(of, kinds[i])
			}
		}
		if len(of) == 0 {
			continue
		}
		slices.SortFunc(of, func(a, b tasks.Kind) int { return strings.Compare(a.Part, b.Part) })
		fmt.Fprintf(a.Out, "\n%s: %s\n", p.name, p.about)
		for i := range of {
			describeKind(a, &of[i])
		}
	}
	return nil
}

func describeKind(a *app, k *tasks.Kind) {
	fmt.Fprintf(a.Out, "\n  %s: %s\n    on %s, recipe %d%s\n", k.ID(), k.Title, scopeText(k), k.Recipe, traits(k))
	for i := range k.Needs {
		n := &k.Needs[i]
		verb := "needs"
		if n.After {
			verb = "after"
		}
		line := fmt.Sprintf("    %s %s", verb, n.Kind)
		if v := viaText(n); v != "" {
			line += " " + v
		}
		if n.Why != "" {
			line += ": " + n.Why
		}
		fmt.Fprintln(a.Out, line)
	}
}

func scopeText(k *tasks.Kind) string {
	if k.Scope == graph.OnCluster {
		return "the cluster, once"
	}
	of := "every host"
	if len(k.Roles) > 0 {
		of = "each " + orList(k.Roles)
	}
	if k.Leaving {
		of += " that is removed"
	}
	return of
}

func traits(k *tasks.Kind) string {
	var out []string
	if k.Once {
		out = append(out, "made once and never again")
	}
	if k.Asset != "" {
		out = append(out, "spared by --keep-"+k.Asset)
	}
	if k.Guard != "" {
		out = append(out, "one host at a time once the cluster is up ("+k.Guard+")")
	}
	if len(out) == 0 {
		return ""
	}
	return "; " + strings.Join(out, "; ")
}

func viaText(n *graph.Need) string {
	quorum := map[graph.Quorum]string{graph.All: "all", graph.Majority: "a majority of", graph.Any: "any of"}[n.Quorum]
	switch n.Via {
	case graph.Same:
		return "on the same host"
	case graph.ToCluster:
		return ""
	case graph.ToRole:
		return fmt.Sprintf("on %s %ss", quorum, n.Role)
	case graph.FromAll:
		return fmt.Sprintf("on %s hosts", quorum)
	}
	return ""
}
