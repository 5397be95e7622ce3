package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// Options of a store in a file.
type Options struct {
	// ReadOnly refuses writes: for quiet commands.
	ReadOnly bool
	// Now is the time, for names of files set aside; nil is not allowed unless
	// ReadOnly.
	Now func() time.Time
	// Notice hears of damage, such as a file that was set aside. It must be
	// safe for concurrent use; nil: nobody hears.
	Notice func(Notice)
}

// Notice is damage that was found and dealt with.
type Notice struct {
	Path   string // the file
	Aside  string // where the damaged file is kept now; "" if it was only read
	Reason string
}

// String is the notice as a sentence.
func (n Notice) String() string {
	if n.Aside == "" {
		return fmt.Sprintf("%s is damaged (%s) and counts as empty", n.Path, n.Reason)
	}
	return fmt.Sprintf("%s was damaged (%s); it is kept as %s", n.Path, n.Reason, n.Aside)
}

// Bolt is a Store in one bbolt file, which it opens in short bursts.
//
// bbolt locks the whole file, readers included, and waits for a lock by asking
// every 50 ms, so that readers starve behind a busy writer (etcd-io/bbolt#782).
// Here each open is a single try, in a loop of our own with 1 ms between tries,
// and a reader that was refused makes itself known (see waiting), upon which a
// writer steps aside. Slices never leave a transaction: readers copy and close.
type Bolt struct {
	path string
	o    Options

	mendMu sync.Mutex // one looks at the file, and mends it
	looked bool
	bad    error // the file cannot be walked
	askew  bool  // it can, but something is not where a search would find it

	mu      sync.Mutex
	queue   []*op
	running bool       // the committer is
	idle    *sync.Cond // running became false
}

// Open returns the store in a file. It touches nothing: the file is made by the
// first write.
func Open(path string, o Options) *Bolt {
	b := &Bolt{path: path, o: o}
	b.idle = sync.NewCond(&b.mu)
	return b
}

// tries is how often a lock is tried, 1 ms apart. A burst takes milliseconds;
// whoever holds the file for half a minute hangs.
const tries = 30_000

var errHeld = errors.New("another process holds the file and does not let go")

// errAgain says that the file was replaced while it was being opened.
var errAgain = errors.New("file was replaced")

// read runs f in a read transaction. f is not called if there is no file, or
// one that cannot be trusted: both count as empty.
func (b *Bolt) read(ctx context.Context, f func(*bolt.Tx) error) error {
	if err := b.mend(ctx, false); err != nil {
		if errors.Is(err, errPages) {
			b.damaged("", err)
			return nil
		}
		return err
	}
	w := waiting{dir: filepath.Dir(b.path)}
	defer w.end()
	for range tries {
		if st, err := os.Stat(b.path); err == nil && st.Size() == 0 {
			return nil // died before its first page
		}
		db, _, err := b.open(true)
		switch {
		case err == nil:
			err = b.view(db, f)
			if !errors.Is(err, errPages) {
				return err
			}
			b.damaged("", err)
			return nil
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case errors.Is(err, berrors.ErrTimeout), errors.Is(err, errAgain):
			w.begin()
			if err := pause(ctx); err != nil {
				return err
			}
		case isDamage(err):
			b.damaged("", err)
			return nil
		default:
			return &StateError{Op: "open", Path: b.path, Err: err}
		}
	}
	return &StateError{Op: "open", Path: b.path, Err: errHeld}
}

// open makes a single try. The file must be the one at the path still when it
// is locked: one that was set aside meanwhile is nobody's any more.
func (b *Bolt) open(readOnly bool) (db *bolt.DB, file *os.File, err error) {
	defer caught(&err, func() { closeFile(file) })
	defer faults()()
	db, err = bolt.Open(b.path, 0o600, &bolt.Options{
		Timeout: time.Millisecond, ReadOnly: readOnly, NoStatistics: true, FreelistType: bolt.FreelistMapType,
		OpenFile: func(name string, flag int, mode os.FileMode) (*os.File, error) {
			f, err := os.OpenFile(name, flag&^os.O_CREATE, mode)
			file = f
			return f, err
		},
	})
	if err != nil {
		return nil, nil, err
	}
	mine, err := file.Stat()
	if now, statErr := os.Stat(b.path); err != nil || statErr != nil || !os.SameFile(mine, now) {
		_ = db.Close()
		return nil, nil, errAgain
	}
	return db, file, nil
}

func (b *Bolt) view(db *bolt.DB, f func(*bolt.Tx) error) (err error) {
	defer caught(&err, func() {})
	defer faults()()
	defer func() { _ = db.Close() }() // nothing was written
	return db.View(f)
}

// mend walks the pages before bbolt is let at them, once (pages.go). A store
// that may write sets a bad file aside; one that only reads is told errPages.
// Before the first write a file in which something is out of place is written
// anew.
func (b *Bolt) mend(ctx context.Context, write bool) error {
	b.mendMu.Lock()
	defer b.mendMu.Unlock()
	if !b.looked {
		b.looked = true
		b.bad, b.askew = b.look(ctx)
	}
	switch {
	case b.bad != nil && b.o.ReadOnly:
		return b.bad
	case b.bad != nil:
		err := b.setAside(b.bad)
		if err == nil {
			b.bad = nil
		}
		return err
	case b.askew && write:
		b.askew = false
		return b.salvage(ctx)
	}
	return nil
}

func (b *Bolt) look(ctx context.Context) (bad error, askew bool) {
	f, err := lockedFile(ctx, b.path, syscall.LOCK_SH)
	if err != nil {
		return nil, false // whoever opens it next says why it cannot be opened
	}
	defer func() { _ = f.Close() }() // read only
	askew, err = checkPages(f)
	if !errors.Is(err, errPages) {
		err = nil
	}
	return err, askew
}

// outOfPlace notes that something was found where no search would find it.
func (b *Bolt) outOfPlace() {
	b.mendMu.Lock()
	defer b.mendMu.Unlock()
	b.askew = true
}

func (b *Bolt) damaged(aside string, err error) {
	if b.o.Notice != nil {
		b.o.Notice(Notice{Path: b.path, Aside: aside, Reason: err.Error()})
	}
}

// lockedFile opens a file for reading and locks it, for as long as it is open.
func lockedFile(ctx context.Context, path string, how int) (*os.File, error) {
	for range tries {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if err == nil {
			mine, e1 := f.Stat()
			now, e2 := os.Stat(path)
			if e1 == nil && e2 == nil && os.SameFile(mine, now) {
				return f, nil
			}
			err = syscall.EWOULDBLOCK // replaced meanwhile
		}
		_ = f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, err
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
	}
	return nil, errHeld
}

// pause waits a millisecond.
func pause(ctx context.Context) error {
	t := time.NewTimer(time.Millisecond)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// waiting is how a reader that was refused makes itself known: a shared lock on
// the directory, which needs no right to write and leaves nothing behind. The
// writer tries the exclusive one between two transactions.
type waiting struct {
	dir string
	f   *os.File
}

func (w *waiting) begin() {
	if w.f != nil {
		return
	}
	f, err := os.Open(w.dir)
	if err != nil {
		return
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil {
		_ = f.Close() // a writer asks right now; next time
		return
	}
	w.f = f
}

func (w *waiting) end() { closeFile(w.f) }

// anybody reports whether a reader waits for a file in the directory.
func anybody(dir *os.File) bool {
	if dir == nil {
		return false
	}
	if syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return true
	}
	_ = syscall.Flock(int(dir.Fd()), syscall.LOCK_UN)
	return false
}

func closeFile(f *os.File) {
	if f != nil {
		_ = f.Close()
	}
}

// caught turns a panic of bbolt into errPages. What bbolt held is lost with it;
// after lets go of the rest.
func caught(err *error, after func()) {
	if r := recover(); r != nil {
		after()
		*err = fmt.Errorf("%w: %v", errPages, r)
	}
}

// faults makes an access beyond the mapped file a panic of this goroutine
// instead of the end of the process.
func faults() (restore func()) {
	old := debug.SetPanicOnFault(true)
	return func() { debug.SetPanicOnFault(old) }
}

// isDamage reports whether an error of bbolt means that the file is not one of
// its own, or no longer.
func isDamage(err error) bool {
	for _, e := range []error{
		errPages, berrors.ErrInvalid, berrors.ErrVersionMismatch, berrors.ErrChecksum, berrors.ErrInvalidMapping,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
