package image

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strings"
)

// sumStyle is how a project publishes the checksum of a file.
type sumStyle int

const (
	sumBare  sumStyle = iota // FILE.sha256 holds the digest alone (Kubernetes, cri-tools)
	sumNamed                 // FILE.sha256 holds "digest  FILE"
)

// release is one release of one project as the mirror serves it: a folder that is
// made as a whole.
type release struct {
	name   string // of the step
	module goModule
	folder string // below the mirror's root, in upstream's layout
	files  []releaseFile
	// sums is one more file with the checksums of all, for projects that publish one.
	sums string
}

// releaseFile is one download.
type releaseFile struct {
	name    string // below the release's folder
	program string // a bare program of the build; or
	members map[string]string
	style   sumStyle
	sidecar string // suffix of one more checksum file, for projects with their own
}

// githubFolder is where GitHub serves the files of a release.
func githubFolder(repository, tag string) string {
	return path.Join(repository, "releases", "download", tag)
}

func kubernetesRelease(version string) release {
	r := release{name: "artifacts-kubernetes-" + version, module: kubernetesModule(version), folder: version}
	for _, p := range kubernetesPrograms() {
		r.files = append(r.files, releaseFile{name: "bin/linux/" + arch + "/" + p, program: p})
	}
	return r
}

func etcdRelease(version string) release {
	base := "etcd-" + version + "-linux-" + arch
	members := map[string]string{}
	for _, p := range []string{"etcd", "etcdctl", "etcdutl"} {
		members[base+"/"+p] = p
	}
	return release{
		name: "artifacts-etcd-" + version, module: etcdModule(version), folder: githubFolder("etcd-io/etcd", version), sums: "SHA256SUMS",
		files: []releaseFile{{name: base + ".tar.gz", members: members, style: sumNamed}},
	}
}

func containerdRelease(version string) release {
	members := map[string]string{}
	for _, p := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		members["bin/"+p] = p
	}
	return release{
		name: "artifacts-containerd-" + version, module: containerdModule(version), folder: githubFolder("containerd/containerd", version),
		files: []releaseFile{{
			name:    "containerd-" + strings.TrimPrefix(version, "v") + "-linux-" + arch + ".tar.gz",
			members: members, style: sumNamed, sidecar: ".sha256sum",
		}},
	}
}

func runcRelease(version string) release {
	return release{
		name: "artifacts-runc-" + version, module: runcModule(version), folder: githubFolder("opencontainers/runc", version), sums: "runc.sha256sum",
		files: []releaseFile{{name: "runc." + arch, program: "runc", style: sumNamed}},
	}
}

func cniRelease(version string) release {
	members := map[string]string{}
	for _, p := range cniPrograms() {
		members["./"+p] = p
	}
	return release{
		name: "artifacts-cni-" + version, module: cniModule(version), folder: githubFolder("containernetworking/plugins", version),
		files: []releaseFile{{name: "cni-plugins-linux-" + arch + "-" + version + ".tgz", members: members, style: sumNamed}},
	}
}

func crictlRelease(version string) release {
	return release{
		name: "artifacts-crictl-" + version, module: crictlModule(version), folder: githubFolder("kubernetes-sigs/cri-tools", version),
		files: []releaseFile{{name: "crictl-" + version + "-linux-" + arch + ".tar.gz", members: map[string]string{"crictl": "crictl"}}},
	}
}

// artifacts lists all releases, small ones first: whatever fails in them is known early.
func (m *maker) artifacts() []release {
	v := m.versions
	all := []release{
		etcdRelease(v.Etcd), crictlRelease(v.CRITools), runcRelease(v.Runc), containerdRelease(v.Containerd), cniRelease(v.CNI),
	}
	for _, k := range v.Kubernetes {
		all = append(all, kubernetesRelease(k))
	}
	return all
}

// publish makes a release's folder in the mirror from the programs in bin.
func (m *maker) publish(ctx context.Context, r release, bin string) error {
	s := step{name: r.name, recipe: 1, output: filepath.Join("artifacts", r.folder), inputs: []string{r.module.step().key()}}
	_, err := m.do(ctx, s, func(ctx context.Context, tmp string) error {
		return writeRelease(ctx, r, bin, tmp)
	})
	return err
}

// writeRelease writes the files of a release and their checksums into dir.
func writeRelease(ctx context.Context, r release, bin, dir string) error {
	var sums strings.Builder
	for _, f := range r.files {
		if err := ctx.Err(); err != nil {
			return err
		}
		to := filepath.Join(dir, f.name)
		if err := makeFolder(filepath.Dir(to)); err != nil {
			return err
		}
		if err := writeReleaseFile(f, bin, to); err != nil {
			return err
		}
		digest, err := fileSHA256(to)
		if err != nil {
			return err
		}
		named := fmt.Sprintf("%s  %s\n", digest, path.Base(f.name))
		sums.WriteString(named)
		text := named
		if f.style == sumBare {
			text = digest
		}
		if err := writePublic(to+".sha256", []byte(text), 0o644); err != nil {
			return err
		}
		if f.sidecar != "" {
			if err := writePublic(to+f.sidecar, []byte(named), 0o644); err != nil {
				return err
			}
		}
	}
	if r.sums == "" {
		return nil
	}
	return writePublic(filepath.Join(dir, r.sums), []byte(sums.String()), 0o644)
}

func writeReleaseFile(f releaseFile, bin, to string) error {
	if f.program != "" {
		return linkFile(filepath.Join(bin, f.program), to)
	}
	var entries []entry
	for name, program := range f.members {
		entries = append(entries, entry{name: name, mode: 0o755, from: filepath.Join(bin, program)})
	}
	return writeTarGz(to, entries)
}
