package cache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"os"
	"strings"

	bolt "go.etcd.io/bbolt"
)

// salvage writes the file anew with everything that can be trusted, and keeps
// the old one aside. It is for files in which a search would miss something,
// such as after a flipped byte in a key.
func (b *Bolt) salvage(ctx context.Context) error {
	w, err := b.openForWriting()
	if err != nil {
		// Busy or gone: the next process sees to it.
		return nil
	}
	defer func() {
		if w != nil {
			_ = w.db.Close()
		}
	}()
	temp := b.path + ".new-salvage"
	err = b.copyGood(w, temp)
	if isDamage(err) {
		w = nil // its locks may be lost
		return b.setAside(err)
	}
	if err != nil {
		return &StateError{Op: "salvage", Path: b.path, Err: err}
	}
	aside, err := b.asideName()
	if err == nil {
		err = errors.Join(os.Rename(b.path, aside), os.Rename(temp, b.path))
	}
	if err != nil {
		return &StateError{Op: "salvage", Path: b.path, Err: err}
	}
	b.damaged(aside, bad("something was out of place"))
	return ctx.Err()
}

func (b *Bolt) copyGood(w *writer, temp string) (err error) {
	defer caught(&err, func() { closeFile(w.file) })
	defer faults()()
	_ = os.Remove(temp) // of one who died here
	to, err := openNew(temp)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	return w.db.View(func(from *bolt.Tx) error {
		return to.Update(func(tx *bolt.Tx) error {
			return from.ForEach(func(name []byte, bk *bolt.Bucket) error {
				if bk == nil {
					return nil // no search finds it
				}
				id := self(bk)
				if id == "" {
					id = strings.Clone(string(name))
				}
				return salvageCluster(tx, id, bk)
			})
		})
	})
}

func salvageCluster(tx *bolt.Tx, id string, from *bolt.Bucket) error {
	c := &boltCluster{id: id}
	for _, part := range []struct {
		name []byte
		good func(k, v []byte) bool
	}{
		{recordsBucket, func(k, v []byte) bool {
			_, err := decodeRecord(string(k), v)
			return err == nil
		}},
		{kvBucket, func(k, v []byte) bool {
			_, ok := decodeValue(k, v)
			return ok
		}},
		{valuesBucket, func(k, v []byte) bool {
			sum := sha256.Sum256(v)
			return bytes.Equal(k, sum[:])
		}},
	} {
		old := from.Bucket(part.name)
		if old == nil {
			continue
		}
		to, err := c.make(tx, part.name)
		if err != nil {
			return err
		}
		cur := old.Cursor()
		for k, v := cur.First(); k != nil; k, v = cur.Next() {
			if v != nil && part.good(k, v) {
				if err := to.Put(k, v); err != nil {
					return err
				}
			}
		}
	}
	return nil
}
