package addons

import (
	"context"
	"fmt"
	"time"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/kubenode"
	"hk/tasks/spec"
)

const dnsLimit = 3 * time.Minute

type dnsIn struct{}

// dnsKind proves what kubeadm's addons left running: CoreDNS rolled out and
// kube-proxy on at least the Node that serves it.
func dnsKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "dns", Scope: graph.OnCluster, Recipe: 1,
		Needs: []graph.Need{
			{Kind: kubenode.BootstrapKind, Via: graph.ToCluster, Why: "it applies CoreDNS and kube-proxy"},
			// Any: with workers, CoreDNS runs there as well as here; which Node
			// is Ready first is not this kind's business.
			{Kind: ReadyKind, Via: graph.ToRole, Role: spec.Master, Quorum: graph.Any, Why: "CoreDNS runs on the first Node that is Ready"},
		},
		Title: "DNS and Service proxy",
	}, tasks.Def[dnsIn]{
		When:   withNetwork,
		Inputs: func(*tasks.View) (dnsIn, error) { return dnsIn{}, nil },
		Verify: verifyDNS,
	})
}

func verifyDNS(ctx context.Context, _ dnsIn, e *tasks.Env) (fp.Output, error) {
	err := tasks.Poll(ctx, dnsLimit, "waiting for CoreDNS and kube-proxy", func(ctx context.Context) error {
		k, err := e.Kube()
		if err != nil {
			return err
		}
		proxy, err := k.Rollout(ctx, remote.ObjectRef{Group: "apps", Version: "v1", Resource: "daemonsets", Namespace: "kube-system", Name: "kube-proxy"})
		if err != nil {
			return err
		}
		if proxy.Available == 0 {
			return fmt.Errorf("kube-proxy runs on none of %d Nodes", proxy.Desired)
		}
		dns, err := k.Rollout(ctx, remote.ObjectRef{Group: "apps", Version: "v1", Resource: "deployments", Namespace: "kube-system", Name: "coredns"})
		if err != nil {
			return err
		}
		if dns.Desired == 0 || dns.Available < dns.Desired || dns.Updated < dns.Desired {
			return fmt.Errorf("CoreDNS: %d of %d available", dns.Available, dns.Desired)
		}
		return nil
	})
	return nil, err
}
