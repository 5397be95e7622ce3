package image

import (
	"context"
	"path/filepath"
)

// Where hk's prepare installs programs on a host. The snapshot holds the same bytes
// at the same places, so that prepare finds nothing to do.
const (
	programFolder = "usr/local/bin"
	cniFolder     = "opt/cni/bin"
)

// snapshotPackages is the stock root with hk's Debian packages: half of the snapshot,
// and where kube-proxy's image takes its tools from.
func (m *maker) snapshotPackages(ctx context.Context) (string, error) {
	stock, err := m.stock(ctx)
	if err != nil {
		return "", err
	}
	s := step{
		name: "snapshot-packages", recipe: 1, output: "build/snapshot-packages-KEY",
		inputs: append([]string{stock}, snapshotDebs()...),
	}
	return m.do(ctx, s, func(ctx context.Context, tmp string) error {
		// A copy, not links: dpkg replaces files, but maintainer scripts append to some.
		if err := m.run(ctx, command{step: s.name, args: []string{"cp", "-a", stock, tmp}}); err != nil {
			return err
		}
		if err := m.aptInstall(ctx, s.name, tmp, snapshotDebs()); err != nil {
			return err
		}
		// Debian starts its example configuration; hk brings its own.
		if err := m.run(ctx, command{step: s.name, args: []string{"systemctl", "--root=" + tmp, "disable", "haproxy"}}); err != nil {
			return err
		}
		return m.finishRoot(ctx, s.name, tmp)
	})
}

// snapshot is the root with everything hk installs, for Kubernetes' first version.
func (m *maker) snapshot(ctx context.Context) (string, error) {
	packages, err := m.snapshotPackages(ctx)
	if err != nil {
		return "", err
	}
	v := m.versions
	modules := []goModule{
		kubernetesModule(v.Kubernetes[0]), etcdModule(v.Etcd), containerdModule(v.Containerd), runcModule(v.Runc),
		cniModule(v.CNI), crictlModule(v.CRITools),
	}
	install := map[string]string{}
	inputs := []string{packages}
	for _, g := range modules {
		bin, err := m.build(ctx, g)
		if err != nil {
			return "", err
		}
		inputs = append(inputs, g.step().key())
		for program := range g.programs {
			switch {
			case g.name == "cni":
				install[filepath.Join(cniFolder, program)] = filepath.Join(bin, program)
			case !isImageProgram(program):
				install[filepath.Join(programFolder, program)] = filepath.Join(bin, program)
			}
		}
	}
	s := step{name: Snapshot, recipe: 1, output: "roots/" + Snapshot + "-KEY", inputs: inputs}
	return m.do(ctx, s, func(_ context.Context, tmp string) error {
		// Links: from here on files are only added, and both roots are read-only ever after.
		if err := copyTree(packages, tmp, func(string) bool { return true }); err != nil {
			return err
		}
		for to, from := range install {
			to = filepath.Join(tmp, to)
			if err := makeFolder(filepath.Dir(to)); err != nil {
				return err
			}
			if err := linkFile(from, to); err != nil {
				return err
			}
		}
		return nil
	})
}

// isImageProgram reports whether hosts get a program only inside a container image.
func isImageProgram(name string) bool {
	switch name {
	case "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy":
		return true
	}
	return false
}
