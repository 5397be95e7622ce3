package addons

import (
	"context"

	"hk/cache/fp"
	"hk/graph"
	"hk/tasks"
	"hk/tasks/kubenode"
)

type readyIn struct {
	Host       string `part:"alloc:host"`
	Node       string `part:"alloc:node"`
	ProviderID string `part:"out:server.id"`
}

// readyKind proves that the host's Node is Ready: nothing before the pod
// network may ask for that.
func readyKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "ready", Scope: graph.OnHost, Roles: podRoles(), Recipe: 1,
		Needs: kubenode.OnHost(
			kubenode.Same(CNIKind), kubenode.Same(kubenode.MasterNodeKind), kubenode.Same(kubenode.WorkerNodeKind),
		),
		Title: "Node Ready",
	}, tasks.Def[readyIn]{
		When: withNetwork,
		Inputs: func(v *tasks.View) (readyIn, error) {
			return readyIn{
				Host: v.Host.Name, Node: v.Host.Node, ProviderID: kubenode.ProviderID(v.Out(kubenode.ServerKind)["id"]),
			}, nil
		},
		Verify: func(ctx context.Context, in readyIn, e *tasks.Env) (fp.Output, error) {
			return nil, kubenode.Ready(ctx, e, in.Node, in.ProviderID)
		},
	})
}
