package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// World is all state, as values by key: "server/12", "file/12//etc/x",
// "unit/12/etcd.service", "node/UID/demo-worker-1". A file holds it as one line
// of JSON for each change: key -> value, null for gone. Several processes may
// use one file; each change holds its lock and reads first what others wrote.
type World struct {
	path string
	mu   sync.Mutex
	file *os.File // nil: in memory only
	off  int64
	kv   map[string]json.RawMessage
	// Hook, if set, is called at every point where a process could die:
	// "before create-server", "after create-server". An error is returned to
	// the caller instead of an answer.
	hook func(point string) error
	// calls counts what was asked, by name.
	calls map[string]int
	now   func() time.Time
}

// Options of a world.
type Options struct {
	Path string // "" keeps it in memory
	Now  func() time.Time
	Hook func(point string) error
}

// Open opens or makes a world.
func Open(o Options) (*World, error) {
	w := &World{path: o.Path, kv: map[string]json.RawMessage{}, hook: o.Hook, calls: map[string]int{}, now: o.Now}
	if w.now == nil {
		w.now = time.Now
	}
	if o.Path == "" {
		return w, nil
	}
	f, err := os.OpenFile(o.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS) {
		// A world that may only be read can still be looked at.
		f, err = os.Open(o.Path)
	}
	if err != nil {
		return nil, fmt.Errorf("opening the simulated world: %w", err)
	}
	w.file = f
	return w, w.catchUp()
}

// Close closes the file.
func (w *World) Close() error {
	if w.file == nil {
		return nil
	}
	return w.file.Close()
}

// catchUp reads what was appended since. A last line without its end is a
// change that was cut off by a kill: it never happened, and the next change
// begins on a line of its own.
func (w *World) catchUp() error {
	if w.file == nil {
		return nil
	}
	st, err := w.file.Stat()
	if err != nil {
		return err
	}
	if st.Size() == w.off {
		return nil
	}
	buf := make([]byte, st.Size()-w.off)
	if _, err := w.file.ReadAt(buf, w.off); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the simulated world: %w", err)
	}
	for {
		i := bytes.IndexByte(buf, '\n')
		if i < 0 {
			return nil
		}
		line := buf[:i]
		buf = buf[i+1:]
		w.off += int64(i + 1)
		var change map[string]json.RawMessage
		if json.Unmarshal(line, &change) != nil {
			continue
		}
		w.apply(change)
	}
}

func (w *World) apply(change map[string]json.RawMessage) {
	for k, v := range change {
		if v == nil || bytes.Equal(v, []byte("null")) {
			delete(w.kv, k)
		} else {
			w.kv[k] = v
		}
	}
}

// tx is one change, or one look.
type tx struct {
	w      *World
	change map[string]json.RawMessage
}

func (t *tx) raw(key string) (json.RawMessage, bool) {
	if v, ok := t.change[key]; ok {
		return v, v != nil
	}
	v, ok := t.w.kv[key]
	return v, ok
}

func (t *tx) has(key string) bool { _, ok := t.raw(key); return ok }

func (t *tx) del(key string) { t.change[key] = nil }

// keys lists the keys with a prefix, sorted.
func (t *tx) keys(prefix string) []string {
	var out []string
	for k := range t.w.kv {
		if strings.HasPrefix(k, prefix) && t.has(k) {
			out = append(out, k)
		}
	}
	for k, v := range t.change {
		if _, old := t.w.kv[k]; !old && v != nil && strings.HasPrefix(k, prefix) {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

func load[T any](t *tx, key string) (T, bool) {
	var v T
	raw, ok := t.raw(key)
	if ok {
		if err := json.Unmarshal(raw, &v); err != nil {
			panic("bug: simulated world, " + key + ": " + err.Error())
		}
	}
	return v, ok
}

func store(t *tx, key string, v any) {
	raw, err := json.Marshal(v)
	if err != nil {
		panic("bug: simulated world, " + key + ": " + err.Error())
	}
	t.change[key] = raw
}

// next hands out IDs.
func (t *tx) next() int64 {
	n, _ := load[int64](t, "next")
	if n == 0 {
		n = 1000
	}
	store(t, "next", n+1)
	return n
}

// update makes one change: all of it or, with an error, nothing.
func (w *World) update(ctx context.Context, call string, fn func(*tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := w.point("before " + call); err != nil {
		return err
	}
	if err := w.change(call, fn); err != nil {
		return err
	}
	return w.point("after " + call)
}

func (w *World) change(call string, fn func(*tx) error) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[call]++
	if w.file != nil {
		if err := syscall.Flock(int(w.file.Fd()), syscall.LOCK_EX); err != nil {
			return fmt.Errorf("locking the simulated world: %w", err)
		}
		defer syscall.Flock(int(w.file.Fd()), syscall.LOCK_UN) //nolint:errcheck // closing unlocks as well
		if err := w.catchUp(); err != nil {
			return err
		}
	}
	t := &tx{w: w, change: map[string]json.RawMessage{}}
	if err := fn(t); err != nil {
		return err
	}
	if len(t.change) == 0 {
		return nil
	}
	if w.file != nil {
		line, err := json.Marshal(t.change)
		if err != nil {
			return err
		}
		if st, err := w.file.Stat(); err == nil && st.Size() > w.off {
			line = append([]byte{'\n'}, line...) // behind a torn line
		}
		if _, err := w.file.Write(append(line, '\n')); err != nil {
			return fmt.Errorf("writing the simulated world: %w", err)
		}
		return w.catchUp()
	}
	w.apply(t.change)
	return nil
}

// view looks.
func (w *World) view(ctx context.Context, call string, fn func(*tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := w.point("before " + call); err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls[call]++
	if err := w.catchUp(); err != nil {
		return err
	}
	return fn(&tx{w: w, change: map[string]json.RawMessage{}})
}

func (w *World) point(p string) error {
	if w.hook == nil {
		return nil
	}
	return w.hook(p)
}

// Calls is how often each thing was asked, by name.
func (w *World) Calls() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make(map[string]int, len(w.calls))
	maps.Copy(out, w.calls)
	return out
}
