package provision

import (
	"context"
	"strconv"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
)

type networkIn struct {
	Name     string `part:"config:name"`
	Range    string `part:"config:network.private"`
	Location string `part:"config:location"`
}

func (in networkIn) pick(uid string) func(*remote.Inventory) *remote.Network {
	return func(inv *remote.Inventory) *remote.Network { return byName(inv.Networks, uid, in.Name, networkName) }
}

// networkKind is the private network: it carries load-balancer traffic only.
func networkKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "network", Scope: graph.OnCluster, Pool: cloudPool, Recipe: 1,
		Title: "private network for load-balancer traffic",
	}, tasks.Def[networkIn]{
		Inputs: func(v *tasks.View) (networkIn, error) {
			return networkIn{Name: v.Spec.Name, Range: v.Spec.Network.Private, Location: v.Spec.Location}, nil
		},
		Run:    runNetwork,
		Verify: verifyNetwork,
		Watch: func(in networkIn, w *tasks.World) map[string]string {
			return watchObject(w, "cloud:network", in.pick(w.UID), func(n *remote.Network) string { return strconv.FormatInt(n.ID, 10) })
		},
	})
}

func runNetwork(ctx context.Context, in networkIn, e *tasks.Env) error {
	_, err := ensure(ctx, e, "network "+in.Name, in.pick(e.UID), func() (*remote.Network, error) {
		z, err := zone(ctx, e, in.Location)
		if err != nil {
			return nil, err
		}
		return e.Cloud.CreateNetwork(ctx, remote.Network{
			Name: in.Name, Range: in.Range, Subnets: []string{in.Range}, Labels: labels(e),
		}, z)
	})
	return err
}

func verifyNetwork(ctx context.Context, in networkIn, e *tasks.Env) (fp.Output, error) {
	n, err := found(ctx, e, "network "+in.Name, in.pick(e.UID))
	if err != nil {
		return nil, err
	}
	id := strconv.FormatInt(n.ID, 10)
	e.Note("cloud:network", id)
	return fp.Output{"id": id}, nil
}

// watchObject reports a cloud object as the last look has it; "missing" if it
// is not there, nothing if nobody looked.
func watchObject[T any](w *tasks.World, key string, pick func(*remote.Inventory) *T, value func(*T) string) map[string]string {
	if w.Inventory == nil {
		return nil
	}
	o := pick(w.Inventory)
	if o == nil {
		return map[string]string{key: "missing"}
	}
	return map[string]string{key: value(o)}
}
