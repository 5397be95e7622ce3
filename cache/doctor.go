package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	bolt "go.etcd.io/bbolt"
)

// Report is what Doctor found.
type Report struct {
	Path     string
	Missing  bool // there is no file, which is fine
	Size     int64
	Clusters []ClusterReport
	Problems []string // empty: healthy
}

// ClusterReport is a cluster's part of a Report.
type ClusterReport struct {
	ID      string
	Records int
	Damaged []string // names of records that cannot be trusted
}

// Doctor reads everything and checks it. It changes nothing, and every kind of
// damage is a problem in the report, not an error.
func (b *Bolt) Doctor(ctx context.Context) (Report, error) {
	r := Report{Path: b.path}
	st, err := os.Stat(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		r.Missing = true
		return r, nil
	}
	if err != nil {
		return r, &StateError{Op: "open", Path: b.path, Err: err}
	}
	r.Size = st.Size()
	f, err := lockedFile(ctx, b.path, syscall.LOCK_SH)
	if err != nil {
		return r, &StateError{Op: "open", Path: b.path, Err: err}
	}
	askew, err := checkPages(f)
	closeFile(f)
	if err != nil {
		r.Problems = append(r.Problems, err.Error())
		return r, nil
	}
	if askew {
		r.Problems = append(r.Problems, "keys are out of order: the next write makes the file anew")
	}
	err = b.read(ctx, func(tx *bolt.Tx) error {
		r.Clusters = nil
		return tx.ForEach(func(name []byte, bk *bolt.Bucket) error {
			r.Clusters = append(r.Clusters, examine(string(name), bk, &r))
			return nil
		})
	})
	return r, err
}

// examine decodes all of a cluster's records.
func examine(id string, bk *bolt.Bucket, r *Report) ClusterReport {
	c := ClusterReport{ID: id}
	if bk == nil {
		r.Problems = append(r.Problems, id+" cannot be found by a search")
		return c
	}
	if s := self(bk); s != id {
		r.Problems = append(r.Problems, fmt.Sprintf("%s says it is %q", id, s))
	}
	records := bk.Bucket(recordsBucket)
	if records == nil {
		return c
	}
	cur := records.Cursor()
	for k, v := cur.First(); k != nil; k, v = cur.Next() {
		c.Records++
		if _, err := decodeRecord(string(k), v); err != nil {
			c.Damaged = append(c.Damaged, string(k))
			r.Problems = append(r.Problems, fmt.Sprintf("%s: %s: %v", id, k, err))
		}
	}
	return c
}
