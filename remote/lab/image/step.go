package image

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/gofrs/flock"
	"github.com/google/renameio/v2"
	"golang.org/x/sync/semaphore"
)

// A step makes one file or directory. Its key is a hash of its recipe number and
// inputs; a stamp file with that key says that the output is whole. Steps are
// pulled: who needs an output calls the method that makes it, and gets the path
// of what another caller has made or is making.
//
// Order on disk, so that SIGKILL at any point costs only the step's work:
// the output is made under a temporary name, renamed, then the stamp is written.
// A stamp without output, or an output without stamp, is made again.
type step struct {
	name   string   // of the stamp and the log lines
	recipe int      // raise it when the code of the step changes what comes out
	inputs []string // versions, hashes of embedded files, paths of other steps' outputs
	// output is the final path below the lab's cache directory. "KEY" in it is
	// replaced by the first digits of the key: outputs that may be in use by
	// machines are never replaced in place.
	output string
}

// maker holds what the steps of one Prepare share.
type maker struct {
	dir      string // the lab's folder in the cache directory
	versions Versions
	facts    facts
	logMu    sync.Mutex
	logLine  func(string)
	goBuilds *semaphore.Weighted // one at a time: one `go build` fills all cores
	mu       sync.Mutex
	targets  map[string]*target
	extra    []string
	readOnly bool // make nothing: a step that is not done is errMissing
}

// errMissing is what Load gets for a step that is not done.
var errMissing = errors.New("not prepared yet")

// target is a step that someone asked for in this process.
type target struct {
	done chan struct{}
	path string
	err  error
}

// stamp is the content of a stamp file.
type stamp struct {
	Key    string `json:"key"`
	Output string `json:"output"`
}

func (s step) key() string {
	h := sha256.New()
	for _, part := range append([]string{s.name, strconv.Itoa(s.recipe), s.output}, s.inputs...) {
		fmt.Fprintf(h, "%d:%s\n", len(part), part)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// logf tells one line of progress.
func (m *maker) logf(format string, args ...any) {
	if m.logLine == nil {
		return
	}
	m.logMu.Lock()
	defer m.logMu.Unlock()
	m.logLine(fmt.Sprintf(format, args...))
}

// do makes the step's output unless it is there, and returns its path. run gets a
// path that does not exist yet, in the directory of the output. Concurrent calls
// for one step share one run.
func (m *maker) do(ctx context.Context, s step, run func(ctx context.Context, tmp string) error) (string, error) {
	m.mu.Lock()
	t, ok := m.targets[s.name]
	if !ok {
		t = &target{done: make(chan struct{})}
		m.targets[s.name] = t
	}
	m.mu.Unlock()
	if ok {
		select {
		case <-t.done: // select chooses at random where both are ready
			return t.path, t.err
		default:
		}
		select {
		case <-t.done:
			return t.path, t.err
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
	t.path, t.err = m.make(ctx, s, run)
	if t.err != nil {
		t.err = fmt.Errorf("preparing %s: %w", s.name, t.err)
	}
	close(t.done)
	return t.path, t.err
}

func (m *maker) make(ctx context.Context, s step, run func(context.Context, string) error) (string, error) {
	key := s.key()
	out := filepath.Join(m.dir, expandKey(s.output, key))
	if m.stamped(s.name, key, out) {
		return out, nil
	}
	if m.readOnly {
		return "", errMissing
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	parent := filepath.Dir(out)
	if err := makeFolder(parent); err != nil {
		return "", err
	}
	start := time.Now()
	tmp := filepath.Join(parent, ".tmp-"+filepath.Base(out))
	if err := removeTree(tmp); err != nil {
		return "", err
	}
	if err := run(ctx, tmp); err != nil {
		// What is left is kept: it is often the only trace. The next run removes it.
		return "", err
	}
	if err := replace(tmp, out); err != nil {
		return "", err
	}
	data, err := json.Marshal(stamp{Key: key, Output: out})
	if err != nil {
		return "", err
	}
	if err := renameio.WriteFile(m.stampPath(s.name), append(data, '\n'), 0o644); err != nil {
		return "", err
	}
	m.logf("%s: ready (%s)", s.name, time.Since(start).Round(100*time.Millisecond))
	return out, nil
}

func (m *maker) stampPath(name string) string {
	return filepath.Join(m.dir, "stamps", name+".json")
}

// stamped reports whether the step was finished with this very key.
func (m *maker) stamped(name, key, out string) bool {
	data, err := os.ReadFile(m.stampPath(name))
	if err != nil {
		return false
	}
	var st stamp
	if json.Unmarshal(data, &st) != nil || st.Key != key || st.Output != out {
		return false
	}
	_, err = os.Lstat(out)
	return err == nil
}

// expandKey puts the first digits of a key into a path.
func expandKey(path, key string) string {
	const mark = "KEY"
	if i := len(path) - len(mark); i >= 0 && path[i:] == mark {
		return path[:i] + key[:8]
	}
	return path
}

// replace gives tmp its final name; what had that name before is removed.
func replace(tmp, out string) error {
	old := filepath.Join(filepath.Dir(out), ".old-"+filepath.Base(out))
	if err := removeTree(old); err != nil {
		return err
	}
	if err := os.Rename(out, old); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(tmp, out); err != nil {
		return err
	}
	return removeTree(old)
}

// lockCache keeps other processes out of the lab's cache directory until unlock is
// called. The kernel drops the lock when the process dies.
func (m *maker) lockCache(ctx context.Context) (unlock func() error, err error) {
	if err := makeFolder(filepath.Join(m.dir, "stamps")); err != nil {
		return nil, err
	}
	l := flock.New(filepath.Join(m.dir, "lock"))
	ok, err := l.TryLock()
	if err == nil && !ok {
		m.logf("another hk prepares the lab's images: waiting for it")
		_, err = l.TryLockContext(ctx, 500*time.Millisecond)
	}
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", l.Path(), err)
	}
	return l.Unlock, nil
}
