package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
)

// Machines start faster when their images are imported and unpacked already: importing
// five images takes 5 s alone, and half a minute with five machines at once on two
// cores. So containerd runs once on this computer, with root, state and socket of its
// own, imports them, and what it leaves is handed to every machine. Nothing in it knows
// where it lies: layers are called by digest, snapshots by number.

// prefillConfig turns off what containerd would do outside its root.
const prefillConfig = `version = 3
root = %q
state = %q
disabled_plugins = [
  "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime",
  "io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp",
]
[grpc]
  address = %q
`

// prefillScript runs in mount and process namespaces of its own: what it starts or
// mounts ends with it.
const prefillScript = `set -eu
bin=$1 config=$2 socket=$3; shift 3
"$bin/containerd" --config "$config" &
pid=$!
tries=0
until "$bin/ctr" --address "$socket" version >/dev/null 2>&1; do
	tries=$((tries + 1))
	[ $tries -lt 300 ] || { echo "containerd does not answer" >&2; exit 1; }
	kill -0 $pid
	sleep 0.1
done
for archive; do
	"$bin/ctr" --address "$socket" --namespace k8s.io images import --snapshotter overlayfs "$archive"
done
"$bin/ctr" --address "$socket" --namespace k8s.io images list
kill $pid
wait $pid || [ $? -eq 143 ]
`

// prefill makes the snapshot's container storage.
func (m *maker) prefill(ctx context.Context) (string, error) {
	images, err := m.images(ctx)
	if err != nil {
		return "", err
	}
	bin, err := m.build(ctx, containerdModule(m.versions.Containerd))
	if err != nil {
		return "", err
	}
	ix, err := readIndex(images)
	if err != nil {
		return "", err
	}
	var archives, inputs []string
	for ref, img := range ix.Images {
		if len(img.Kubernetes) == 0 || slices.Contains(img.Kubernetes, m.versions.Kubernetes[0]) {
			archives = append(archives, filepath.Join(images, img.Archive))
			inputs = append(inputs, ref+" "+img.Digest)
		}
	}
	sort.Strings(archives)
	sort.Strings(inputs)
	s := step{
		name: "containerd-store", recipe: 2, output: "containerd/" + Snapshot + "-KEY",
		inputs: append(inputs, containerdModule(m.versions.Containerd).step().key()),
	}
	return m.do(ctx, s, func(ctx context.Context, tmp string) error {
		return m.runPrefill(ctx, s.name, bin, tmp, archives)
	})
}

func (m *maker) runPrefill(ctx context.Context, name, bin, root string, archives []string) error {
	// A short path: a socket's may have no more than 107 bytes.
	run, err := os.MkdirTemp("", "hk-lab-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(run) }() // nothing of worth in it
	config, socket := filepath.Join(run, "config.toml"), filepath.Join(run, "s")
	text := fmt.Sprintf(prefillConfig, root, filepath.Join(run, "state"), socket)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	args := append([]string{"sh", "-c", prefillScript, "sh", bin, config, socket}, archives...)
	if err := m.run(ctx, command{step: name, isolated: true, args: args}); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, metadataFile)); err != nil {
		return fmt.Errorf("containerd left no metadata: %w", err)
	}
	// The one thing in it that must differ from machine to machine.
	return os.RemoveAll(filepath.Join(root, "io.containerd.grpc.v1.introspection"))
}

// Folders of containerd 2's root.
const (
	metadataFile   = "io.containerd.metadata.v1.bolt/meta.db"
	contentFolder  = "io.containerd.content.v1.content/blobs/"
	snapshotFolder = "io.containerd.snapshotter.v1.overlayfs/snapshots/"
)

// immutable reports whether containerd never changes a file of its root after it is
// written: blobs, and what is in committed snapshots (they are lower layers of
// overlays; a container's changes go to a snapshot of its own).
func immutable(rel string) bool {
	if strings.HasPrefix(rel, contentFolder) {
		return true
	}
	rest, ok := strings.CutPrefix(rel, snapshotFolder)
	if !ok {
		return false
	}
	_, inside, _ := strings.Cut(rest, "/")
	return strings.HasPrefix(inside, "fs/")
}

// FillContainerd puts the prefilled container storage of an image into dstDir, the
// directory that becomes a machine's /var/lib/containerd; dstDir may exist if it is
// empty. Immutable files are hard links where the file system allows it (all machines
// then share them in memory, too), the databases are copies. So nothing in dstDir may
// be edited in place except by containerd. An image without prefilled storage leaves
// an empty folder.
func FillContainerd(set *Set, image, dstDir string) error {
	if _, ok := set.Roots[image]; !ok {
		return fmt.Errorf("filling container storage: there is no image %q", image)
	}
	if err := makeFolder(dstDir); err != nil {
		return fmt.Errorf("filling container storage: %w", err)
	}
	src, ok := set.Containerd[image]
	if !ok {
		return nil
	}
	left, err := os.ReadDir(dstDir)
	if err == nil && len(left) > 0 {
		err = errors.New("it is not empty")
	}
	if err != nil {
		return fmt.Errorf("filling container storage in %s: %w", dstDir, err)
	}
	if err := copyTree(src, dstDir, immutable); err != nil {
		return fmt.Errorf("filling container storage: %w", err)
	}
	return nil
}
