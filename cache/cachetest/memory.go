package cachetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"hk/cache"
	"hk/cache/fp"
)

// Memory is a cache.Store that lasts as long as the process. Every write is
// durable at once.
type Memory struct {
	mu       sync.Mutex
	clusters map[string]*content
	// Refuse, if not nil, is the answer to every write from now on.
	refuse error
}

type content struct {
	records map[string]*fp.Record
	values  map[string][]byte
	large   map[fp.OutputDigest][]byte
	gen     uint64
}

// NewMemory returns an empty store.
func NewMemory() *Memory { return &Memory{clusters: map[string]*content{}} }

// Refuse makes every write fail with err from now on; nil ends that.
func (m *Memory) Refuse(err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refuse = err
}

// Cluster is the part of the store for one cluster.
func (m *Memory) Cluster(id string) cache.Cluster { return &memoryCluster{m: m, id: id} }

// Clusters lists those that have anything kept.
func (m *Memory) Clusters(context.Context) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.clusters)), nil
}

// Close has nothing to wait for.
func (m *Memory) Close() error { return nil }

type memoryCluster struct {
	m  *Memory
	id string
}

// with runs f with what is kept, an empty one if there is nothing.
func (c *memoryCluster) with(f func(*content)) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if got := c.m.clusters[c.id]; got != nil {
		f(got)
		return
	}
	f(&content{})
}

// change runs f with what is kept, which it makes if needed.
func (c *memoryCluster) change(f func(*content) error) error {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if c.m.refuse != nil {
		return c.m.refuse
	}
	if c.m.clusters[c.id] == nil {
		c.m.clusters[c.id] = &content{
			records: map[string]*fp.Record{}, values: map[string][]byte{}, large: map[fp.OutputDigest][]byte{},
		}
	}
	return f(c.m.clusters[c.id])
}

func (c *memoryCluster) Load(_ context.Context, each func([]byte, fp.Kept)) error {
	c.with(func(s *content) {
		for _, name := range slices.Sorted(maps.Keys(s.records)) {
			each([]byte(name), fp.Keep(s.records[name]))
		}
	})
	return nil
}

func (c *memoryCluster) Whole(_ context.Context, names []string) ([]*fp.Record, error) {
	out := make([]*fp.Record, len(names))
	c.with(func(s *content) {
		for i, name := range names {
			if r := s.records[name]; r != nil {
				out[i] = clone(r)
			}
		}
	})
	return out, nil
}

func clone(r *fp.Record) *fp.Record {
	c := *r
	c.Output, c.Observed, c.Parts = maps.Clone(r.Output), maps.Clone(r.Observed), slices.Clone(r.Parts)
	return &c
}

func (c *memoryCluster) Commit(changes []fp.Change, done func(error)) {
	done(c.change(func(s *content) error {
		for _, ch := range changes {
			if ch.Record == nil {
				delete(s.records, ch.Name)
			} else {
				s.records[ch.Name] = clone(ch.Record)
			}
		}
		return nil
	}))
}

func (c *memoryCluster) Get(_ context.Context, key string) (out []byte, _ error) {
	c.with(func(s *content) { out = bytes.Clone(s.values[key]) })
	return out, nil
}

func (c *memoryCluster) Put(_ context.Context, values map[string][]byte) error {
	return c.change(func(s *content) error {
		for k, v := range values {
			if v == nil {
				delete(s.values, k)
			} else {
				s.values[k] = append([]byte{}, v...)
			}
		}
		return nil
	})
}

func (c *memoryCluster) List(_ context.Context, prefix string, each func(string, []byte)) error {
	c.with(func(s *content) {
		for _, k := range slices.Sorted(maps.Keys(s.values)) {
			if strings.HasPrefix(k, prefix) {
				each(k, s.values[k])
			}
		}
	})
	return nil
}

func (c *memoryCluster) PutValue(_ context.Context, value []byte) (fp.OutputDigest, error) {
	digest := fp.OutputDigest(sha256.Sum256(value))
	return digest, c.change(func(s *content) error {
		s.large[digest] = append([]byte{}, value...)
		return nil
	})
}

func (c *memoryCluster) Value(_ context.Context, digest fp.OutputDigest) (out []byte, _ error) {
	c.with(func(s *content) { out = bytes.Clone(s.large[digest]) })
	return out, nil
}

func (c *memoryCluster) Generation(context.Context) (gen uint64, _ error) {
	c.with(func(s *content) { gen = s.gen })
	return gen, nil
}

func (c *memoryCluster) SetGeneration(_ context.Context, generation uint64) error {
	return c.change(func(s *content) error { s.gen = generation; return nil })
}

func (c *memoryCluster) Drop(context.Context) error {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if c.m.refuse == nil {
		delete(c.m.clusters, c.id)
	}
	return c.m.refuse
}

func (c *memoryCluster) Rename(_ context.Context, id string) error {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	switch {
	case c.m.refuse != nil:
		return c.m.refuse
	case id == c.id:
		return nil
	case c.m.clusters[id] != nil:
		return fmt.Errorf("%s has records already", id)
	}
	if got := c.m.clusters[c.id]; got != nil {
		c.m.clusters[id] = got
		delete(c.m.clusters, c.id)
	}
	c.id = id
	return nil
}
