package provision

import (
	_ "embed"
	"fmt"
	"strings"

	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/host"
	"hk/tasks/spec"
)

var (
	//go:embed files/containerd.toml
	containerdConfig string
	//go:embed files/containerd.service
	containerdUnit string
	//go:embed files/crictl.yaml
	crictlConfig string
	//go:embed files/hosts.toml
	mirrorConfig string
)

// Places of the container runtime.
const (
	containerdFile     = "/etc/containerd/config.toml"
	containerdUnitFile = "/etc/systemd/system/containerd.service"
	containerdService  = "containerd.service"
	mirrorFile         = "/etc/containerd/certs.d/registry.k8s.io/hosts.toml"
	crictlFile         = "/etc/crictl.yaml"
	// CNIBinDir is where the pod network's plugins are.
	CNIBinDir = "/opt/cni/bin"
)

type runtimeIn struct {
	Containerd host.Pin  `part:"artifact:containerd"`
	Shim       host.Pin  `part:"artifact:containerd-shim-runc-v2"`
	Ctr        host.Pin  `part:"artifact:ctr"`
	Runc       host.Pin  `part:"artifact:runc"`
	Crictl     host.Pin  `part:"artifact:crictl"`
	Plugins    host.Pins `part:"artifact:cni-plugins"`
	Mirror     string    `part:"config:mirrors.artifacts"`
	Registry   string    `part:"config:mirrors.registry"`
	Pause      string    `part:"versions:pause"`
	Cgroup     string    `part:"out:ssh.cgroup"`
	Restricted bool      `part:"out:ssh.restricted"`
}

// runtimeKind is the container runtime and its tools, on hosts that run pods.
func runtimeKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "runtime", Scope: graph.OnHost, Roles: kubeRoles, Recipe: 1,
		Needs: afterContact(),
		Title: "containerd, runc, CNI plugins, crictl",
	}, tasks.Def[runtimeIn]{Inputs: runtimeInputs, Declared: runtimeState})
}

func runtimeInputs(v *tasks.View) (runtimeIn, error) {
	o := v.Out(SSHKind)
	in := runtimeIn{
		Mirror: v.Spec.Mirrors.Artifacts, Registry: v.Spec.Mirrors.Registry,
		Cgroup: o["cgroup"], Restricted: o["restricted"] == "true",
	}
	p := pins{lock: v.Lock, arch: o["arch"]}
	in.Containerd = p.take(host.Containerd, "containerd")
	in.Shim = p.take(host.Containerd, "containerd-shim-runc-v2")
	in.Ctr = p.take(host.Containerd, "ctr")
	in.Runc = p.take(host.Runc, "")
	in.Crictl = p.take(host.Crictl, "crictl")
	for i, name := range host.CNIPluginNames() {
		in.Plugins[i] = p.take(host.CNIPlugins, name)
	}
	if p.err != nil {
		return in, p.err
	}
	in.Pause = v.Lock.Images["pause"]
	if in.Pause == "" {
		return in, fmt.Errorf("the lock file has no image pause")
	}
	return in, nil
}

func runtimeState(in runtimeIn) remote.HostState {
	used := []string{host.BinDir + "/containerd", containerdUnitFile, containerdFile}
	files := []remote.File{
		in.Containerd.At(host.BinDir+"/containerd", in.Mirror),
		in.Shim.At(host.BinDir+"/containerd-shim-runc-v2", in.Mirror),
		in.Ctr.At(host.BinDir+"/ctr", in.Mirror),
		in.Runc.At(host.BinDir+"/runc", in.Mirror),
		in.Crictl.At(host.BinDir+"/crictl", in.Mirror),
	}
	for i, name := range host.CNIPluginNames() {
		files = append(files, in.Plugins[i].At(CNIBinDir+"/"+name, in.Mirror))
	}
	files = append(files,
		remote.File{Path: containerdFile, Mode: 0o644, Content: []byte(in.config())},
		remote.File{Path: crictlFile, Mode: 0o644, Content: []byte(host.Fill(crictlConfig, "SOCKET", host.CRISocket))},
		remote.File{Path: containerdUnitFile, Mode: 0o644, Content: []byte(
			host.Fill(containerdUnit, "STARTED", host.StartedLine(containerdService, used)))},
	)
	mirror := remote.File{Path: mirrorFile, Mode: 0o644, Absent: in.Registry == ""}
	if !mirror.Absent {
		mirror.Content = []byte(host.Fill(mirrorConfig, "MIRROR", strings.TrimRight(in.Registry, "/")))
	}
	return remote.HostState{
		Files: append(files, mirror),
		Units: []remote.Unit{{Name: containerdService, Enabled: true, Active: true, Files: used}},
	}
}

// config is containerd's configuration. What is a property of the machine
// comes from facts: the cgroup driver, and whether oom scores may be lowered
// (without CAP_SYS_RESOURCE every sandbox would die at its start).
func (in runtimeIn) config() string {
	restrict := ""
	if in.Restricted {
		restrict = "  restrict_oom_score_adj = true\n"
	}
	systemd := "false"
	if in.Cgroup == "v2" {
		systemd = "true"
	}
	return host.Fill(containerdConfig, "PAUSE", in.Pause, "RESTRICT", restrict, "SYSTEMD", systemd, "CNIBIN", CNIBinDir)
}

// pins takes several pins and keeps the first error.
type pins struct {
	lock *spec.LockFile
	arch string
	err  error
}

func (p *pins) take(name, member string) host.Pin {
	pin, err := host.PinOf(p.lock, name, p.arch, member)
	if err != nil && p.err == nil {
		p.err = err
	}
	return pin
}
