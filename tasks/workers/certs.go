package workers

import (
	"context"
	"fmt"
	"io/fs"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/kubenode"
	"hk/tasks/pki"
)

type certsIn struct {
	Host    string `part:"alloc:host"`
	Node    string `part:"alloc:node"`
	MeshIP  string `part:"alloc:mesh"`
	IPv4    string `part:"out:server.ipv4"`
	Private string `part:"out:server.private"`
	CA      string `part:"out:ca.ca"`
}

// certsKind gives a worker's kubelet the certificate it serves with. kubelet
// reads it again when it changes; its client certificate it rotates itself.
func certsKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "certs", Scope: graph.OnHost, Roles: onWorkers(), Asset: "certs", Recipe: 1,
		Needs: kubenode.OnHost(graph.Need{Kind: kubenode.CAKind, Via: graph.ToCluster, Why: "the cluster's authority signs it"}),
		Title: "kubelet's serving certificate",
	}, tasks.Def[certsIn]{
		Inputs: func(v *tasks.View) (certsIn, error) {
			server := v.Out(kubenode.ServerKind)
			return certsIn{
				Host: v.Host.Name, Node: v.Host.Node, MeshIP: v.Host.MeshIP, IPv4: server["ipv4"], Private: server["private"],
				CA: v.Out(kubenode.CAKind)["ca"],
			}, nil
		},
		Declared: func(certsIn) remote.HostState { return certsState(nil) },
		Run: func(ctx context.Context, in certsIn, e *tasks.Env) error {
			ca, err := e.Vault.Authority(clusterCA)
			if err != nil {
				return err
			}
			p, err := ca.Issue(in.leaf(), e.Now())
			if err != nil {
				return err
			}
			_, err = e.Host.Apply(ctx, certsState(p))
			return err
		},
		Verify: verifyCerts,
	})
}

func (in certsIn) leaf() pki.Leaf {
	return kubenode.ServingLeaf(in.Node, in.MeshIP, in.IPv4, in.Private)
}

func certsState(p *pki.Pair) remote.HostState {
	st := remote.HostState{Files: []remote.File{
		{Path: kubenode.KubeletPKI, Mode: fs.ModeDir | 0o700},
		{Path: kubenode.ServingCert, Mode: 0o644, Later: p == nil},
		{Path: kubenode.ServingKey, Mode: 0o600, Secret: true, Later: p == nil},
	}}
	if p != nil {
		st.Files[1].Content, st.Files[2].Content = p.CertPEM, p.KeyPEM
	}
	return st
}

func verifyCerts(ctx context.Context, in certsIn, e *tasks.Env) (fp.Output, error) {
	ca, err := e.Vault.Authority(clusterCA)
	if err != nil {
		return nil, err
	}
	if ca.Fingerprint() != in.CA {
		return nil, fmt.Errorf("the credential unit's authority is not the one install-masters.ca recorded")
	}
	b, err := e.Host.Get(ctx, kubenode.ServingCert)
	if err != nil {
		return nil, err
	}
	cert, err := pki.ParseCert(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kubenode.ServingCert, err)
	}
	if err := ca.Check(cert, in.leaf(), e.Now()); err != nil {
		return nil, err
	}
	e.Expires(pki.GoodUntil(cert.NotBefore, cert.NotAfter))
	return nil, nil
}
