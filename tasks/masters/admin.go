package masters

import (
	"context"
	"errors"
	"fmt"

	"hk/cache/fp"
	"hk/graph"
	"hk/tasks"
	"hk/tasks/kubenode"
	"hk/tasks/pki"
	"hk/tasks/spec"
)

type adminIn struct {
	Cluster string `part:"config:name"`
	Server  string `part:"out:endpoint"` // https://…
	CA      string `part:"out:ca.ca"`
}

// adminKind keeps the administrator's kubeconfig in the credential unit: the
// one that people are given, and the one that nothing can shut out.
func adminKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "admin", Scope: graph.OnCluster, Recipe: 1,
		Needs: []graph.Need{
			{Kind: CAKind, Via: graph.ToCluster, Why: "the cluster's authority signs it"},
			{Kind: kubenode.LoadBalancerKind, Via: graph.ToCluster, Why: "it holds the address people use"},
			{Kind: kubenode.ServerKind, Via: graph.ToRole, Role: spec.Master, Quorum: graph.Any, Why: "without a load balancer a master's address is the one people use"},
		},
		Title: "administrator's credential",
	}, tasks.Def[adminIn]{
		Inputs: adminInputs,
		Run:    runAdmin,
		Verify: verifyAdmin,
	})
}

func adminInputs(v *tasks.View) (adminIn, error) {
	in := adminIn{Cluster: v.Spec.Name, CA: v.Out(CAKind)["ca"]}
	host := external(v)
	if v.Spec.Endpoint.Kind() == spec.EndpointMaster {
		for _, m := range v.Masters() {
			if o, ok := v.OutOf(kubenode.ServerKind, m.Name); ok && o["ipv4"] != "" {
				host = o["ipv4"]
				break
			}
		}
	}
	if host == "" {
		return in, errors.New("no address for people is known")
	}
	in.Server = fmt.Sprintf("https://%s:%d", host, kubenode.APIPort)
	return in, nil
}

func runAdmin(_ context.Context, in adminIn, e *tasks.Env) error {
	ca, err := e.Vault.Authority(ClusterCA)
	if err != nil {
		return err
	}
	for _, c := range in.confs() {
		p, err := ca.Issue(c.leaf, e.Now())
		if err != nil {
			return err
		}
		conf := pki.Kubeconfig{
			Cluster: in.Cluster, User: c.user, Context: c.context, Server: in.Server, CA: ca.CertPEM, Cert: p.CertPEM, Key: p.KeyPEM,
		}
		if err := e.Vault.Put(c.file, conf.Render()); err != nil {
			return err
		}
	}
	return nil
}

type adminConf struct {
	file, user, context string
	leaf                pki.Leaf
}

// confs: the context people see is the cluster's own name.
func (in adminIn) confs() []adminConf {
	return []adminConf{
		{AdminConf, in.Cluster + "-admin", in.Cluster, AdminLeaf()},
		{SuperConf, in.Cluster + "-super-admin", in.Cluster + "-super", superLeaf()},
	}
}

func verifyAdmin(_ context.Context, in adminIn, e *tasks.Env) (fp.Output, error) {
	ca, err := e.Vault.Authority(ClusterCA)
	if err != nil {
		return nil, err
	}
	for _, c := range in.confs() {
		b, err := e.Vault.Secret(c.file)
		if err != nil {
			return nil, err
		}
		k, err := pki.ParseKubeconfig(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.file, err)
		}
		if k.Server != in.Server {
			return nil, fmt.Errorf("%s names %s, not %s", c.file, k.Server, in.Server)
		}
		cert, err := pki.ParseCert(k.Cert)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.file, err)
		}
		if err := ca.Check(cert, c.leaf, e.Now()); err != nil {
			return nil, fmt.Errorf("%s: %w", c.file, err)
		}
		e.Expires(pki.GoodUntil(cert.NotBefore, cert.NotAfter))
	}
	return fp.Output{"server": in.Server}, nil
}
