package workers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/host"
	"hk/tasks/kubenode"
	"hk/tasks/pki"
)

// Files of one join; gone with the next boot, and the second one before that.
const (
	joinFile      = "/run/hk/kubeadm-join.yaml"
	discoveryFile = "/run/hk/discovery.conf"
)

// joinLimit bounds kubeadm join with its own waiting.
const joinLimit = 8 * time.Minute

// Who a joining host is, for an hour: a member of the group whose certificate
// requests are approved by themselves.
const (
	bootstrapUser  = "system:bootstrap:hk"
	bootstrapGroup = "system:bootstrappers:kubeadm:default-node-token"
	bootstrapLife  = time.Hour
)

type joinIn struct {
	Cluster    string `part:"config:name"`
	Host       string `part:"alloc:host"`
	Node       string `part:"alloc:node"`
	ProviderID string `part:"out:server.id"`
	CgroupV1   bool   `part:"out:ssh.cgroup"`
	Restricted bool   `part:"out:ssh.restricted"`
	Kubelet    string `part:"out:kubelet.kubelet"`
	Config     string `part:"out:config.kubelet"`
}

// joinKind makes the host a Node and keeps its kubelet running.
func joinKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "join", Scope: graph.OnHost, Roles: onWorkers(), Recipe: 1,
		Needs: kubenode.OnHost(
			kubenode.Same(CertsKind), kubenode.Same(ConfigKind), kubenode.Same(kubenode.KubeletKind),
			kubenode.Same(kubenode.ImagesKind), kubenode.Same(kubenode.CheckKind),
			graph.Need{Kind: kubenode.BootstrapKind, Via: graph.ToCluster, Why: "it makes the settings and the rules that joining reads"},
		),
		Title: "join as a Node",
	}, tasks.Def[joinIn]{
		Inputs: func(v *tasks.View) (joinIn, error) {
			ssh := v.Out(kubenode.SSHKind)
			return joinIn{
				Cluster: v.Spec.Name, Host: v.Host.Name, Node: v.Host.Node,
				ProviderID: kubenode.ProviderID(v.Out(kubenode.ServerKind)["id"]),
				CgroupV1:   !kubenode.CgroupV2(ssh), Restricted: kubenode.Restricted(ssh),
				Kubelet: v.Out(kubenode.KubeletKind)["kubelet"], Config: v.Out(ConfigKind)["kubelet"],
			}, nil
		},
		Declared: func(joinIn) remote.HostState { return joinState() },
		Run:      runJoin,
		Verify: func(ctx context.Context, in joinIn, e *tasks.Env) (fp.Output, error) {
			return nil, kubenode.Registered(ctx, e, in.Node, in.ProviderID)
		},
	})
}

// joinState is kubelet's unit, what kubeadm and kubelet wrote, and the absence
// of the hour's credential.
func joinState() remote.HostState {
	st := remote.HostState{Files: kubenode.WrittenByKubeadm(), Units: []remote.Unit{kubenode.Unit()}}
	st.Files = append(st.Files,
		remote.File{Path: kubenode.ClusterCA, Mode: 0o644, Later: true},
		remote.File{Path: kubenode.KubeletConf, Mode: 0o600, Secret: true, Later: true},
		remote.File{Path: discoveryFile, Absent: true},
	)
	return st
}

func runJoin(ctx context.Context, in joinIn, e *tasks.Env) error {
	seen, err := kubenode.Look(ctx, e.Host, in.Restricted, in.CgroupV1)
	if err != nil {
		return err
	}
	member, err := isMember(ctx, in, seen, e)
	if err != nil {
		return err
	}
	if !member {
		if err := kubenode.DropStale(ctx, e, in.Node, in.ProviderID); err != nil {
			return err
		}
		if err := join(ctx, in, seen, e); err != nil {
			return err
		}
	}
	applied, err := e.Host.Apply(ctx, kubenode.Now(joinState()))
	if err != nil || !member || slices.Contains(applied.Restarted, host.KubeletUnit) {
		return err
	}
	return kubenode.RegisterAgain(ctx, e, in.Node)
}

// isMember reports that the host has joined and its own credential is good:
// then all it can need is a running kubelet. A kubelet that was off for longer
// than its certificate lives has to join again. The Node object is not asked
// for: a kubelet with a good credential makes it anew.
func isMember(ctx context.Context, in joinIn, seen kubenode.Seen, e *tasks.Env) (bool, error) {
	if !seen.HasJoined() {
		return false, nil
	}
	ca, err := e.Vault.Authority(clusterCA)
	if err != nil {
		return false, err
	}
	b, err := e.Host.Get(ctx, kubenode.ClientCurrent)
	if errors.Is(err, remote.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	c, err := pki.ParseCert(b)
	if err != nil {
		return false, nil //nolint:nilerr // what cannot be read is no credential
	}
	return ca.Check(c, pki.Leaf{CN: "system:node:" + in.Node}, e.Now()) == nil, nil
}

// join runs kubeadm join. Its name as a job is the same whatever an earlier run
// left, so that one still running is found and waited for.
func join(ctx context.Context, in joinIn, seen kubenode.Seen, e *tasks.Env) (err error) {
	text, err := e.Host.Get(ctx, kubenode.KubeadmConfig)
	if err != nil {
		return err
	}
	if text, err = withIgnored(text, kubenode.IgnoreJoin(seen)); err != nil {
		return err
	}
	discovery, err := discoveryConf(in, e)
	if err != nil {
		return err
	}
	_, err = e.Host.Apply(ctx, remote.HostState{Files: []remote.File{
		{Path: joinFile, Mode: 0o600, Content: text},
		{Path: discoveryFile, Mode: 0o600, Secret: true, Content: discovery},
	}})
	if err != nil {
		return err
	}
	defer func() {
		rmCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer cancel()
		_, rmErr := e.Host.Apply(rmCtx, remote.HostState{Files: []remote.File{{Path: discoveryFile, Absent: true}}})
		err = errors.Join(err, rmErr)
	}()
	r, err := e.Job(ctx, remote.Job{Argv: joinArgv(), Timeout: joinLimit})
	if err != nil {
		return err
	}
	return kubenode.JobError(in.Host, "kubeadm join", r)
}

func joinArgv() []string { return []string{host.BinDir + "/kubeadm", "join", "--config", joinFile} }

// withIgnored adds the preflight errors to take as warnings.
func withIgnored(text []byte, checks []string) ([]byte, error) {
	if len(checks) == 0 {
		return text, nil
	}
	b, err := yaml.Marshal(checks)
	if err != nil {
		return nil, err
	}
	// The last mapping of the file is nodeRegistration.
	var out strings.Builder
	out.Write(text)
	out.WriteString("  ignorePreflightErrors:\n")
	for line := range strings.Lines(string(b)) {
		out.WriteString("  " + line)
	}
	return []byte(out.String()), nil
}

// discoveryConf is how a host finds and trusts the cluster for one hour.
func discoveryConf(in joinIn, e *tasks.Env) ([]byte, error) {
	ca, err := e.Vault.Authority(clusterCA)
	if err != nil {
		return nil, err
	}
	p, err := ca.Issue(pki.Leaf{CN: bootstrapUser, Orgs: []string{bootstrapGroup}, Client: true, Life: bootstrapLife}, e.Now())
	if err != nil {
		return nil, err
	}
	return pki.Kubeconfig{
		Cluster: in.Cluster, User: "hk-join", Server: "https://" + kubenode.LocalEndpoint, CA: ca.CertPEM, Cert: p.CertPEM, Key: p.KeyPEM,
	}.Render(), nil
}
