package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// op is one write: all of it takes effect or nothing.
type op struct {
	do   func(*bolt.Tx) error
	done func(error)
}

// errReadOnly is the answer to writes of a store opened for reading.
var errReadOnly = errors.New("opened for reading only")

// enqueue hands a write to the committer, which it starts if it does not run.
// The committer takes everything that is queued into one transaction: a commit
// is two flushes of the disk however much is in it.
func (b *Bolt) enqueue(o *op) {
	if b.o.ReadOnly {
		o.done(&StateError{Op: "write", Path: b.path, Err: errReadOnly})
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queue = append(b.queue, o)
	if !b.running {
		b.running = true
		go b.committer()
	}
}

// write is enqueue for those who wait. A write that has been handed over is
// not called back: the context only ends the wait.
func (b *Bolt) write(ctx context.Context, do func(*bolt.Tx) error) error {
	done := make(chan error, 1)
	b.enqueue(&op{do, func(err error) { done <- err }})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Close waits until everything handed over is durable or has failed.
func (b *Bolt) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.running {
		b.idle.Wait()
	}
	return nil
}

func (b *Bolt) take() []*op {
	b.mu.Lock()
	defer b.mu.Unlock()
	ops := b.queue
	b.queue = nil
	if len(ops) == 0 {
		b.running = false
		b.idle.Broadcast()
	}
	return ops
}

// committer lives while there is something to write.
func (b *Bolt) committer() {
	for {
		ops := b.take()
		if len(ops) == 0 {
			return
		}
		b.burst(ops)
	}
}

// burst writes ops and whatever comes in meanwhile. A file that turns out to be
// damaged is set aside, and the ops go into a new one.
func (b *Bolt) burst(ops []*op) {
	for range 2 {
		var err error
		if ops, err = b.writeAll(ops); err == nil {
			return
		}
		if !isDamage(err) {
			break
		}
		if err = b.setAside(err); err != nil {
			break
		}
	}
	for _, o := range ops {
		o.done(&StateError{Op: "write", Path: b.path, Err: errPages})
	}
}

// writeAll opens the file, writes until the queue is empty or a reader waits,
// and closes it. It returns the ops that were not told, with why.
func (b *Bolt) writeAll(ops []*op) ([]*op, error) {
	w, err := b.openWriter()
	if err != nil {
		for _, o := range ops {
			o.done(err)
		}
		return nil, nil
	}
	dir, _ := os.Open(filepath.Dir(b.path))
	defer closeFile(dir)
	waits := false
	for len(ops) > 0 {
		if ops, err = b.transaction(w, ops); err != nil {
			return ops, err
		}
		if waits = anybody(dir); waits {
			break
		}
		b.mu.Lock()
		ops, b.queue = b.queue, nil
		b.mu.Unlock()
	}
	_ = w.db.Close()
	if waits {
		_ = pause(context.Background())
	}
	return nil, nil
}

// transaction commits ops together. If one of them fails, each is tried by
// itself, so that it fails alone. An error means that bbolt gave up on the
// file; it comes with the ops that were not told.
func (b *Bolt) transaction(w *writer, ops []*op) ([]*op, error) {
	err := w.update(func(tx *bolt.Tx) error {
		for _, o := range ops {
			if err := o.do(tx); err != nil {
				return err
			}
		}
		return nil
	})
	if isDamage(err) {
		return ops, err
	}
	if err == nil || len(ops) == 1 {
		for _, o := range ops {
			o.done(b.writeError(err))
		}
		return nil, nil
	}
	for i, o := range ops {
		if err = w.update(o.do); isDamage(err) {
			return ops[i:], err
		}
		o.done(b.writeError(err))
	}
	return nil, nil
}

// refusal is an error of an op itself, not of the file.
type refusal struct{ error }

func (b *Bolt) writeError(err error) error {
	var r refusal
	if err == nil || errors.As(err, &r) {
		return err
	}
	return &StateError{Op: "write", Path: b.path, Err: err}
}

// writer is an open file. After a panic bbolt's locks are lost, so it cannot be
// closed; its file descriptor is, and with that the lock of the file.
type writer struct {
	db   *bolt.DB
	file *os.File
}

func (w *writer) update(f func(*bolt.Tx) error) (err error) {
	defer caught(&err, func() { closeFile(w.file) })
	defer faults()()
	tx, err := w.db.Begin(true)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		_ = tx.Rollback()
		return err
	}
	return tx.Commit()
}

// openWriter opens the file for writing, makes it if there is none, and sets it
// aside if it is damaged.
func (b *Bolt) openWriter() (*writer, error) {
	ctx := context.Background()
	if err := b.mend(ctx, true); err != nil {
		return nil, err
	}
	for range tries {
		w, err := b.openForWriting()
		switch {
		case err == nil:
			return w, nil
		case errors.Is(err, fs.ErrNotExist):
			if err := b.create(); err != nil {
				return nil, &StateError{Op: "create", Path: b.path, Err: err}
			}
		case errors.Is(err, berrors.ErrTimeout), errors.Is(err, errAgain):
			if err := pause(ctx); err != nil {
				return nil, err
			}
		case isDamage(err):
			if err := b.setAside(err); err != nil {
				return nil, err
			}
		default:
			return nil, &StateError{Op: "open", Path: b.path, Err: err}
		}
	}
	return nil, &StateError{Op: "open", Path: b.path, Err: errHeld}
}

func (b *Bolt) openForWriting() (*writer, error) {
	if st, err := os.Stat(b.path); err == nil && st.Size() == 0 {
		return nil, fmt.Errorf("%w: it is empty", errPages)
	}
	db, file, err := b.open(false)
	if err != nil {
		return nil, err
	}
	return &writer{db: db, file: file}, nil
}

// create makes an empty file under another name and gives it its own only when
// it is whole: a power cut during bbolt's very first writes leaves a file it
// cannot open (etcd-io/etcd#16596). Link, unlike rename, never replaces what
// another process made meanwhile.
func (b *Bolt) create() error {
	dir := filepath.Dir(b.path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, filepath.Base(b.path)+".new-*")
	if err != nil {
		return err
	}
	temp := f.Name()
	_ = f.Close()
	defer func() { _ = os.Remove(temp) }() // a link to it is what counts
	db, err := openNew(temp)
	if err != nil {
		return err
	}
	if err := db.Close(); err != nil {
		return err
	}
	if err := os.Link(temp, b.path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(dir)
}

// openNew opens a file nobody else knows.
func openNew(path string) (*bolt.DB, error) {
	return bolt.Open(path, 0o600, &bolt.Options{NoStatistics: true, FreelistType: bolt.FreelistMapType})
}

func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }() // read only
	return f.Sync()
}

// setAside renames a damaged file, so that the next write starts with an empty
// one.
func (b *Bolt) setAside(why error) error {
	f, err := lockedFile(context.Background(), b.path, syscall.LOCK_EX)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return &StateError{Op: "set aside", Path: b.path, Err: err}
	}
	defer func() { _ = f.Close() }() // it is read only and being left
	aside, err := b.asideName()
	if err == nil {
		err = os.Rename(b.path, aside)
	}
	if err != nil {
		return &StateError{Op: "set aside", Path: b.path, Err: err}
	}
	b.damaged(aside, why)
	return nil
}

// asideName is a name that is not taken.
func (b *Bolt) asideName() (string, error) {
	base := b.path + ".bad-" + b.o.Now().UTC().Format("20060102T150405")
	for i := range 1000 {
		name := base
		if i > 0 {
			name = fmt.Sprintf("%s-%d", base, i+1)
		}
		if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
			return name, nil
		}
	}
	return "", fmt.Errorf("%s: a thousand damaged files", base)
}
