package cache

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Holder is who builds a cluster from this computer.
type Holder struct {
	PID     int       `json:"pid"`
	Host    string    `json:"host"`
	User    string    `json:"user"`
	Command string    `json:"command"`
	Run     string    `json:"run"`
	Started time.Time `json:"started"`
}

// ErrLocked is wrapped where another process builds the same cluster.
var ErrLocked = errors.New("locked")

// LockedError is ErrLocked with who holds the lock; its fields are zero if the
// holder did not get to write them.
type LockedError struct {
	Path   string
	Holder Holder
}

func (e *LockedError) Error() string {
	h := e.Holder
	if h.PID == 0 {
		return "locked by another process (" + e.Path + ")"
	}
	return fmt.Sprintf("locked by %s@%s, process %d, since %s: %s",
		h.User, h.Host, h.PID, h.Started.UTC().Format(time.RFC3339), h.Command)
}

// Is makes it an ErrLocked.
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// Lock is a held run lock: a lock of the kernel on a file whose text says who
// holds it. The kernel's lock is the truth and goes with the process; the text
// is for people, and may be left over from one who was killed.
type Lock struct{ f *os.File }

// TakeLock takes the lock in a file, which it creates with its directory. If
// another process holds it: *LockedError at once.
func TakeLock(path string, h Holder) (*Lock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, &StateError{Op: "lock", Path: path, Err: err}
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, &StateError{Op: "lock", Path: path, Err: err}
	}
	err = flock(f, syscall.LOCK_EX)
	for range 20 { // one who only asks who holds it is gone in no time
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
		time.Sleep(time.Millisecond)
		err = flock(f, syscall.LOCK_EX)
	}
	if err != nil {
		defer func() { _ = f.Close() }() // it was only read
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, &LockedError{Path: path, Holder: readHolder(f)}
		}
		return nil, &StateError{Op: "lock", Path: path, Err: err}
	}
	if err := writeHolder(f, h); err != nil {
		_ = f.Close()
		return nil, &StateError{Op: "lock", Path: path, Err: err}
	}
	return &Lock{f: f}, nil
}

// Release gives the lock back. The file stays: removing it would let one
// process lock the removed file and another the next.
func (l *Lock) Release() error {
	if l == nil || l.f == nil {
		return nil
	}
	f := l.f
	l.f = nil
	return errors.Join(f.Truncate(0), f.Close())
}

// ReadLock returns who holds the lock in a file, nil if nobody does. It writes
// nothing.
func ReadLock(path string) (*Holder, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &StateError{Op: "read", Path: path, Err: err}
	}
	defer func() { _ = f.Close() }() // read only
	// A shared lock is refused only while somebody holds the exclusive one.
	switch err := flock(f, syscall.LOCK_SH); {
	case err == nil:
		return nil, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		h := readHolder(f)
		return &h, nil
	default:
		return nil, &StateError{Op: "read", Path: path, Err: err}
	}
}

func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func writeHolder(f *os.File, h Holder) error {
	text, err := json.Marshal(h)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(append(text, '\n'), 0)
	return err
}

// readHolder is zero if the text is not whole yet, or damaged.
func readHolder(f *os.File) Holder {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 64<<10))
	if err != nil {
		return Holder{}
	}
	return parseHolder(text)
}

func parseHolder(text []byte) Holder {
	var h Holder
	if json.Unmarshal(text, &h) != nil || h.PID < 0 {
		return Holder{}
	}
	return h
}
