package provision

import (
	"context"
	"slices"
	"strconv"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
)

// LoadBalancerType is the smallest load balancer; the API is all it carries.
const LoadBalancerType = "lb11"

type loadBalancerIn struct {
	Name     string `part:"config:name"`
	Location string `part:"config:location"`
	Network  int64  `part:"out:network.id"`
}

func (in loadBalancerIn) pick(uid string) func(*remote.Inventory) *remote.LoadBalancer {
	return func(inv *remote.Inventory) *remote.LoadBalancer {
		return byName(inv.LoadBalancers, uid, in.Name, loadBalancerName)
	}
}

// loadBalancerKind is the address for people. Its service and targets belong to
// setup-high-availability.external; the address is needed before, as it is in
// the API servers' certificates.
func loadBalancerKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "load-balancer", Scope: graph.OnCluster, Pool: cloudPool, Recipe: 1,
		Needs: []graph.Need{{Kind: NetworkKind, Via: graph.ToCluster, Why: "its targets are private addresses"}},
		Title: "load balancer, the API's address for people",
	}, tasks.Def[loadBalancerIn]{
		When: withLoadBalancer,
		Inputs: func(v *tasks.View) (loadBalancerIn, error) {
			id, err := outID(v.Out(NetworkKind), "id")
			return loadBalancerIn{Name: v.Spec.Name, Location: v.Spec.Location, Network: id}, err
		},
		Run:    runLoadBalancer,
		Verify: verifyLoadBalancer,
		Watch: func(in loadBalancerIn, w *tasks.World) map[string]string {
			return watchObject(w, "cloud:load-balancer", in.pick(w.UID), loadBalancerValue)
		},
	})
}

func loadBalancerValue(l *remote.LoadBalancer) string {
	return strconv.FormatInt(l.ID, 10) + " " + l.IPv4
}

func runLoadBalancer(ctx context.Context, in loadBalancerIn, e *tasks.Env) error {
	_, err := ensure(ctx, e, "load balancer "+in.Name, in.pick(e.UID), func() (*remote.LoadBalancer, error) {
		return e.Cloud.CreateLoadBalancer(ctx, remote.LoadBalancer{
			Name: in.Name, Type: LoadBalancerType, Location: in.Location,
			Networks: []int64{in.Network}, Labels: labels(e),
		})
	})
	return err
}

func verifyLoadBalancer(ctx context.Context, in loadBalancerIn, e *tasks.Env) (fp.Output, error) {
	lb, err := found(ctx, e, "load balancer "+in.Name, in.pick(e.UID))
	if err != nil {
		return nil, err
	}
	if lb.IPv4 == "" || !slices.Contains(lb.Networks, in.Network) {
		// Created without waiting for the attachment, or seen half done.
		if lb, err = e.Cloud.LoadBalancer(ctx, lb.ID); err != nil {
			return nil, err
		}
	}
	if lb.IPv4 == "" || !slices.Contains(lb.Networks, in.Network) {
		return nil, tasks.Again("load balancer %s is not attached to the network yet", in.Name)
	}
	e.Note("cloud:load-balancer", loadBalancerValue(lb))
	return fp.Output{"id": strconv.FormatInt(lb.ID, 10), "ipv4": lb.IPv4}, nil
}
