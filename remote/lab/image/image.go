package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
	"golang.org/x/sys/unix"
)

// Names of the machine images, as the lab's Cloud API lists them.
const (
	// Stock holds only what Hetzner's stock image holds.
	Stock = "debian-12"
	// Snapshot holds everything hk's prepare installs, and filled container storage.
	Snapshot = "hk-snapshot"
)

// Options says where and what to prepare. The zero value is usable.
type Options struct {
	// CacheDir is hk's cache directory; empty means hk's folder in the XDG cache directory.
	CacheDir string
	// Log receives one line per thing worth telling; nil discards them. It may be
	// called from several goroutines, but never by two at the same time.
	Log func(line string)
	// KubernetesVersions to build, the first one is the snapshot's; empty means [DefaultVersions].
	KubernetesVersions []string
	// ExtraPackages are Debian packages the caller wants on this computer besides this room's own.
	ExtraPackages []string
}

// Set says where the prepared things are. All paths are absolute.
type Set struct {
	// Roots maps an image name ([Stock], [Snapshot]) to a directory that never changes:
	// the lower layer of a machine's overlay. The path of the same image differs after
	// a newer recipe, so a machine must remember the path it was made from.
	Roots map[string]string
	// Containerd maps an image name to a filled /var/lib/containerd, for [FillContainerd].
	// Images without an entry start with an empty one.
	Containerd map[string]string
	// Artifacts is a directory tree as [Mirror] serves it.
	Artifacts string
	// Images is the directory of image archives, docker-archive files and index.json;
	// [Registry] serves it.
	Images string
	// Tools is the reference of the image for checks: see [ToolsImage].
	Tools string
	// Kubectl is a kubectl of the first Kubernetes version.
	Kubectl string
	// Kubernetes are the versions that are there, in the order of Options.
	Kubernetes []string
}

// Prepare makes what is missing of the set and returns it. It is safe to kill at any
// moment and to repeat; a second process waits for the first. When everything is
// there it only reads stamps.
func Prepare(ctx context.Context, o Options) (*Set, error) {
	m, err := newMaker(o)
	if err != nil {
		return nil, err
	}
	unlock, err := m.lockCache(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unlock() }() // closing the file is all it does
	// Roots are full of modes that matter to others than root.
	defer unix.Umask(unix.Umask(0o022))
	if err := m.installHostPackages(ctx); err != nil {
		return nil, fmt.Errorf("installing Debian packages: %w", err)
	}
	return m.all(ctx)
}

// Load returns what is prepared already and makes nothing; it needs no root. Parts
// that are missing are left out of the set's maps or are empty strings.
func Load(ctx context.Context, o Options) (*Set, error) {
	m, err := newMaker(o)
	if err != nil {
		return nil, err
	}
	m.readOnly = true
	set := m.newSet()
	var errs []error
	have := func(path string, err error) (string, bool) {
		if err != nil && !errors.Is(err, errMissing) {
			errs = append(errs, err)
		}
		return path, err == nil
	}
	if root, ok := have(m.stock(ctx)); ok {
		set.Roots[Stock] = root
	}
	if root, ok := have(m.snapshot(ctx)); ok {
		set.Roots[Snapshot] = root
	}
	if images, ok := have(m.images(ctx)); ok {
		set.Images = images
		if store, ok := have(m.prefill(ctx)); ok {
			set.Containerd[Snapshot] = store
		}
	}
	if bin, ok := have(m.build(ctx, kubernetesModule(m.versions.Kubernetes[0]))); ok {
		set.Kubectl = filepath.Join(bin, "kubectl")
	}
	return set, errors.Join(errs...)
}

// newSet is a set with what needs no step.
func (m *maker) newSet() *Set {
	return &Set{
		Roots: map[string]string{}, Containerd: map[string]string{},
		Artifacts: filepath.Join(m.dir, "artifacts"), Kubernetes: m.versions.Kubernetes, Tools: ToolsImage(m.versions),
	}
}

// all pulls every step. A step waits for what it needs by itself, so the order here is
// only about who is served first: roots need disk and network, the go command the cores.
func (m *maker) all(ctx context.Context) (*Set, error) {
	set := m.newSet()
	var stock, snapshot, store string
	// The group's context ends with Wait: it must not hide ours, which is used after it.
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) {
		if stock, err = m.stock(gctx); err != nil {
			return err
		}
		_, err = m.snapshotPackages(gctx)
		return err
	})
	g.Go(func() error {
		for _, a := range m.artifacts() {
			bin, err := m.build(gctx, a.module)
			if err != nil {
				return err
			}
			if err := m.publish(gctx, a, bin); err != nil {
				return err
			}
		}
		return nil
	})
	g.Go(func() (err error) {
		snapshot, err = m.snapshot(gctx)
		return err
	})
	g.Go(func() (err error) {
		if set.Images, err = m.images(gctx); err != nil {
			return err
		}
		store, err = m.prefill(gctx)
		return err
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	bin, err := m.build(ctx, kubernetesModule(m.versions.Kubernetes[0]))
	if err != nil {
		return nil, err
	}
	set.Kubectl = filepath.Join(bin, "kubectl")
	set.Roots[Stock], set.Roots[Snapshot], set.Containerd[Snapshot] = stock, snapshot, store
	return set, nil
}

func newMaker(o Options) (*maker, error) {
	f, err := readFacts()
	if err != nil {
		return nil, err
	}
	cache := o.CacheDir
	if cache == "" {
		base, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("finding the cache directory: %w", err)
		}
		cache = filepath.Join(base, "hk")
	}
	cache, err = filepath.Abs(cache)
	if err != nil {
		return nil, err
	}
	v := DefaultVersions()
	if len(o.KubernetesVersions) > 0 {
		v.Kubernetes = o.KubernetesVersions
	}
	return &maker{
		dir: filepath.Join(cache, "lab"), versions: v, facts: f, logLine: o.Log, extra: o.ExtraPackages,
		goBuilds: semaphore.NewWeighted(1), targets: map[string]*target{},
	}, nil
}
