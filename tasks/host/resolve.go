package host

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"hk/tasks/spec"
)

// Fetch opens a URL; size is -1 if it is not known. Retries are its own affair.
type Fetch func(ctx context.Context, url string) (body io.ReadCloser, size int64, err error)

// Resolve says what to resolve and from where.
type Resolve struct {
	Versions Versions
	Arches   []string
	Mirror   string // "" for upstream
	Fetch    Fetch
	Now      time.Time
	// Progress is told of bytes read of a download, one call at a time; total is
	// -1 if it is not known. May be nil.
	Progress func(name string, done, total int64)
	// Known returns what Keep was told of an archive with this hash, by an
	// earlier run; nil if nothing is known. Both may be nil.
	Known func(sha256 string) map[string]string
	Keep  func(sha256 string, files map[string]string)
}

// Bounds of what is read. The largest archive of 2026 unpacks to 150 MB.
const (
	maxSumFile = 1 << 20
	maxMember  = 1 << 30
)

// ResolveLock finds out the hashes of everything a cluster downloads. Plain
// programs are taken by the checksum upstream publishes; archives are read
// once, because a host checks each program that comes out of them, and nobody
// publishes those checksums.
func ResolveLock(ctx context.Context, r Resolve) (*spec.LockFile, error) {
	l := &spec.LockFile{
		Kubernetes: r.Versions.Kubernetes, Resolved: r.Now.UTC().Truncate(time.Second),
		Artifacts: map[string]spec.Artifact{}, Images: r.Versions.images(),
	}
	var mu sync.Mutex
	told := r.Progress
	r.Progress = func(name string, done, total int64) {
		if told != nil {
			mu.Lock()
			defer mu.Unlock()
			told(name, done, total)
		}
	}
	var have sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for _, arch := range r.Arches {
		for _, d := range r.Versions.downloads(arch) {
			g.Go(func() error {
				a, err := r.artifact(ctx, d)
				if err != nil {
					return fmt.Errorf("resolving %s %s: %w", d.name, d.version, err)
				}
				have.Lock()
				defer have.Unlock()
				l.Artifacts[LockKey(d.name, arch)] = a
				return nil
			})
		}
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return l, nil
}

func (r *Resolve) artifact(ctx context.Context, d download) (spec.Artifact, error) {
	a := spec.Artifact{Version: d.version, Path: d.path}
	var err error
	if a.SHA256, err = r.published(ctx, d); err != nil || d.members == nil {
		return a, err
	}
	if r.Known != nil {
		if a.Files = r.Known(a.SHA256); complete(a.Files, d.members) {
			return a, nil
		}
	}
	if a.Files, err = r.members(ctx, d, a.SHA256); err == nil && r.Keep != nil {
		r.Keep(a.SHA256, a.Files)
	}
	return a, err
}

// complete reports whether each program has a hash.
func complete(files map[string]string, names []string) bool {
	for _, n := range names {
		found := false
		for f, sum := range files {
			found = found || path.Base(f) == n && hex64.MatchString(sum)
		}
		if !found {
			return false
		}
	}
	return true
}

// published is the checksum that upstream publishes for a download.
func (r *Resolve) published(ctx context.Context, d download) (string, error) {
	body, _, err := r.Fetch(ctx, URL(r.Mirror, d.sum))
	if err != nil {
		return "", err
	}
	defer func() { _ = body.Close() }() // it was only read
	text, err := io.ReadAll(io.LimitReader(body, maxSumFile))
	if err != nil {
		return "", fmt.Errorf("reading %s: %w", path.Base(d.sum), err)
	}
	sum := sumOf(string(text), path.Base(d.path))
	if sum == "" {
		return "", fmt.Errorf("%s holds no checksum of %s", URL(r.Mirror, d.sum), path.Base(d.path))
	}
	return sum, nil
}

var hex64 = regexp.MustCompile(`^[0-9a-fA-F]{64}$`)

// sumOf finds a file's checksum in a checksum file: a bare digest, or lines of
// digest and name as sha256sum writes them.
func sumOf(text, file string) string {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || !hex64.MatchString(f[0]) {
			continue
		}
		if len(f) == 1 || path.Base(strings.TrimPrefix(f[1], "*")) == file {
			return strings.ToLower(f[0])
		}
	}
	return ""
}

// members reads an archive once: its hash is compared with the published one,
// and each program in it gets its own.
func (r *Resolve) members(ctx context.Context, d download, want string) (map[string]string, error) {
	body, size, err := r.Fetch(ctx, URL(r.Mirror, d.path))
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }() // it was only read
	whole := sha256.New()
	counted := &counter{r: body, told: func(n int64) { r.Progress(d.name, n, size) }}
	raw := io.TeeReader(counted, whole)
	files, err := hashMembers(raw, d.members)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path.Base(d.path), err)
	}
	// What stands behind the archive's end belongs to the download too.
	if _, err := io.Copy(io.Discard, raw); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path.Base(d.path), err)
	}
	if got := hex.EncodeToString(whole.Sum(nil)); got != want {
		return nil, fmt.Errorf("%s has hash %s, but %s is published", URL(r.Mirror, d.path), got, want)
	}
	return files, nil
}

// hashMembers hashes the plain files of a .tar.gz that have one of the base
// names; every name must be there.
func hashMembers(r io.Reader, names []string) (map[string]string, error) {
	gz, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	out, seen := map[string]string{}, map[string]bool{}
	for t := tar.NewReader(gz); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		base := path.Base(h.Name)
		if h.Typeflag != tar.TypeReg || !slices.Contains(names, base) {
			continue
		}
		if h.Size > maxMember {
			return nil, fmt.Errorf("%s has %d bytes", h.Name, h.Size)
		}
		sum := sha256.New()
		if _, err := io.CopyN(sum, t, h.Size); err != nil {
			return nil, err
		}
		out[h.Name], seen[base] = hex.EncodeToString(sum.Sum(nil)), true
	}
	for _, n := range names {
		if !seen[n] {
			return nil, fmt.Errorf("there is no %s in it", n)
		}
	}
	return out, nil
}

// counter tells how much was read, not more often than each 256 KiB.
type counter struct {
	r    io.Reader
	n    int64
	last int64
	told func(int64)
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.n-c.last >= 256<<10 || err != nil {
		c.last = c.n
		c.told(c.n)
	}
	return n, err
}
