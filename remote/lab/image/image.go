package image

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	"golang.org/x/sync/semaphore"
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
	// Containerd maps an image name to a filled /var/lib/containerd; see [FillContainerd].
	// Images without an entry start with an empty one.
	Containerd map[string]string
	// Artifacts is a directory tree as [Mirror] serves it.
	Artifacts string
	// Images is the directory of image archives; [Registry] serves it.
	Images string
	// Kubectl is a kubectl of the first Kubernetes version.
	Kubectl string
	// Kubernetes are the versions that are there, in the order of Options.
	Kubernetes []string
}

// errSkeleton marks what is not written yet; it goes away with the last step.
var errSkeleton = errors.New("not built yet")

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
	if err := m.installHostPackages(ctx); err != nil {
		return nil, fmt.Errorf("installing Debian packages: %w", err)
	}
	stock, err := m.stock(ctx)
	if err != nil {
		return nil, err
	}
	for _, g := range []goModule{ownModule(), etcdModule(m.versions.Etcd), crictlModule(m.versions.CRITools), runcModule(m.versions.Runc), containerdModule(m.versions.Containerd), cniModule(m.versions.CNI)} {
		if _, err := m.build(ctx, g); err != nil {
			return nil, err
		}
	}
	for _, v := range m.versions.Kubernetes {
		if _, err := m.kubernetes(ctx, v); err != nil {
			return nil, err
		}
	}
	return &Set{Roots: map[string]string{Stock: stock}}, nil
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

// FillContainerd puts the prefilled container storage of an image into dstDir, the
// directory that becomes a machine's /var/lib/containerd; dstDir may exist if it is
// empty. Immutable files are hard links where the file system allows it, so it must
// not be edited from outside containerd. Images without prefilled storage leave
// dstDir empty.
func FillContainerd(set *Set, image, dstDir string) error {
	return errSkeleton
}

// Mirror serves the artifacts in upstream's layout: what dl.k8s.io serves below
// /v1.37.2/bin/linux/amd64/ and what github.com serves below
// /OWNER/REPOSITORY/releases/download/TAG/.
func Mirror(set *Set) http.Handler {
	return http.NotFoundHandler()
}

// Registry serves the images read-only over the registry protocol (v2). The registry's
// own host name does not matter: registry.k8s.io/pause:3.10.2 is served as
// /v2/pause/manifests/3.10.2, the way a mirror is configured in containerd's hosts.toml.
// Blobs are streamed from disk.
func Registry(set *Set) (http.Handler, error) {
	return nil, errSkeleton
}
