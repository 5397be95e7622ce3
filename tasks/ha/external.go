package ha

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/kubenode"
	"hk/tasks/spec"
)

const externalLimit = 2 * time.Minute

type externalIn struct {
	ID      int64   `part:"out:load-balancer.id"`
	IPv4    string  `part:"out:load-balancer.ipv4"`
	Servers []int64 `part:"out:servers"`
}

// externalKind makes the load balancer serve the API to people. It talks to
// the masters' private addresses and checks /readyz; the cloud's default check
// needs three quarters of a minute to notice anything.
func externalKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "external", Scope: graph.OnCluster, Pool: "hcloud", Recipe: 1,
		Needs: []graph.Need{
			{Kind: kubenode.LoadBalancerKind, Via: graph.ToCluster, Why: "it is the one that gets the service"},
			{Kind: kubenode.ServerKind, Via: graph.ToRole, Role: spec.Master, Why: "the masters' servers are its targets"},
			{Kind: kubenode.ControlPlaneKind, Via: graph.ToRole, Role: spec.Master, Quorum: graph.Majority, Why: "it is verified by an API server that answers through it"},
		},
		Title: "load balancer's service and targets",
	}, tasks.Def[externalIn]{
		When:   func(c *spec.Cluster) bool { return c.Endpoint.Kind() == spec.EndpointLoadBalancer },
		Inputs: externalInputs,
		Run:    runExternal,
		Verify: verifyExternal,
		Watch: func(in externalIn, w *tasks.World) map[string]string {
			if w.Inventory == nil {
				return nil
			}
			i := slices.IndexFunc(w.Inventory.LoadBalancers, func(l remote.LoadBalancer) bool { return l.ID == in.ID })
			if i < 0 {
				return map[string]string{watchLB: "missing"}
			}
			return map[string]string{watchLB: digest(&w.Inventory.LoadBalancers[i])}
		},
	})
}

// runExternal writes services and targets, if they differ.
func runExternal(ctx context.Context, in externalIn, e *tasks.Env) error {
	lb, err := e.Cloud.LoadBalancer(ctx, in.ID)
	if err != nil {
		return err
	}
	if digest(lb) == in.want() {
		return nil
	}
	lb.Services, lb.Targets = in.services(), in.targets()
	return e.Cloud.SetLoadBalancer(ctx, *lb)
}

// watchLB is the observed key of what the load balancer does.
const watchLB = "cloud:lb"

func externalInputs(v *tasks.View) (externalIn, error) {
	lb := v.Out(kubenode.LoadBalancerKind)
	in := externalIn{IPv4: lb["ipv4"]}
	var err error
	if in.ID, err = strconv.ParseInt(lb["id"], 10, 64); err != nil {
		return in, fmt.Errorf("the load balancer's ID %q is no number", lb["id"])
	}
	for _, m := range v.Masters() {
		o, ok := v.OutOf(kubenode.ServerKind, m.Name)
		if !ok {
			return in, fmt.Errorf("the server of %s is not known", m.Name)
		}
		id, err := strconv.ParseInt(o["id"], 10, 64)
		if err != nil {
			return in, fmt.Errorf("the server ID %q of %s is no number", o["id"], m.Name)
		}
		in.Servers = append(in.Servers, id)
	}
	slices.Sort(in.Servers)
	return in, nil
}

func (in externalIn) services() []remote.LBService {
	return []remote.LBService{{
		Listen: kubenode.APIPort, Dest: kubenode.APIPort,
		Check: "https", CheckPath: "/readyz", CheckInterval: 3 * time.Second, CheckTimeout: 2 * time.Second, CheckRetries: 2,
	}}
}

func (in externalIn) targets() []remote.LBTarget {
	var out []remote.LBTarget
	for _, id := range in.Servers {
		out = append(out, remote.LBTarget{Server: id, Private: true})
	}
	return out
}

func (in externalIn) want() string {
	return digest(&remote.LoadBalancer{Services: in.services(), Targets: in.targets()})
}

// digest stands for what a load balancer does, readable: it is shown when it
// differs. What its checks see just now is not part of it.
func digest(lb *remote.LoadBalancer) string {
	var parts []string
	for _, s := range lb.Services {
		parts = append(parts, fmt.Sprintf("%d->%d %s %s %s/%s/%d", s.Listen, s.Dest, s.Check, s.CheckPath, s.CheckInterval, s.CheckTimeout, s.CheckRetries))
	}
	for _, t := range lb.Targets {
		where := "public"
		if t.Private {
			where = "private"
		}
		parts = append(parts, fmt.Sprintf("server %d%s %s", t.Server, t.Selector, where))
	}
	slices.Sort(parts)
	return strings.Join(parts, "; ")
}

func verifyExternal(ctx context.Context, in externalIn, e *tasks.Env) (fp.Output, error) {
	lb, err := e.Cloud.LoadBalancer(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if got := digest(lb); got != in.want() {
		return nil, fmt.Errorf("the load balancer does %q, not %q", got, in.want())
	}
	err = tasks.Poll(ctx, externalLimit, "asking an API server through the load balancer "+in.IPv4, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		k, err := e.Kube()
		if err != nil {
			return err
		}
		return k.ReadyAt(ctx, "external")
	})
	if err != nil {
		return nil, err
	}
	e.Note(watchLB, digest(lb))
	return nil, nil
}
