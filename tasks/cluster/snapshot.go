package cluster

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"hk/remote"
	"hk/tasks/spec"
)

// Snapshot is an etcd snapshot in a local file.
type Snapshot struct {
	V       int    `json:"v"`
	Cluster string `json:"cluster"`
	Path    string `json:"path"`
	Size    int64  `json:"size"`
	SHA256  string `json:"sha256"` // of the file
	Member  string `json:"member"` // host it was taken from
	// RaftIndex is what that member had applied before the snapshot began: the
	// snapshot holds at least this.
	RaftIndex uint64    `json:"raft_index"`
	Taken     time.Time `json:"taken"`
	Warnings  []string  `json:"warnings"`
}

// SaveSnapshot streams a snapshot from a member into a file of mode 0600,
// written beside its place and renamed into it only when it proved whole. An
// empty member means any that answers, a follower before the leader.
func (s *Session) SaveSnapshot(ctx context.Context, path, member string) (*Snapshot, error) {
	if s.Unit() == nil {
		return nil, s.noUnit()
	}
	e, err := s.Etcd()
	if err != nil {
		return nil, err
	}
	if _, err := os.Lstat(path); err == nil {
		return nil, &Refusal{
			Exit: ExitUsage, World: "config", Message: path + " exists: a snapshot never replaces a file",
			Hints: []string{"give another name, or move the file away"},
		}
	}
	snap := &Snapshot{V: 1, Cluster: s.o.Name, Path: path, Taken: s.o.World.Clock().UTC(), Warnings: []string{}}
	st, err := s.pickMember(ctx, e, member, snap)
	if err != nil {
		return nil, err
	}
	snap.RaftIndex = st.Applied
	if len(st.Alarms) > 0 {
		snap.Warnings = append(snap.Warnings, snap.Member+" raises alarms: "+strings.Join(st.Alarms, ", "))
	}
	return snap, snap.save(ctx, e)
}

// memberTime is how long a member may take to tell its state.
const memberTime = 5 * time.Second

// pickMember chooses whom to ask and names those that do not answer.
func (s *Session) pickMember(ctx context.Context, e remote.Etcd, want string, snap *Snapshot) (*remote.EtcdStatus, error) {
	type answer struct {
		host string
		st   *remote.EtcdStatus
		err  error
	}
	var answers []*answer
	for _, h := range s.Wanted() {
		if h.Has(spec.Etcd) && (want == "" || h.Name == want) {
			answers = append(answers, &answer{host: h.Name})
		}
	}
	if len(answers) == 0 {
		return nil, &Refusal{Exit: ExitUsage, World: "config", Message: fmt.Sprintf("%s has no etcd member on %s", s.o.Name, want)}
	}
	var wg sync.WaitGroup
	for _, a := range answers {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, memberTime)
			defer cancel()
			a.st, a.err = e.Status(ctx, a.host)
		})
	}
	wg.Wait()
	var best *answer
	var errs []error
	for _, a := range answers {
		switch {
		case a.err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", a.host, a.err))
			snap.Warnings = append(snap.Warnings, a.host+" does not answer: "+a.err.Error())
		case a.st.Learner && want == "":
			// It may lack what the others have.
		case best == nil, best.st.Leader == best.st.Member && a.st.Leader != a.st.Member:
			best = a
		}
	}
	if best == nil {
		return nil, fmt.Errorf("no etcd member of %s answers: %w", s.o.Name, errors.Join(errs...))
	}
	snap.Member = best.host
	return best.st, nil
}

func (snap *Snapshot) save(ctx context.Context, e remote.Etcd) (err error) {
	dir := filepath.Dir(snap.Path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return stateError("making", dir, err)
	}
	f, err := os.CreateTemp(dir, "."+filepath.Base(snap.Path)+".part-") // 0600
	if err != nil {
		return stateError("writing to", dir, err)
	}
	defer func() {
		err = errors.Join(err, f.Close())
		if rerr := os.Remove(f.Name()); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}()
	w := &snapshotWriter{f: f, sum: sha256.New(), whole: sha256.New()}
	if _, err := e.Snapshot(ctx, snap.Member, w); err != nil {
		if w.err != nil {
			return stateError("writing", f.Name(), w.err)
		}
		return fmt.Errorf("taking a snapshot from %s: %w", snap.Member, err)
	}
	if err := w.check(); err != nil {
		return fmt.Errorf("the snapshot from %s is not whole: %w", snap.Member, err)
	}
	if err := f.Sync(); err != nil {
		return stateError("writing", f.Name(), err)
	}
	// Link does not replace what came there meanwhile, as rename would.
	if err := os.Link(f.Name(), snap.Path); err != nil {
		return stateError("making", snap.Path, err)
	}
	snap.Size, snap.SHA256 = w.n, hex.EncodeToString(w.whole.Sum(nil))
	return stateError("writing", dir, syncDir(dir))
}

// snapshotWriter writes a snapshot and hashes it on the way. An etcd snapshot is
// the database file, a multiple of 512 bytes, then the SHA-256 of it.
type snapshotWriter struct {
	f     *os.File
	n     int64
	head  []byte    // the beginning, up to headSize
	tail  []byte    // the last bytes, not yet in sum
	sum   hash.Hash // of all but tail
	whole hash.Hash
	err   error
}

const (
	boltMagicAt = 16 // in the first meta page, after the page's header
	boltMagic   = 0xED0CDAED
	headSize    = 64
)

func (w *snapshotWriter) Write(p []byte) (int, error) {
	n, err := w.f.Write(p)
	if err != nil {
		w.err = err
		return n, err
	}
	w.n += int64(n)
	w.whole.Write(p)
	if room := headSize - len(w.head); room > 0 {
		w.head = append(w.head, p[:min(room, len(p))]...)
	}
	w.tail = append(w.tail, p...)
	if over := len(w.tail) - sha256.Size; over > 0 {
		w.sum.Write(w.tail[:over])
		w.tail = slices.Clone(w.tail[over:])
	}
	return n, nil
}

// check proves that the file is a database and whole.
func (w *snapshotWriter) check() error {
	switch {
	case w.n%512 != sha256.Size:
		return fmt.Errorf("%d bytes, no hash at its end", w.n)
	case len(w.head) < boltMagicAt+4 || binary.LittleEndian.Uint32(w.head[boltMagicAt:]) != boltMagic:
		return errors.New("it is not an etcd database")
	case !bytes.Equal(w.sum.Sum(nil), w.tail):
		return errors.New("its hash is another one")
	}
	return nil
}
