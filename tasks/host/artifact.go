package host

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"hk/remote"
	"hk/tasks/spec"
)

// Names of the artifacts in the lock file.
const (
	Kubeadm    = "kubeadm"
	Kubelet    = "kubelet"
	Kubectl    = "kubectl"
	Etcd       = "etcd"
	Containerd = "containerd"
	Runc       = "runc"
	CNIPlugins = "cni-plugins"
	Crictl     = "crictl"
)

// BinDir is where hk puts programs on hosts; the Debian packages' own place,
// /usr/bin, stays theirs.
const BinDir = "/usr/local/bin"

// Upstream places of the lock file's paths.
const (
	kubernetesBase = "https://dl.k8s.io"
	githubBase     = "https://github.com"
)

// Pin is one file out of the lock file's artifacts as a kind's input: what it is
// and which bytes it must have, not where it comes from.
type Pin struct {
	Name    string // artifact, such as etcd
	Version string
	Path    string // below the mirror, upstream's layout
	SHA256  string // of the download
	Member  string // file inside the archive; "" for the download itself
	File    string // SHA-256 of the file as it will be on the host
}

// Canonical is the pin as a part of a fingerprint. None of its fields holds a
// space.
func (p Pin) Canonical() string {
	s := p.Name + " " + p.Version + " " + p.Path + " sha256:" + p.SHA256
	if p.Member != "" {
		s += " " + p.Member + " sha256:" + p.File
	}
	return s
}

// Pins are several files out of one artifact.
type Pins [6]Pin

// Canonical is Pin's, one a line.
func (p Pins) Canonical() string {
	var b strings.Builder
	for i := range p {
		b.WriteString(p[i].Canonical())
		b.WriteByte('\n')
	}
	return b.String()
}

// LockKey is the lock file's key of an artifact for an architecture (Go's
// spelling). amd64 is the plain name.
func LockKey(name, arch string) string {
	if arch == "" || arch == "amd64" {
		return name
	}
	return name + "-" + arch
}

// PinOf looks up an artifact's member for an architecture. For archives the
// member is found by its base name, as upstream's leading folder holds the
// version.
func PinOf(l *spec.LockFile, name, arch, member string) (Pin, error) {
	if l == nil {
		return Pin{}, fmt.Errorf("there is no lock file to take %s from", name)
	}
	a, ok := l.Artifacts[LockKey(name, arch)]
	if !ok {
		return Pin{}, fmt.Errorf("the lock file has no artifact %s", LockKey(name, arch))
	}
	p := Pin{Name: name, Version: a.Version, Path: a.Path, SHA256: a.SHA256, File: a.SHA256}
	if member == "" {
		return p, nil
	}
	var members []string
	for m := range a.Files {
		if path.Base(m) == member {
			members = append(members, m)
		}
	}
	if len(members) == 0 {
		return Pin{}, fmt.Errorf("the lock file's artifact %s has no file %s", name, member)
	}
	// The shortest path wins, so that docs/etcd never hides etcd.
	slices.SortFunc(members, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
	p.Member, p.File = members[0], a.Files[members[0]]
	return p, nil
}

// At is the pinned file at a path of the host, mode 0755. With a mirror
// everything comes from there, upstream's layout below it.
func (p Pin) At(dst, mirror string) remote.File {
	return remote.File{
		Path: dst, Mode: 0o755,
		Artifact: &remote.Artifact{
			Name: p.Name, URLs: []string{URL(mirror, p.Path)},
			SHA256: p.SHA256, Member: p.Member, FileSHA256: p.File,
		},
	}
}

// URL is where a lock file's path is downloaded from.
func URL(mirror, p string) string {
	base := strings.TrimRight(mirror, "/")
	if base == "" {
		base = githubBase
		if isKubernetesPath(p) {
			base = kubernetesBase
		}
	}
	return base + "/" + strings.TrimLeft(p, "/")
}

// isKubernetesPath tells dl.k8s.io's layout (/v1.37.2/bin/linux/amd64/kubelet)
// from github.com's (/OWNER/REPOSITORY/releases/download/TAG/FILE).
func isKubernetesPath(p string) bool {
	first, _, _ := strings.Cut(strings.TrimLeft(p, "/"), "/")
	return len(first) > 1 && first[0] == 'v' && first[1] >= '0' && first[1] <= '9'
}
