package masters

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/etcd"
	"hk/tasks/kubenode"
	"hk/tasks/spec"
)

type configIn struct {
	Cluster    string         `part:"config:name"`
	Host       string         `part:"alloc:host"`
	Node       string         `part:"alloc:node"`
	MeshIP     string         `part:"alloc:mesh"`
	ProviderID string         `part:"out:server.id"`
	Version    string         `part:"versions:kubernetes"`
	Pods       string         `part:"config:network.pods"`
	Services   string         `part:"config:network.services"`
	External   string         `part:"config:endpoint.external"`
	Etcd       []string       `part:"alloc:etcd-endpoints"`
	CgroupV2   bool           `part:"out:ssh.cgroup"`
	Kubeadm    map[string]any `part:"config:kubernetes.kubeadm"`
	Kubelet    map[string]any `part:"config:kubernetes.kubelet"`
}

// configKind writes what kubeadm and kubelet are told. It changes nothing that
// runs: that is control-plane's, which needs this.
func configKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "config", Scope: graph.OnHost, Roles: []string{spec.Master}, Recipe: 1,
		Needs: kubenode.OnHost(needLoadBalancer()),
		Title: "kubeadm's and kubelet's settings on masters",
	}, tasks.Def[configIn]{
		Inputs:   configInputs,
		Declared: configState,
		Verify:   verifyConfig,
	})
}

// verifyConfig hands over digests, apart for what all masters share: what the
// cluster keeps a copy of, and what is this master's own.
func verifyConfig(_ context.Context, in configIn, _ *tasks.Env) (fp.Output, error) {
	text, err := in.kubeadmYAML()
	if err != nil {
		return nil, err
	}
	dropIn, err := in.kubelet().Render()
	if err != nil {
		return nil, err
	}
	own, shared, _ := bytes.Cut(text, []byte(separator))
	return fp.Output{"own": short(own), "shared": short(shared), "kubelet": short(dropIn)}, nil
}

func short(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

func configInputs(v *tasks.View) (configIn, error) {
	in := configIn{
		Cluster: v.Spec.Name, Host: v.Host.Name, Node: v.Host.Node, MeshIP: v.Host.MeshIP,
		ProviderID: kubenode.ProviderID(v.Out(kubenode.ServerKind)["id"]),
		Version:    v.Spec.Kubernetes.Version, Pods: v.Spec.Network.Pods, Services: v.Spec.Network.Services,
		External: external(v), Etcd: etcd.Endpoints(etcd.Members(v)),
		CgroupV2: kubenode.CgroupV2(v.Out(kubenode.SSHKind)),
		Kubeadm:  v.Spec.Kubernetes.Kubeadm, Kubelet: v.Spec.Kubernetes.Kubelet,
	}
	// What cannot be merged is found here, where it is an error of the config.
	if len(in.Kubeadm) > 0 {
		if _, err := in.kubeadmYAML(); err != nil {
			return in, err
		}
	}
	if len(in.Kubelet) > 0 {
		if _, err := in.kubelet().Render(); err != nil {
			return in, err
		}
	}
	return in, nil
}

func (in configIn) kubelet() kubenode.Kubelet {
	return kubenode.Kubelet{ProviderID: in.ProviderID, CgroupV2: in.CgroupV2, Master: true, Extra: in.Kubelet}
}

func configState(in configIn) remote.HostState {
	kubeadm, err := in.kubeadmYAML()
	if err != nil {
		panic("bug: " + err.Error()) // Inputs has rendered the same
	}
	dropIn, err := in.kubelet().File()
	if err != nil {
		panic("bug: " + err.Error())
	}
	return remote.HostState{Files: []remote.File{
		{Path: kubenode.KubeadmConfig, Mode: 0o600, Content: kubeadm},
		dropIn,
	}}
}
