package cache

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"

	bolt "go.etcd.io/bbolt"

	"hk/cache/fp"
)

// The file has a bucket for each cluster, and in it these. The values bucket
// holds what is addressed by digest; kv what is small. Keys of kv that begin
// with a zero byte are ours.
var (
	recordsBucket = []byte("records")
	kvBucket      = []byte("kv")
	valuesBucket  = []byte("values")
)

const (
	keySelf       = "\x00self" // the cluster's ID, in case the bucket's key was damaged
	keyGeneration = "\x00generation"
)

// boltCluster is a cluster's part of a Bolt.
type boltCluster struct {
	b  *Bolt
	mu sync.Mutex
	id string
}

// Cluster is the part of the store for one cluster.
func (b *Bolt) Cluster(id string) Cluster {
	if id == "" {
		panic("bug: a cluster without an ID")
	}
	return &boltCluster{b: b, id: id}
}

// Clusters lists those that have anything kept.
func (b *Bolt) Clusters(ctx context.Context) ([]string, error) {
	var out []string
	err := b.read(ctx, func(tx *bolt.Tx) error {
		out = nil
		return tx.ForEach(func(name []byte, bk *bolt.Bucket) error {
			if bk != nil {
				out = append(out, string(name))
			}
			return nil
		})
	})
	slices.Sort(out)
	return out, err
}

func (c *boltCluster) ID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

// find returns a cluster's bucket, nil if there is none.
func (c *boltCluster) find(tx *bolt.Tx) *bolt.Bucket {
	id := c.ID()
	if bk := tx.Bucket([]byte(id)); bk != nil {
		return bk
	}
	var found *bolt.Bucket
	_ = tx.ForEach(func(_ []byte, bk *bolt.Bucket) error {
		if bk != nil && self(bk) == id {
			c.b.outOfPlace()
			found = bk
		}
		return nil
	})
	return found
}

// self is the ID a cluster's bucket keeps of itself.
func self(bk *bolt.Bucket) string {
	kv := bk.Bucket(kvBucket)
	if kv == nil {
		return ""
	}
	v, ok := decodeValue([]byte(keySelf), kv.Get([]byte(keySelf)))
	if !ok {
		return ""
	}
	return string(v)
}

// make returns a bucket of the cluster, which it makes if it is not there.
func (c *boltCluster) make(tx *bolt.Tx, name []byte) (*bolt.Bucket, error) {
	id := c.ID()
	bk := tx.Bucket([]byte(id))
	if bk == nil {
		var err error
		if bk, err = tx.CreateBucket([]byte(id)); err != nil {
			return nil, err
		}
		kv, err := bk.CreateBucket(kvBucket)
		if err != nil {
			return nil, err
		}
		if err := kv.Put([]byte(keySelf), encodeValue(keySelf, []byte(id))); err != nil {
			return nil, err
		}
	}
	return bk.CreateBucketIfNotExists(name)
}

// in runs f with one of the cluster's buckets, if it is there.
func (c *boltCluster) in(ctx context.Context, name []byte, f func(*bolt.Bucket) error) error {
	return c.b.read(ctx, func(tx *bolt.Tx) error {
		bk := c.find(tx)
		if bk == nil {
			return nil
		}
		if bk = bk.Bucket(name); bk == nil {
			return nil
		}
		return f(bk)
	})
}

// Load hands over every record. All of each is read and its checksum compared,
// so that no damage goes unseen; only the front is decoded. Outputs are copied
// into a few large pieces of memory.
func (c *boltCluster) Load(ctx context.Context, each func(name []byte, k fp.Kept)) error {
	var room []byte
	return c.in(ctx, recordsBucket, func(bk *bolt.Bucket) error {
		cur := bk.Cursor()
		for key, v := cur.First(); key != nil; key, v = cur.Next() {
			name, k, err := decodeKept(v)
			switch {
			case err != nil:
				each(key, fp.Kept{Damaged: true})
				continue
			case !bytes.Equal(name, key):
				// The key was damaged. Whose record it is, is known; that it
				// was found by luck, too.
				c.b.outOfPlace()
				each(name, fp.Kept{Damaged: true})
				continue
			}
			if n := len(k.Output); n > 0 {
				if n > cap(room)-len(room) {
					room = make([]byte, 0, max(n, 256<<10))
				}
				at := len(room)
				room = append(room, k.Output...)
				k.Output = room[at:len(room):len(room)]
			}
			each(key, k)
		}
		return nil
	})
}

// Whole returns complete records.
func (c *boltCluster) Whole(ctx context.Context, names []string) ([]*fp.Record, error) {
	out := make([]*fp.Record, len(names))
	if len(names) == 0 {
		return out, nil
	}
	err := c.in(ctx, recordsBucket, func(bk *bolt.Bucket) error {
		for i, name := range names {
			out[i] = nil
			if v := bk.Get([]byte(name)); v != nil {
				out[i], _ = decodeRecord(name, v) // damaged is missing
			}
		}
		return nil
	})
	return out, err
}

// Commit makes changes durable.
func (c *boltCluster) Commit(changes []fp.Change, done func(error)) {
	c.b.enqueue(&op{do: func(tx *bolt.Tx) error {
		bk, err := c.make(tx, recordsBucket)
		if err != nil {
			return err
		}
		for i := range changes {
			ch := &changes[i]
			if ch.Record == nil {
				err = bk.Delete([]byte(ch.Name))
			} else {
				err = bk.Put([]byte(ch.Name), encodeRecord(ch.Name, ch.Record))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}, done: done})
}

// Get returns a value.
func (c *boltCluster) Get(ctx context.Context, key string) ([]byte, error) {
	var out []byte
	err := c.in(ctx, kvBucket, func(bk *bolt.Bucket) error {
		out = nil
		if v, ok := decodeValue([]byte(key), bk.Get([]byte(key))); ok {
			out = append([]byte{}, v...)
		}
		return nil
	})
	return out, err
}

// Put writes values.
func (c *boltCluster) Put(ctx context.Context, values map[string][]byte) error {
	for key := range values {
		if key == "" || key[0] == 0 {
			panic("bug: not a key: " + key)
		}
	}
	return c.put(ctx, values)
}

func (c *boltCluster) put(ctx context.Context, values map[string][]byte) error {
	values = maps.Clone(values)
	for k, v := range values {
		if v != nil {
			values[k] = encodeValue(k, v)
		}
	}
	return c.b.write(ctx, func(tx *bolt.Tx) error {
		bk, err := c.make(tx, kvBucket)
		if err != nil {
			return err
		}
		for _, k := range slices.Sorted(maps.Keys(values)) {
			if values[k] == nil {
				err = bk.Delete([]byte(k))
			} else {
				err = bk.Put([]byte(k), values[k])
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// List calls each with every key that has the prefix.
func (c *boltCluster) List(ctx context.Context, prefix string, each func(key string, value []byte)) error {
	return c.in(ctx, kvBucket, func(bk *bolt.Bucket) error {
		cur := bk.Cursor()
		for k, v := cur.Seek([]byte(prefix)); k != nil && bytes.HasPrefix(k, []byte(prefix)); k, v = cur.Next() {
			if value, ok := decodeValue(k, v); ok && k[0] != 0 {
				each(string(k), value)
			}
		}
		return nil
	})
}

// PutValue keeps a large value under its SHA-256.
func (c *boltCluster) PutValue(ctx context.Context, value []byte) (fp.OutputDigest, error) {
	digest := fp.OutputDigest(sha256.Sum256(value))
	value = bytes.Clone(value)
	return digest, c.b.write(ctx, func(tx *bolt.Tx) error {
		bk, err := c.make(tx, valuesBucket)
		if err != nil {
			return err
		}
		return bk.Put(digest[:], value)
	})
}

// Value returns a value by its digest.
func (c *boltCluster) Value(ctx context.Context, digest fp.OutputDigest) ([]byte, error) {
	var out []byte
	err := c.in(ctx, valuesBucket, func(bk *bolt.Bucket) error {
		out = nil
		if v := bk.Get(digest[:]); v != nil && sha256.Sum256(v) == digest {
			out = append([]byte{}, v...)
		}
		return nil
	})
	return out, err
}

// Generation is the cluster generation the records belong to.
func (c *boltCluster) Generation(ctx context.Context) (uint64, error) {
	v, err := c.Get(ctx, keyGeneration)
	if err != nil || len(v) != 8 {
		return 0, err
	}
	return binary.LittleEndian.Uint64(v), nil
}

// SetGeneration changes it.
func (c *boltCluster) SetGeneration(ctx context.Context, generation uint64) error {
	return c.put(ctx, map[string][]byte{keyGeneration: binary.LittleEndian.AppendUint64(nil, generation)})
}

// Drop forgets everything of the cluster.
func (c *boltCluster) Drop(ctx context.Context) error {
	return c.b.write(ctx, func(tx *bolt.Tx) error {
		if tx.Bucket([]byte(c.ID())) == nil {
			return nil
		}
		return tx.DeleteBucket([]byte(c.ID()))
	})
}

// Rename moves everything to another ID. The handle follows.
func (c *boltCluster) Rename(ctx context.Context, id string) error {
	from := c.ID()
	err := c.b.write(ctx, func(tx *bolt.Tx) error {
		if id == from {
			return nil
		}
		if tx.Bucket([]byte(id)) != nil {
			return refusal{fmt.Errorf("%s has records already", id)}
		}
		old := tx.Bucket([]byte(from))
		if old == nil {
			return nil
		}
		to, err := tx.CreateBucket([]byte(id))
		if err != nil {
			return err
		}
		if err := copyBucket(to, old); err != nil {
			return err
		}
		kv, err := to.CreateBucketIfNotExists(kvBucket)
		if err != nil {
			return err
		}
		if err := kv.Put([]byte(keySelf), encodeValue(keySelf, []byte(id))); err != nil {
			return err
		}
		return tx.DeleteBucket([]byte(from))
	})
	if err == nil {
		c.mu.Lock()
		c.id = id
		c.mu.Unlock()
	}
	return err
}

func copyBucket(to, from *bolt.Bucket) error {
	return from.ForEach(func(k, v []byte) error {
		if v != nil {
			return to.Put(k, v)
		}
		sub, err := to.CreateBucket(k)
		if err != nil {
			return err
		}
		return copyBucket(sub, from.Bucket(k))
	})
}
