package cachetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hk/cache"
	"hk/cache/fp"
)

// Contract runs what every store must do. open returns a new, empty one, which
// the test closes.
func Contract(t *testing.T, open func(t *testing.T) cache.Store) {
	for name, test := range map[string]func(*testing.T, cache.Store){
		"empty": testEmpty, "records": testRecords, "order": testOrder, "values": testValues,
		"large": testLarge, "generation": testGeneration, "apart": testApart, "rename": testRename, "many": testMany,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			defer func() {
				if err := s.Close(); err != nil {
					t.Errorf("close: %v", err)
				}
			}()
			test(t, s)
		})
	}
}

// Sample is a record with every field set, different for each n.
func Sample(n int) *fp.Record {
	var p fp.Parts
	p.Int("recipe", int64(n))
	p.Text("config:name", fmt.Sprint("name-", n))
	p.Opaque("file:/etc/x", []byte{byte(n)})
	at := time.Date(2027, 1, 2, 3, 4, 5, 6, time.UTC).Add(time.Duration(n) * time.Second)
	return &fp.Record{
		Status: fp.Done, Fingerprint: p.Fingerprint(), Output: fp.Output{"addr": fmt.Sprint("10.0.0.", n)},
		Parts: p.List(), Observed: map[string]string{"file:/etc/x": "1f2e 0644 root", "unit:x.service": "active"},
		Drift: "", GoodUntil: at.Add(time.Hour), Started: at, Took: time.Duration(n+1) * time.Millisecond,
		RunID: "r1", Reason: "no record", Attempt: 1, Generation: 7,
	}
}

// Commit writes and waits.
func Commit(t testing.TB, c cache.Cluster, changes ...fp.Change) {
	t.Helper()
	done := make(chan error, 1)
	c.Commit(changes, func(err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatalf("commit: %v", err)
	}
}

func load(t *testing.T, c cache.Cluster) map[string]fp.Kept {
	t.Helper()
	out := map[string]fp.Kept{}
	last := ""
	if err := c.Load(context.Background(), func(name []byte, k fp.Kept) {
		if string(name) <= last {
			t.Errorf("%s comes after %s", name, last)
		}
		last = string(name)
		out[last] = k
	}); err != nil {
		t.Fatalf("load: %v", err)
	}
	return out
}

func testEmpty(t *testing.T, s cache.Store) {
	ctx := context.Background()
	c := s.Cluster("a")
	if got := load(t, c); len(got) != 0 {
		t.Errorf("an empty store has records: %v", got)
	}
	recs, err := c.Whole(ctx, []string{"x"})
	if err != nil || len(recs) != 1 || recs[0] != nil {
		t.Errorf("whole: %v, %v", recs, err)
	}
	if v, err := c.Get(ctx, "k"); v != nil || err != nil {
		t.Errorf("get: %v, %v", v, err)
	}
	if g, err := c.Generation(ctx); g != 0 || err != nil {
		t.Errorf("generation: %v, %v", g, err)
	}
	if ids, err := s.Clusters(ctx); len(ids) != 0 || err != nil {
		t.Errorf("clusters: %v, %v", ids, err)
	}
}

func testRecords(t *testing.T, s cache.Store) {
	c := s.Cluster("a")
	full, bare := Sample(1), &fp.Record{Status: fp.Pending}
	failed := Sample(2)
	failed.Status, failed.Error, failed.Drift = fp.Failed, "no space", "/etc/x changed"
	Commit(t, c, fp.Change{Name: "p.a/h", Record: full}, fp.Change{Name: "p.b", Record: bare}, fp.Change{Name: "p.c", Record: failed})
	want := map[string]fp.Kept{"p.a/h": fp.Keep(full), "p.b": fp.Keep(bare), "p.c": fp.Keep(failed)}
	if diff := cmp.Diff(want, load(t, c)); diff != "" {
		t.Errorf("load (-want +got):\n%s", diff)
	}
	recs, err := c.Whole(context.Background(), []string{"p.c", "p.x", "p.a/h", "p.b"})
	if err != nil {
		t.Fatalf("whole: %v", err)
	}
	if diff := cmp.Diff([]*fp.Record{failed, nil, full, bare}, recs); diff != "" {
		t.Errorf("whole (-want +got):\n%s", diff)
	}
	Commit(t, c, fp.Change{Name: "p.b"}, fp.Change{Name: "p.none"})
	delete(want, "p.b")
	if diff := cmp.Diff(want, load(t, c)); diff != "" {
		t.Errorf("after removal (-want +got):\n%s", diff)
	}
}

func testOrder(t *testing.T, s cache.Store) {
	c := s.Cluster("a")
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Add(1)
		c.Commit([]fp.Change{{Name: "x", Record: Sample(i)}}, func(err error) {
			if err != nil {
				t.Errorf("commit %d: %v", i, err)
			}
			wg.Done()
		})
	}
	wg.Wait()
	if got := load(t, c)["x"]; got.Fingerprint != Sample(99).Fingerprint {
		t.Errorf("the last of 100 commits is not what is kept")
	}
}

func testValues(t *testing.T, s cache.Store) {
	ctx := context.Background()
	c := s.Cluster("a")
	if err := c.Put(ctx, map[string][]byte{"b/1": []byte("one"), "b/2": {}, "c": []byte("three"), "b": []byte("zero")}); err != nil {
		t.Fatalf("put: %v", err)
	}
	var got []string
	if err := c.List(ctx, "b/", func(k string, v []byte) { got = append(got, k+"="+string(v)) }); err != nil {
		t.Fatalf("list: %v", err)
	}
	if diff := cmp.Diff([]string{"b/1=one", "b/2="}, got); diff != "" {
		t.Errorf("list (-want +got):\n%s", diff)
	}
	if v, err := c.Get(ctx, "b/2"); v == nil || len(v) != 0 || err != nil {
		t.Errorf("an empty value comes back as %v, %v", v, err)
	}
	if err := c.Put(ctx, map[string][]byte{"c": nil}); err != nil {
		t.Fatalf("remove: %v", err)
	}
	if v, err := c.Get(ctx, "c"); v != nil || err != nil {
		t.Errorf("a removed value comes back as %q, %v", v, err)
	}
}

func testLarge(t *testing.T, s cache.Store) {
	ctx := context.Background()
	c := s.Cluster("a")
	large := make([]byte, 1<<20)
	large[77] = 1
	d, err := c.PutValue(ctx, large)
	if err != nil {
		t.Fatalf("put: %v", err)
	}
	got, err := c.Value(ctx, d)
	if err != nil || !bytes.Equal(large, got) {
		t.Errorf("a value of 1 MiB comes back with %d bytes, %v", len(got), err)
	}
	if got, err := c.Value(ctx, fp.OutputDigest{1}); got != nil || err != nil {
		t.Errorf("an unknown digest gives %v, %v", got, err)
	}
}

func testGeneration(t *testing.T, s cache.Store) {
	ctx := context.Background()
	c := s.Cluster("a")
	if err := c.SetGeneration(ctx, 41); err != nil {
		t.Fatalf("set: %v", err)
	}
	if g, err := s.Cluster("a").Generation(ctx); g != 41 || err != nil {
		t.Errorf("generation: %v, %v", g, err)
	}
	if err := c.List(ctx, "", func(k string, _ []byte) { t.Errorf("%q is listed", k) }); err != nil {
		t.Errorf("list: %v", err)
	}
}

func testApart(t *testing.T, s cache.Store) {
	ctx := context.Background()
	a, b := s.Cluster("a"), s.Cluster("b")
	Commit(t, a, fp.Change{Name: "x", Record: Sample(1)})
	Commit(t, b, fp.Change{Name: "x", Record: Sample(2)})
	if load(t, a)["x"].Fingerprint == load(t, b)["x"].Fingerprint {
		t.Errorf("two clusters share a record")
	}
	if ids, err := s.Clusters(ctx); err != nil || !cmp.Equal([]string{"a", "b"}, ids) {
		t.Errorf("clusters: %v, %v", ids, err)
	}
	if err := a.Drop(ctx); err != nil {
		t.Fatalf("drop: %v", err)
	}
	if len(load(t, a)) != 0 || len(load(t, b)) != 1 {
		t.Errorf("after dropping a: %v, %v", load(t, a), load(t, b))
	}
}

func testRename(t *testing.T, s cache.Store) {
	ctx := context.Background()
	c := s.Cluster("demo")
	Commit(t, c, fp.Change{Name: "x", Record: Sample(1)})
	if err := c.SetGeneration(ctx, 3); err != nil {
		t.Fatalf("generation: %v", err)
	}
	Commit(t, s.Cluster("taken"), fp.Change{Name: "y", Record: Sample(2)})
	if err := c.Rename(ctx, "taken"); err == nil || errors.Is(err, cache.ErrState) {
		t.Errorf("renamed over another cluster: %v", err)
	}
	if err := c.Rename(ctx, "uid"); err != nil {
		t.Fatalf("rename: %v", err)
	}
	Commit(t, c, fp.Change{Name: "z", Record: Sample(3)})
	if got := load(t, s.Cluster("uid")); len(got) != 2 {
		t.Errorf("after the rename: %v", got)
	}
	if g, err := s.Cluster("uid").Generation(ctx); g != 3 || err != nil {
		t.Errorf("generation: %v, %v", g, err)
	}
	if len(load(t, s.Cluster("demo"))) != 0 {
		t.Errorf("the old name has records still")
	}
}

// testMany reads while many write.
func testMany(t *testing.T, s cache.Store) {
	c := s.Cluster("a")
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 25 {
				done := make(chan error, 1)
				c.Commit([]fp.Change{{Name: fmt.Sprintf("w%d.%02d", w, i), Record: Sample(i)}}, func(err error) { done <- err })
				if err := <-done; err != nil {
					t.Errorf("commit: %v", err)
				}
			}
		})
	}
	for range 20 {
		load(t, c)
	}
	wg.Wait()
	if n := len(load(t, c)); n != 100 {
		t.Errorf("%d of 100 records", n)
	}
}
