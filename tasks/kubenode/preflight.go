package kubenode

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"hk/remote"
	"hk/tasks/host"
)

// Seen is what the outcome of kubeadm's preflight checks depends on.
type Seen struct {
	Restricted bool            // container-like machine
	CgroupV1   bool            //
	Exists     map[string]bool // of the files below
	Kubelet    bool            // kubelet runs
}

// component is a static pod with the port kubeadm finds taken when it runs.
type component struct {
	name string
	port int
}

// components are kubeadm's static pods of a control plane.
func components() []component {
	return []component{{"kube-apiserver", 6443}, {"kube-controller-manager", 10257}, {"kube-scheduler", 10259}}
}

// Manifests are the static pods' files.
func Manifests() []string {
	var out []string
	for _, c := range components() {
		out = append(out, ManifestDir+"/"+c.name+".yaml")
	}
	return out
}

// JoinFiles are what a half-done join leaves and kubeadm does not want to see.
func JoinFiles() []string { return []string{KubeletConf, BootstrapConf, ClusterCA} }

// IgnoreInit are the preflight errors that `kubeadm init` has to take as
// warnings here: what the kind of machine cannot have, and exactly what an
// earlier, half-done init left. A host never touched, on an ordinary machine,
// ignores nothing.
func IgnoreInit(s Seen) []string {
	out := machineLimits(s)
	for _, c := range components() {
		path := ManifestDir + "/" + c.name + ".yaml"
		if s.Exists[path] {
			out = append(out, fileAvailable(path), fmt.Sprintf("Port-%d", c.port))
		}
	}
	if s.Kubelet {
		out = append(out, "Port-10250")
	}
	slices.Sort(out)
	return out
}

// IgnoreJoin is the same for `kubeadm join`.
func IgnoreJoin(s Seen) []string {
	out := machineLimits(s)
	for _, path := range JoinFiles() {
		if s.Exists[path] {
			out = append(out, fileAvailable(path))
		}
	}
	if s.Kubelet {
		out = append(out, "Port-10250")
	}
	slices.Sort(out)
	return out
}

// machineLimits are checks that a container-like machine, or one with cgroup
// v1, fails whatever hk does: the kernel's config cannot be read there, and
// memory and processors are shared with the computer around it.
func machineLimits(s Seen) []string {
	var out []string
	if s.Restricted || s.CgroupV1 {
		out = append(out, "SystemVerification")
	}
	if s.Restricted {
		out = append(out, "Mem", "NumCPU")
	}
	return out
}

// fileAvailable is kubeadm's name of its check that a file is not there.
func fileAvailable(path string) string {
	return "FileAvailable-" + strings.ReplaceAll(path, "/", "-")
}

// Look sees a host as preflight will.
func Look(ctx context.Context, h remote.Host, restricted, cgroupV1 bool) (Seen, error) {
	paths := append(Manifests(), JoinFiles()...)
	paths = append(paths, kubeletConfig, kubeletFlagsEnv, ClientCurrent)
	f, err := h.Facts(ctx, remote.FactsQuery{Paths: paths, Units: []string{host.KubeletUnit}})
	if err != nil {
		return Seen{}, err
	}
	s := Seen{Restricted: restricted, CgroupV1: cgroupV1, Exists: map[string]bool{}}
	for _, p := range paths {
		s.Exists[p] = f.Files[p] != "" && f.Files[p] != "absent"
	}
	a := f.Units[host.KubeletUnit].Active
	s.Kubelet = a == "active" || a == "activating"
	return s, nil
}

// HasControlPlane reports that an init once got as far as writing everything a
// control plane starts from.
func (s Seen) HasControlPlane() bool {
	for _, p := range Manifests() {
		if !s.Exists[p] {
			return false
		}
	}
	return s.Exists[kubeletConfig] && s.Exists[kubeletFlagsEnv]
}

// HasJoined reports that kubelet has a way into the cluster of its own and a
// config to start with.
func (s Seen) HasJoined() bool {
	return s.Exists[KubeletConf] && s.Exists[ClientCurrent] && s.Exists[kubeletConfig] && s.Exists[kubeletFlagsEnv]
}
