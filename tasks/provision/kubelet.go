package provision

import (
	"context"
	_ "embed"
	"io/fs"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/host"
)

var (
	//go:embed files/kubelet.service
	kubeletUnit string
	//go:embed files/10-kubeadm.conf
	kubeletDropIn string
)

type kubeletIn struct {
	Version string   `part:"versions:kubernetes"`
	Kubeadm host.Pin `part:"artifact:kubeadm"`
	Kubelet host.Pin `part:"artifact:kubelet"`
	Kubectl host.Pin `part:"artifact:kubectl"`
	Mirror  string   `part:"config:mirrors.artifacts"`
}

// kubeletKind brings the programs and the unit of Kubernetes. Whether kubelet
// runs belongs to whoever has a config for it: control-plane on masters, join
// on workers. That it starts with the machine is a link here, because a unit's
// state has one owner.
//
// Its output is what the running kubelet depends on, so that the owner of the
// unit restarts it when one of these files is another.
func kubeletKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "kubelet", Scope: graph.OnHost, Roles: kubeRoles, Recipe: 1,
		Needs: afterContact(),
		Title: "kubeadm, kubelet, kubectl",
	}, tasks.Def[kubeletIn]{
		Inputs: func(v *tasks.View) (kubeletIn, error) {
			p := pins{lock: v.Lock, arch: v.Out(SSHKind)["arch"]}
			in := kubeletIn{
				Version: v.Spec.Kubernetes.Version, Mirror: v.Spec.Mirrors.Artifacts,
				Kubeadm: p.take(host.Kubeadm, ""), Kubelet: p.take(host.Kubelet, ""), Kubectl: p.take(host.Kubectl, ""),
			}
			return in, p.err
		},
		Declared: kubeletState,
		Verify: func(_ context.Context, in kubeletIn, _ *tasks.Env) (fp.Output, error) {
			// The declared files are compared with the host's own facts after
			// this; what is declared is what is handed over.
			return fp.Output{"version": in.Version, "kubelet": in.Kubelet.File[:min(16, len(in.Kubelet.File))]}, nil
		},
	})
}

func kubeletState(in kubeletIn) remote.HostState {
	return remote.HostState{Files: []remote.File{
		in.Kubeadm.At(host.BinDir+"/kubeadm", in.Mirror),
		in.Kubelet.At(host.BinDir+"/kubelet", in.Mirror),
		in.Kubectl.At(host.BinDir+"/kubectl", in.Mirror),
		{Path: host.KubeletConfigDir, Mode: fs.ModeDir | 0o755},
		{Path: host.KubeletUnitFile, Mode: 0o644, Content: []byte(
			host.Fill(kubeletUnit, "STARTED", host.StartedLine(host.KubeletUnit, host.KubeletFiles())))},
		{Path: host.KubeletDropIn, Mode: 0o644, Content: []byte(kubeletDropIn)},
		{Path: "/etc/systemd/system/multi-user.target.wants/kubelet.service", Link: host.KubeletUnitFile},
	}}
}
