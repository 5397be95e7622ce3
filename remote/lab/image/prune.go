package image

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Prune removes what earlier recipes left in the cache: roots, container storage and
// images under another key than today's, and what killed runs left half made. inUse
// are paths from earlier sets that machines or a running lab still use; whatever this
// computer has mounted as a lower layer is kept in any case. It returns what it removed.
func Prune(ctx context.Context, o Options, inUse []string) (removed []string, err error) {
	m, err := newMaker(o)
	if err != nil {
		return nil, err
	}
	unlock, err := m.lockCache(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unlock() }() // closing the file is all it does
	set, err := Load(ctx, o)
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	keep := append(slices.Clone(inUse), set.Roots[Stock], set.Roots[Snapshot], set.Containerd[Snapshot], set.Images)
	m.readOnly = true
	packages, err := m.snapshotPackages(ctx)
	if err != nil && !errors.Is(err, errMissing) {
		return nil, err
	}
	keep = append(keep, packages)
	old, err := m.outdated(keep, string(mounts))
	if err != nil {
		return nil, err
	}
	for _, path := range old {
		if err := ctx.Err(); err != nil {
			return removed, err
		}
		if err := removeTree(path); err != nil {
			return removed, err
		}
		removed = append(removed, path)
	}
	return removed, nil
}

// outdated lists what Prune removes. Of an image that is not there in today's version
// the old ones stay: they are all there is.
func (m *maker) outdated(keep []string, mounts string) ([]string, error) {
	var old []string
	for _, group := range []struct{ dir, prefix string }{
		{"roots", Stock + "-"},
		{"roots", Snapshot + "-"},
		{"build", "snapshot-packages-"},
		{"containerd", Snapshot + "-"},
		{"", "images-"},
	} {
		dir := filepath.Join(m.dir, group.dir)
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		var candidates []string
		current := false
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			name, halfMade := strings.CutPrefix(e.Name(), ".tmp-")
			if !halfMade {
				name, halfMade = strings.CutPrefix(e.Name(), ".old-")
			}
			if !strings.HasPrefix(name, group.prefix) {
				continue
			}
			switch {
			case slices.Contains(keep, path):
				current = true
			case halfMade:
				old = append(old, path)
			case !strings.Contains(mounts, path):
				candidates = append(candidates, path)
			}
		}
		if current {
			old = append(old, candidates...)
		}
	}
	return old, nil
}
