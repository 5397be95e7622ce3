package workers

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/host"
	"hk/tasks/kubenode"
	"hk/tasks/spec"
)

//go:embed files/kubeadm.yaml
var kubeadmText string

type configIn struct {
	Host       string         `part:"alloc:host"`
	Node       string         `part:"alloc:node"`
	MeshIP     string         `part:"alloc:mesh"`
	ProviderID string         `part:"out:server.id"`
	CgroupV2   bool           `part:"out:ssh.cgroup"`
	Taints     []spec.Taint   `part:"config:workers.taints"`
	Kubelet    map[string]any `part:"config:kubernetes.kubelet"`
}

// configKind writes what kubeadm join and kubelet are told. The taints are
// there so that a Node has them from its first moment; later changes are the
// node kind's. Its output is kubelet's part alone: what only joining reads does
// not touch a Node that has joined.
func configKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "config", Scope: graph.OnHost, Roles: onWorkers(), Recipe: 1,
		Needs: kubenode.OnHost(), Title: "kubeadm's and kubelet's settings on workers",
	}, tasks.Def[configIn]{
		Inputs: func(v *tasks.View) (configIn, error) {
			in := configIn{
				Host: v.Host.Name, Node: v.Host.Node, MeshIP: v.Host.MeshIP,
				ProviderID: kubenode.ProviderID(v.Out(kubenode.ServerKind)["id"]),
				CgroupV2:   kubenode.CgroupV2(v.Out(kubenode.SSHKind)),
				Taints:     v.Host.Taints, Kubelet: v.Spec.Kubernetes.Kubelet,
			}
			if len(in.Kubelet) == 0 {
				return in, nil
			}
			_, err := in.kubelet().Render()
			return in, err
		},
		Declared: configState,
		Verify: func(_ context.Context, in configIn, _ *tasks.Env) (fp.Output, error) {
			dropIn, err := in.kubelet().Render()
			if err != nil {
				return nil, err
			}
			sum := sha256.Sum256(dropIn)
			return fp.Output{"kubelet": hex.EncodeToString(sum[:16])}, nil
		},
	})
}

func (in configIn) kubelet() kubenode.Kubelet {
	return kubenode.Kubelet{ProviderID: in.ProviderID, CgroupV2: in.CgroupV2, Extra: in.Kubelet}
}

func configState(in configIn) remote.HostState {
	dropIn, err := in.kubelet().File()
	if err != nil {
		panic("bug: " + err.Error()) // Inputs has rendered the same
	}
	taints := "[]"
	if len(in.Taints) > 0 {
		b, err := json.Marshal(kubenode.RegisterTaints(in.Taints)) // JSON is YAML
		if err != nil {
			panic("bug: " + err.Error())
		}
		taints = string(b)
	}
	return remote.HostState{Files: []remote.File{
		{Path: kubenode.KubeadmConfig, Mode: 0o600, Content: []byte(host.Fill(kubeadmText,
			"NODE", in.Node, "CRI", host.CRISocket, "MESH", in.MeshIP, "TAINTS", taints))},
		dropIn,
	}}
}
