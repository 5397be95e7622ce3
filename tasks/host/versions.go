package host

import (
	"fmt"
	"strings"

	"hk/tasks/spec"
)

// Versions of everything a cluster downloads.
type Versions struct {
	Kubernetes string // v1.37.2
	Etcd       string // v3.7.3
	Containerd string // v2.4.2
	Runc       string // v1.5.3
	CNI        string // v1.10.0
	Crictl     string // v1.37.0
	Pause      string // 3.10.2
	CoreDNS    string // v1.14.6
}

// VersionsFor are the versions that go with one of Kubernetes. Pause and CoreDNS
// are the ones kubeadm names (cmd/kubeadm/app/constants); another pause image
// than kubeadm's would be pulled in vain. The others were tried together.
func VersionsFor(kubernetes string) (Versions, error) {
	v := Versions{
		Kubernetes: kubernetes, Etcd: "v3.7.3", Containerd: "v2.4.2", Runc: "v1.5.3", CNI: "v1.10.0", Crictl: "v1.37.0",
		Pause: "3.10.2",
	}
	switch {
	case strings.HasPrefix(kubernetes, "v1.37."):
		v.CoreDNS = "v1.14.6"
	case strings.HasPrefix(kubernetes, "v1.36."):
		v.CoreDNS = "v1.14.2"
	default:
		return v, fmt.Errorf("nothing is known of the versions that go with Kubernetes %s", kubernetes)
	}
	return v, nil
}

// images are the container images by the names the lock file uses.
func (v Versions) images() map[string]string {
	const registry = "registry.k8s.io/"
	out := map[string]string{
		"pause":   registry + "pause:" + v.Pause,
		"coredns": registry + "coredns/coredns:" + v.CoreDNS,
	}
	for _, n := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"} {
		out[n] = registry + n + ":" + v.Kubernetes
	}
	return out
}

// ArchOf is the architecture of a server type: Hetzner's Ampere types are all
// called cax.
func ArchOf(serverType string) string {
	if strings.HasPrefix(serverType, "cax") {
		return "arm64"
	}
	return "amd64"
}

// Arches are the architectures a cluster's artifacts are needed for. Machines
// of the lab and the sim are what the operator's computer is, whatever their
// type is called.
func Arches(c *spec.Cluster) []string {
	if c.Cloud != "hetzner" {
		return []string{"amd64"}
	}
	seen := map[string]bool{}
	types := []string{c.Masters.Type}
	if c.Etcd.Count > 0 {
		types = append(types, c.Etcd.Type)
	}
	for i := range c.Workers {
		types = append(types, c.Workers[i].Type)
	}
	var out []string
	for _, t := range types {
		if a := ArchOf(t); !seen[a] {
			seen[a] = true
			out = append(out, a)
		}
	}
	return out
}

// download is one file of upstream and what is taken out of it.
type download struct {
	name    string // of the artifact
	version string
	path    string   // below the mirror, upstream's layout
	sum     string   // path of the file that holds its checksum
	members []string // base names inside the archive; nil for the file itself
}

// downloads are all files for one architecture, with upstream's own ways of
// publishing checksums.
func (v Versions) downloads(arch string) []download {
	release := func(repository, tag, file string) string {
		return "/" + repository + "/releases/download/" + tag + "/" + file
	}
	var out []download
	for _, n := range []string{Kubeadm, Kubelet, Kubectl} {
		p := "/" + v.Kubernetes + "/bin/linux/" + arch + "/" + n
		out = append(out, download{name: n, version: v.Kubernetes, path: p, sum: p + ".sha256"})
	}
	add := func(name, version, repository, file, sum string, members ...string) {
		out = append(out, download{
			name: name, version: version, path: release(repository, version, file), sum: release(repository, version, sum), members: members,
		})
	}
	file := "etcd-" + v.Etcd + "-linux-" + arch + ".tar.gz"
	add(Etcd, v.Etcd, "etcd-io/etcd", file, "SHA256SUMS", "etcd", "etcdctl", "etcdutl")
	file = "containerd-" + strings.TrimPrefix(v.Containerd, "v") + "-linux-" + arch + ".tar.gz"
	add(Containerd, v.Containerd, "containerd/containerd", file, file+".sha256sum", "containerd", "containerd-shim-runc-v2", "ctr")
	add(Runc, v.Runc, "opencontainers/runc", "runc."+arch, "runc.sha256sum")
	file = "cni-plugins-linux-" + arch + "-" + v.CNI + ".tgz"
	plugins := CNIPluginNames()
	add(CNIPlugins, v.CNI, "containernetworking/plugins", file, file+".sha256", plugins[:]...)
	file = "crictl-" + v.Crictl + "-linux-" + arch + ".tar.gz"
	add(Crictl, v.Crictl, "kubernetes-sigs/cri-tools", file, file+".sha256", "crictl")
	return out
}

// CNIPluginNames are the plugins that the pod network "mesh" and kubelet use,
// and those that people's own networks are mostly built from.
func CNIPluginNames() [6]string {
	return [...]string{"bandwidth", "bridge", "host-local", "loopback", "portmap", "ptp"}
}
