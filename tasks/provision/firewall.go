package provision

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/spec"
)

// APIPort is the API server's port.
const APIPort = 6443

type firewallIn struct {
	Name     string `part:"config:name"`
	MeshPort int    `part:"config:network.mesh_port"`
	SSHPort  int    `part:"config:ssh.port"`
	Endpoint string `part:"config:endpoint.external"` // its kind only: a DNS name changes no rule
}

// firewalls are the firewalls as they should be: one for all hosts, and one
// more for masters whose API answers on their public addresses.
func (in firewallIn) firewalls() []remote.Firewall {
	all := []string{"0.0.0.0/0", "::/0"}
	out := []remote.Firewall{{Name: in.Name, Rules: []remote.Rule{
		{Protocol: "tcp", Port: strconv.Itoa(in.SSHPort), Sources: all, Note: "ssh"},
		{Protocol: "icmp", Sources: all, Note: "icmp"},
		{Protocol: "udp", Port: strconv.Itoa(in.MeshPort), Sources: all, Note: "mesh"},
	}}}
	if in.Endpoint != spec.EndpointLoadBalancer {
		out = append(out, remote.Firewall{Name: in.Name + "-masters", Rules: []remote.Rule{
			{Protocol: "tcp", Port: strconv.Itoa(APIPort), Sources: all, Note: "kubernetes api"},
		}})
	}
	return out
}

func pickFirewall(uid, name string) func(*remote.Inventory) *remote.Firewall {
	return func(inv *remote.Inventory) *remote.Firewall { return byName(inv.Firewalls, uid, name, firewallName) }
}

// firewallKind is what of the hosts is open to the world: the mesh port to all,
// never a rule per host, so that a new host changes no rule.
func firewallKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "firewall", Scope: graph.OnCluster, Pool: cloudPool, Recipe: 1,
		Title: "cloud firewalls",
	}, tasks.Def[firewallIn]{
		Inputs: func(v *tasks.View) (firewallIn, error) {
			return firewallIn{
				Name: v.Spec.Name, MeshPort: v.Spec.Network.MeshPort, SSHPort: v.Spec.SSH.Port, Endpoint: v.Spec.Endpoint.Kind(),
			}, nil
		},
		Run:    runFirewall,
		Verify: verifyFirewall,
		Watch: func(in firewallIn, w *tasks.World) map[string]string {
			if w.Inventory == nil {
				return nil
			}
			return map[string]string{"cloud:firewall": in.seen(w.Inventory, w.UID)}
		},
	})
}

// seen is the rules in force, as text that is the same for equal rules in any
// order; "missing" if a firewall is.
func (in firewallIn) seen(inv *remote.Inventory, uid string) string {
	var all []remote.Firewall
	for _, want := range in.firewalls() {
		f := pickFirewall(uid, want.Name)(inv)
		if f == nil {
			return want.Name + " missing"
		}
		all = append(all, *f)
	}
	return rulesText(all)
}

// rulesText writes rules so that a person sees which one is gone: protocol and
// port, with the sources where they are not everybody.
func rulesText(all []remote.Firewall) string {
	var out []string
	for _, f := range all {
		var rules []string
		for _, r := range f.Rules {
			t := r.Protocol
			if r.Port != "" {
				t += " " + r.Port
			}
			if src := strings.Join(slices.Sorted(slices.Values(r.Sources)), " "); src != "0.0.0.0/0 ::/0" {
				t += " from " + src
			}
			rules = append(rules, t)
		}
		slices.Sort(rules)
		out = append(out, f.Name+" ["+strings.Join(rules, ", ")+"]")
	}
	return strings.Join(out, " ")
}

func runFirewall(ctx context.Context, in firewallIn, e *tasks.Env) error {
	for _, want := range in.firewalls() {
		f, err := ensure(ctx, e, "firewall "+want.Name, pickFirewall(e.UID, want.Name), func() (*remote.Firewall, error) {
			want.Labels = labels(e)
			return e.Cloud.CreateFirewall(ctx, want)
		})
		if err != nil {
			return err
		}
		if rulesText([]remote.Firewall{*f}) == rulesText([]remote.Firewall{want}) {
			continue
		}
		if err := e.Cloud.SetFirewallRules(ctx, f.ID, want.Rules); err != nil {
			return err
		}
	}
	return nil
}

func verifyFirewall(ctx context.Context, in firewallIn, e *tasks.Env) (fp.Output, error) {
	want := in.firewalls()
	rules := rulesText(want)
	inv := e.Found()
	if inv == nil || in.seen(inv, e.UID) != rules {
		// Rules were just set, or the last look is too old to tell.
		var err error
		if inv, err = e.Cloud.Inventory(ctx); err != nil {
			return nil, err
		}
		if got := in.seen(inv, e.UID); got != rules {
			return nil, fmt.Errorf("the firewall rules in force are %s, not %s", got, rules)
		}
	}
	e.Note("cloud:firewall", rules)
	out := fp.Output{}
	for i, key := range []string{"id", "masters_id"}[:len(want)] {
		f := pickFirewall(e.UID, want[i].Name)(inv)
		out[key] = strconv.FormatInt(f.ID, 10)
	}
	return out, nil
}
