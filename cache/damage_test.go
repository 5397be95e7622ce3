package cache_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"hk/cache"
	"hk/cache/cachetest"
	"hk/cache/fp"
)

// memoryDir is a directory that takes no time to flush, where there is one:
// these tests are about bytes, not about disks.
func memoryDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "hk-cache-") //nolint:usetesting // see above
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// filled makes a file with n records of one cluster and returns its bytes.
func filled(t *testing.T, n int) []byte {
	t.Helper()
	path := filepath.Join(memoryDir(t), "records.db")
	s := cache.Open(path, cache.Options{Now: now})
	c := s.Cluster("uid")
	var changes []fp.Change
	for i := range n {
		changes = append(changes, fp.Change{Name: name(i), Record: cachetest.Sample(i)})
	}
	cachetest.Commit(t, c, changes...)
	if err := c.SetGeneration(context.Background(), 5); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func name(i int) string { return fmt.Sprintf("phase.part/host-%04d", i) }

// notices collects what a store says.
type notices struct {
	mu   sync.Mutex
	list []cache.Notice
}

func (n *notices) add(x cache.Notice) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, x)
}

// stored opens a store over the given bytes.
func stored(t *testing.T, data []byte) (*cache.Bolt, string, *notices) {
	t.Helper()
	path := filepath.Join(memoryDir(t), "records.db")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	var n notices
	return cache.Open(path, cache.Options{Now: now, Notice: n.add}), path, &n
}

func kept(t *testing.T, c cache.Cluster) map[string]fp.Kept {
	t.Helper()
	out := map[string]fp.Kept{}
	if err := c.Load(context.Background(), func(name []byte, k fp.Kept) { out[string(name)] = k }); err != nil {
		t.Fatalf("load: %v", err)
	}
	return out
}

// One flipped byte in the key or the value of a record makes exactly that
// record damaged, and the next write heals the file.
func TestFlippedByteInARecord(t *testing.T) {
	const n = 300
	data := filled(t, n)
	r := rand.New(rand.NewPCG(1, 2))
	for range 30 {
		victim := r.IntN(n)
		key := []byte(name(victim))
		// The key itself is followed by the value: version 1, status done.
		at := bytes.Index(data, append(bytes.Clone(key), 1, byte(fp.Done)))
		if at < 0 {
			t.Fatalf("%s is not in the file", key)
		}
		at += r.IntN(len(key) + 200)
		flipped := bytes.Clone(data)
		flipped[at] ^= 1 << r.IntN(8)
		s, path, _ := stored(t, flipped)
		c := s.Cluster("uid")
		got := kept(t, c)
		for i := range n {
			k := got[name(i)]
			if i == victim && !k.Damaged || i != victim && !k.Good() {
				t.Fatalf("byte %d of %s: %s is %+v", at, key, name(i), k)
			}
		}
		recs, err := c.Whole(context.Background(), []string{name(victim)})
		if err != nil || recs[0] != nil {
			t.Fatalf("a damaged record is handed out: %v, %v", recs[0], err)
		}
		cachetest.Commit(t, c, fp.Change{Name: name(victim), Record: cachetest.Sample(victim)})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		again := cache.Open(path, cache.Options{ReadOnly: true, Notice: func(n cache.Notice) { t.Errorf("after healing: %s", n) }})
		healed := kept(t, again.Cluster("uid"))
		if len(healed) != n {
			t.Errorf("after healing there are %d records", len(healed))
		}
		for name, k := range healed {
			if !k.Good() {
				t.Errorf("after healing %s is %+v", name, k)
			}
		}
		if rep, err := again.Doctor(context.Background()); err != nil || len(rep.Problems) > 0 {
			t.Errorf("doctor: %v, %v", rep.Problems, err)
		}
	}
}

// Flips anywhere else never end the process, never hang, and never give a wrong
// answer: what comes back is right, damaged, or gone.
func TestFlippedByteAnywhere(t *testing.T) {
	const n = 120
	data := filled(t, n)
	r := rand.New(rand.NewPCG(3, 4))
	want := make([]fp.Kept, n)
	for i := range want {
		want[i] = fp.Keep(cachetest.Sample(i))
	}
	aside := 0
	for range 100 {
		flipped := bytes.Clone(data)
		at := r.IntN(len(data))
		if r.IntN(2) == 0 { // page headers and elements are where it hurts
			at = at&^4095 + r.IntN(400)
		}
		flipped[at%len(data)] ^= byte(1 + r.IntN(255))
		s, path, _ := stored(t, flipped)
		c := s.Cluster("uid")
		for name, k := range kept(t, c) {
			var i int
			if _, err := fmt.Sscanf(name, "phase.part/host-%d", &i); err != nil {
				continue // a damaged key
			}
			if !k.Damaged && (i >= n || !reflect.DeepEqual(k, want[i])) {
				t.Fatalf("byte %d: %s is %+v", at, name, k)
			}
		}
		cachetest.Commit(t, c, fp.Change{Name: name(0), Record: cachetest.Sample(1000)})
		if got := kept(t, c)[name(0)]; got.Fingerprint != cachetest.Sample(1000).Fingerprint {
			t.Fatalf("byte %d: what was written is not there", at)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if bad, _ := filepath.Glob(path + ".bad-*"); len(bad) > 0 {
			aside++
		}
	}
	t.Logf("%d of 100 files were set aside", aside)
	if aside == 0 {
		t.Errorf("no file was ever set aside: the flips test nothing")
	}
}

// Whole pages of nonsense, cut files and foreign files are set aside, loudly.
func TestDamagedFileIsSetAside(t *testing.T) {
	data := filled(t, 200)
	page := func(i int) []byte {
		out := bytes.Clone(data)
		copy(out[i*4096:], bytes.Repeat([]byte{0xAB}, 4096))
		return out
	}
	both := page(0)
	copy(both[4096:], bytes.Repeat([]byte{0xAB}, 4096))
	cases := map[string][]byte{
		"both metas": both, "cut": data[:len(data)/2], "cut in a page": data[:4096*5+17],
		"text": []byte("this is not a database"), "zeros": make([]byte, 1<<16), "tiny": {1},
	}
	for name, bytes := range cases {
		t.Run(name, func(t *testing.T) {
			s, path, said := stored(t, bytes)
			c := s.Cluster("uid")
			if got := kept(t, c); len(got) != 0 {
				t.Errorf("records from a damaged file: %d", len(got))
			}
			cachetest.Commit(t, c, fp.Change{Name: "x", Record: cachetest.Sample(1)})
			if len(kept(t, c)) != 1 {
				t.Errorf("the new file does not hold what was written")
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			bad, _ := filepath.Glob(path + ".bad-*")
			if len(bad) != 1 || len(said.list) != 1 || said.list[0].Aside != bad[0] {
				t.Errorf("set aside: %v, said %v", bad, said.list)
			}
		})
	}
}

// A quiet command that meets a damaged file says so and leaves it as it is.
func TestReadingDamageWritesNothing(t *testing.T) {
	data := filled(t, 50)
	data = data[:4096*4]
	_, path, _ := stored(t, data)
	var said notices
	s := cache.Open(path, cache.Options{ReadOnly: true, Notice: said.add})
	if got := kept(t, s.Cluster("uid")); len(got) != 0 {
		t.Errorf("records from a damaged file: %d", len(got))
	}
	if len(said.list) == 0 || said.list[0].Aside != "" {
		t.Errorf("said %v", said.list)
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(after, data) {
		t.Errorf("the file was changed")
	}
	files, _ := os.ReadDir(filepath.Dir(path))
	if len(files) != 1 {
		t.Errorf("files beside it: %v", files)
	}
	done := make(chan error, 1)
	s.Cluster("uid").Commit([]fp.Change{{Name: "x", Record: cachetest.Sample(1)}}, func(err error) { done <- err })
	if err := <-done; !errors.Is(err, cache.ErrState) {
		t.Errorf("a store for reading wrote: %v", err)
	}
}

func TestDoctor(t *testing.T) {
	data := filled(t, 50)
	s, path, _ := stored(t, data)
	rep, err := s.Doctor(context.Background())
	if err != nil || len(rep.Problems) != 0 || len(rep.Clusters) != 1 || rep.Clusters[0].Records != 50 {
		t.Errorf("healthy: %+v, %v", rep, err)
	}
	at := bytes.LastIndex(data, []byte(name(7)))
	data[at+len(name(7))+20] ^= 1
	s, _, _ = stored(t, data)
	rep, err = s.Doctor(context.Background())
	if err != nil || len(rep.Problems) != 1 || !strings.Contains(rep.Problems[0], name(7)) {
		t.Errorf("one flipped byte: %+v, %v", rep, err)
	}
	s, _, _ = stored(t, data[:5000])
	rep, err = s.Doctor(context.Background())
	if err != nil || len(rep.Problems) != 1 {
		t.Errorf("a cut file: %+v, %v", rep, err)
	}
	s = cache.Open(filepath.Join(filepath.Dir(path), "none"), cache.Options{ReadOnly: true})
	if rep, err = s.Doctor(context.Background()); err != nil || !rep.Missing {
		t.Errorf("no file: %+v, %v", rep, err)
	}
}
