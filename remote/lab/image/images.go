package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// registryHost is the registry whose images kubeadm names. The tools image does not
// exist there: it has the same host so that one mirror setting in containerd serves all.
const registryHost = "registry.k8s.io"

// ToolsImage is a small image for checks: busybox, and the HTTP server hk-tools as
// its entry point.
func ToolsImage(v Versions) string { return registryHost + "/hk-tools:" + v.Tools }

// picture is one image to make.
type picture struct {
	ref    string // registry.k8s.io/pause:3.10.2
	layers [][]entry
	config v1.Config
}

// file is the name of the image's archive: pause-3.10.2.tar.
func (p picture) file() string {
	repository, tag := splitRef(p.ref)
	return strings.ReplaceAll(repository, "/", "-") + "-" + tag + ".tar"
}

// splitRef takes host and tag off a reference.
func splitRef(ref string) (repository, tag string) {
	_, rest, _ := strings.Cut(ref, "/")
	repository, tag, _ = strings.Cut(rest, ":")
	return repository, tag
}

// images makes the archives of all versions' images in one folder.
func (m *maker) images(ctx context.Context) (string, error) {
	packages, err := m.snapshotPackages(ctx)
	if err != nil {
		return "", err
	}
	own, err := m.build(ctx, ownModule())
	if err != nil {
		return "", err
	}
	// CoreDNS' version is what kubeadm asks for, so it follows from Kubernetes'.
	inputs := []string{packages, own, m.versions.Tools, ownModule().step().key(), corednsModule("").step().key()}
	for _, v := range m.versions.Kubernetes {
		// Built before the step: what it builds in turn must not wait for itself.
		if _, err := m.build(ctx, kubernetesModule(v)); err != nil {
			return "", err
		}
		inputs = append(inputs, kubernetesModule(v).step().key())
	}
	s := step{name: "images", recipe: 1, output: "images-KEY", inputs: inputs}
	return m.do(ctx, s, func(ctx context.Context, tmp string) error {
		busybox, err := m.busybox(ctx)
		if err != nil {
			return err
		}
		if err := makeFolder(tmp); err != nil {
			return err
		}
		ix := index{Images: map[string]indexImage{}}
		if err := ix.add(ctx, tmp, "", toolsPicture(m.versions, own, busybox)); err != nil {
			return err
		}
		for _, v := range m.versions.Kubernetes {
			pictures, err := m.kubernetesPictures(ctx, v, packages, own)
			if err != nil {
				return err
			}
			if err := ix.add(ctx, tmp, v, pictures...); err != nil {
				return err
			}
		}
		return ix.write(tmp)
	})
}

// add writes the archives of pictures that are not there yet: two versions of
// Kubernetes often share pause and coredns.
func (ix index) add(ctx context.Context, dir, kubernetes string, pictures ...picture) error {
	for _, p := range pictures {
		if err := ctx.Err(); err != nil {
			return err
		}
		img, ok := ix.Images[p.ref]
		if !ok {
			var err error
			if img, err = writeImage(p, dir); err != nil {
				return fmt.Errorf("making image %s: %w", p.ref, err)
			}
		}
		if kubernetes != "" {
			img.Kubernetes = append(img.Kubernetes, kubernetes)
		}
		ix.Images[p.ref] = img
	}
	return nil
}

// kubernetesPictures are the images of one version, under the very names that this
// version's kubeadm asks for. Only etcd's is left out: see doc.go.
func (m *maker) kubernetesPictures(ctx context.Context, version, packages, own string) ([]picture, error) {
	bin, err := m.build(ctx, kubernetesModule(version))
	if err != nil {
		return nil, err
	}
	list, err := output(ctx, filepath.Join(bin, "kubeadm"), "config", "images", "list", "--kubernetes-version", version)
	if err != nil {
		return nil, err
	}
	base, err := baseLayer(packages)
	if err != nil {
		return nil, err
	}
	var pictures []picture
	for ref := range strings.FieldsSeq(list) {
		repository, tag := splitRef(ref)
		name := path.Base(repository)
		switch name {
		case "etcd":
		case "pause":
			pictures = append(pictures, pausePicture(ref, own))
		case "coredns":
			coredns, err := m.build(ctx, corednsModule(tag))
			if err != nil {
				return nil, err
			}
			pictures = append(pictures, programPicture(ref, base, filepath.Join(coredns, name), "/coredns"))
		case "kube-proxy":
			p := programPicture(ref, base, filepath.Join(bin, name), "/usr/local/bin/"+name)
			tools, err := networkTools(packages)
			if err != nil {
				return nil, err
			}
			p.layers = [][]entry{append(tools, base...), p.layers[1]}
			pictures = append(pictures, p)
		case "kube-apiserver", "kube-controller-manager", "kube-scheduler":
			pictures = append(pictures, programPicture(ref, base, filepath.Join(bin, name), "/usr/local/bin/"+name))
		default:
			return nil, fmt.Errorf("kubeadm %s names image %s, which this recipe does not know", version, ref)
		}
	}
	return pictures, nil
}

// programPicture is an image with one static program on the base layer.
func programPicture(ref string, base []entry, from, to string) picture {
	return picture{
		ref:    ref,
		layers: [][]entry{base, {{name: strings.TrimPrefix(to, "/"), mode: 0o755, from: from}}},
		config: v1.Config{
			Env:        []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"},
			Entrypoint: []string{to}, WorkingDir: "/",
		},
	}
}

// pausePicture has nothing but the program, and upstream's user.
func pausePicture(ref, own string) picture {
	p := programPicture(ref, nil, filepath.Join(own, "pause"), "/pause")
	p.layers, p.config.User = p.layers[1:], "65535:65535"
	return p
}

// toolsPicture is the image for checks.
func toolsPicture(v Versions, own string, busybox string) picture {
	p := programPicture(ToolsImage(v), nil, filepath.Join(own, "hk-tools"), "/usr/local/bin/hk-tools")
	links := []entry{
		{name: "bin/busybox", mode: 0o755, from: busybox},
		{name: "tmp", mode: 0o1777},
		{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/:/bin/sh\n")},
	}
	for _, tool := range []string{
		"sh", "cat", "cp", "date", "dd", "echo", "env", "grep", "head", "hostname", "id", "ip", "ls", "md5sum", "mkdir", "mv", "nc",
		"netstat", "nslookup", "ping", "printf", "ps", "rm", "sed", "sha256sum", "sleep", "stat", "tail", "test", "time", "timeout",
		"touch", "tr", "traceroute", "true", "wc", "wget",
	} {
		links = append(links, entry{name: "bin/" + tool, mode: 0o777, link: "busybox"})
	}
	p.layers[0] = links
	return p
}

// baseLayer is what a program expects of its root: names for users, certificates.
func baseLayer(root string) ([]entry, error) {
	certs, err := os.ReadFile(filepath.Join(root, "etc/ssl/certs/ca-certificates.crt"))
	if err != nil {
		return nil, err
	}
	return []entry{
		{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n")},
		{name: "etc/group", mode: 0o644, data: []byte("root:x:0:\nnobody:x:65534:\n")},
		{name: "etc/nsswitch.conf", mode: 0o644, data: []byte("hosts: files dns\n")},
		{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: certs},
		{name: "tmp", mode: 0o1777},
		{name: "root", mode: 0o700},
	}, nil
}

// networkTools are the programs that kube-proxy runs, with their libraries, taken
// from a Debian root.
func networkTools(root string) ([]entry, error) {
	programs := []string{"usr/sbin/nft", "usr/sbin/conntrack", "usr/sbin/ipset", "usr/sbin/xtables-nft-multi", "usr/sbin/xtables-legacy-multi"}
	plugins, err := filepath.Glob(filepath.Join(root, "usr/lib/x86_64-linux-gnu/xtables/*.so"))
	if err != nil {
		return nil, err
	}
	for _, p := range plugins {
		programs = append(programs, strings.TrimPrefix(p, root+"/"))
	}
	libs, err := libraries(root, programs)
	if err != nil {
		return nil, err
	}
	var entries []entry
	seen := map[string]bool{}
	for _, name := range append(programs, libs...) {
		if seen[name] {
			continue
		}
		seen[name] = true
		st, err := os.Stat(filepath.Join(root, name))
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: name, mode: int64(st.Mode().Perm()), from: filepath.Join(root, name)})
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		entries = append(entries, entry{name: dir, mode: 0o777, link: "usr/" + dir})
	}
	// The loader's path is fixed in every program: /lib64/ld-linux-x86-64.so.2.
	const loader = "ld-linux-x86-64.so.2"
	if !seen["usr/lib64/"+loader] {
		entries = append(entries, entry{name: "usr/lib64/" + loader, mode: 0o777, link: "../lib/x86_64-linux-gnu/" + loader})
	}
	for _, tool := range []string{"iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"} {
		entries = append(entries, entry{name: "usr/sbin/" + tool, mode: 0o777, link: "xtables-nft-multi"})
	}
	for _, file := range []string{"etc/protocols", "etc/services"} {
		data, err := os.ReadFile(filepath.Join(root, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: file, mode: 0o644, data: data})
	}
	return entries, nil
}

// busybox fetches Debian's static busybox without installing it on the computer.
func (m *maker) busybox(ctx context.Context) (string, error) {
	s := step{name: "busybox", recipe: 1, output: "build/busybox", inputs: []string{suite}}
	dir, err := m.do(ctx, s, func(ctx context.Context, tmp string) error {
		if err := makeFolder(tmp); err != nil {
			return err
		}
		env, err := aptEnv(ctx)
		if err != nil {
			return err
		}
		const script = `set -eu
apt-get -q -o APT::Sandbox::User=root download busybox-static
dpkg-deb --extract busybox-static_*.deb .
`
		fetch := command{step: "busybox", dir: tmp, env: env, args: []string{"sh", "-c", script}}
		if err := m.run(ctx, fetch); err == nil {
			return nil
		}
		if err := m.run(ctx, command{step: "busybox", env: env, args: []string{"apt-get", "update", "-q"}}); err != nil {
			m.logf("busybox: apt-get update had errors, going on")
		}
		return m.run(ctx, fetch)
	})
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "bin/busybox"), nil
}
