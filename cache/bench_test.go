package cache_test

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"

	"hk/cache"
	"hk/cache/cachetest"
	"hk/cache/fp"
)

// BenchmarkLoad is what a no-op reads: every record, its checksum and its front.
// The file is opened anew each time, as each process does.
func BenchmarkLoad(b *testing.B) {
	for _, n := range []int{1_000, 10_000, 100_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			path := filepath.Join(b.TempDir(), "records.db")
			s := cache.Open(path, cache.Options{Now: now})
			var changes []fp.Change
			for i := range n {
				changes = append(changes, fp.Change{Name: "phase.part/worker-" + strconv.Itoa(i), Record: cachetest.Sample(i)})
			}
			cachetest.Commit(b, s.Cluster("uid"), changes...)
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				got := 0
				c := cache.Open(path, cache.Options{ReadOnly: true}).Cluster("uid")
				if err := c.Load(context.Background(), func([]byte, fp.Kept) { got++ }); err != nil || got != n {
					b.Fatal(got, err)
				}
			}
		})
	}
}

// BenchmarkCommit is a durable write of 16 records.
func BenchmarkCommit(b *testing.B) {
	s := cache.Open(filepath.Join(b.TempDir(), "records.db"), cache.Options{Now: now})
	c := s.Cluster("uid")
	n := 0
	for b.Loop() {
		var changes []fp.Change
		for range 16 {
			n++
			changes = append(changes, fp.Change{Name: "phase.part/worker-" + strconv.Itoa(n%10_000), Record: cachetest.Sample(n)})
		}
		cachetest.Commit(b, c, changes...)
	}
}
