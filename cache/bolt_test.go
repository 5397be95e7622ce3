package cache_test

import (
	"path/filepath"
	"testing"
	"time"

	"hk/cache"
	"hk/cache/cachetest"
)

func now() time.Time { return time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC) }

func open(t *testing.T) cache.Store {
	t.Helper()
	return cache.Open(filepath.Join(t.TempDir(), "state", "records.db"), cache.Options{
		Now: now, Notice: func(n cache.Notice) { t.Errorf("notice: %s", n) },
	})
}

func TestContract(t *testing.T) {
	t.Run("bolt", func(t *testing.T) { cachetest.Contract(t, open) })
	t.Run("memory", func(t *testing.T) {
		cachetest.Contract(t, func(*testing.T) cache.Store { return cachetest.NewMemory() })
	})
}
