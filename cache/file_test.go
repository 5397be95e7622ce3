package cache_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hk/cache"
	"hk/cache/cachetest"
	"hk/cache/fp"
)

// TestMain lets the test binary be another process: the one that is killed, and
// the one that holds a lock.
func TestMain(m *testing.M) {
	switch os.Getenv("HK_CACHE_TEST") {
	case "write":
		writeForEver(os.Args[len(os.Args)-1])
	case "lock":
		holdForEver(os.Args[len(os.Args)-1])
	default:
		os.Exit(m.Run())
	}
}

// writeForEver commits records and prints the number of each that is durable.
func writeForEver(path string) {
	c := cache.Open(path, cache.Options{Now: now}).Cluster("uid")
	for i := 0; ; i++ {
		done := make(chan error, 1)
		c.Commit([]fp.Change{{Name: name(i), Record: cachetest.Sample(i)}}, func(err error) { done <- err })
		if err := <-done; err != nil {
			panic(err)
		}
		fmt.Println(i)
	}
}

func holdForEver(path string) {
	l, err := cache.TakeLock(path, cache.Holder{
		PID: os.Getpid(), Host: "here", User: "me", Command: "hk build demo", Run: "r1", Started: now(),
	})
	fmt.Println(err)
	for {
		time.Sleep(time.Hour) //nolint:forbidigo // it is a process that waits to be killed
		runtime.KeepAlive(l)
	}
}

func child(t *testing.T, what, path string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	cmd := exec.Command(os.Args[0], path)
	cmd.Env = append(os.Environ(), "HK_CACHE_TEST="+what)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, bufio.NewScanner(out)
}

// Whatever was called durable is there after a kill at any moment, and the file
// is whole.
func TestKilledWriter(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.db")
	for round := range 6 {
		cmd, lines := child(t, "write", path)
		last := -1
		for lines.Scan() {
			last, _ = strconv.Atoi(lines.Text())
			if last >= 10+round*7 {
				break
			}
		}
		_ = cmd.Process.Kill()
		for lines.Scan() { // what it still got out
			last, _ = strconv.Atoi(lines.Text())
		}
		_ = cmd.Wait()
		s := cache.Open(path, cache.Options{Now: now, Notice: func(n cache.Notice) { t.Errorf("notice: %s", n) }})
		got := kept(t, s.Cluster("uid"))
		for i := range last + 1 {
			if k := got[name(i)]; !k.Good() {
				t.Fatalf("%s was durable and is %+v", name(i), k)
			}
		}
		if rep, err := s.Doctor(context.Background()); err != nil || len(rep.Problems) > 0 {
			t.Errorf("doctor: %v, %v", rep.Problems, err)
		}
	}
}

func TestReadingWritesNothing(t *testing.T) {
	ctx := context.Background()
	dir := t.TempDir()
	path := filepath.Join(dir, "none", "records.db")
	quiet := func() {
		s := cache.Open(path, cache.Options{ReadOnly: true, Notice: func(n cache.Notice) { t.Errorf("notice: %s", n) }})
		c := s.Cluster("uid")
		kept(t, c) //nolint:contextcheck // a helper with its own
		_, e1 := c.Whole(ctx, []string{"x"})
		_, e2 := c.Get(ctx, "k")
		_, e3 := s.Clusters(ctx)
		_, e4 := s.Doctor(ctx)
		_, e5 := cache.ReadLock(filepath.Join(filepath.Dir(path), "lock"))
		if err := errors.Join(e1, e2, e3, e4, e5, s.Close()); err != nil {
			t.Errorf("reading: %v", err)
		}
	}
	quiet()
	if files, _ := os.ReadDir(dir); len(files) != 0 {
		t.Errorf("reading without a directory made %v", files)
	}
	s := cache.Open(path, cache.Options{Now: now})
	cachetest.Commit(t, s.Cluster("uid"), fp.Change{Name: "x", Record: cachetest.Sample(1)})
	before, _ := os.ReadFile(path)
	quiet()
	after, _ := os.ReadFile(path)
	if !bytes.Equal(before, after) {
		t.Errorf("reading changed the file")
	}
	if files, _ := os.ReadDir(filepath.Dir(path)); len(files) != 1 {
		t.Errorf("files: %v", files)
	}
	// A file that was begun and not finished counts as none.
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	quiet()
}

// Readers are answered while a writer is busy the whole time.
func TestReadersAreNotStarved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.db")
	child, lines := child(t, "write", path)
	lines.Scan()
	go func() {
		for lines.Scan() { // keep its pipe empty
		}
	}()
	s := cache.Open(path, cache.Options{ReadOnly: true})
	n := 0
	for range 100 {
		got := len(kept(t, s.Cluster("uid")))
		if got < n {
			t.Fatalf("%d records after %d", got, n)
		}
		n = got
	}
	t.Logf("read %d records beside a busy writer", n)
	_ = child.Process.Kill()
}

// Two processes write the same file.
func TestTwoWriters(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.db")
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			s := cache.Open(path, cache.Options{Now: now})
			for i := range 30 {
				done := make(chan error, 1)
				s.Cluster("uid").Commit([]fp.Change{{Name: name(100*w + i), Record: cachetest.Sample(i)}}, func(err error) { done <- err })
				if err := <-done; err != nil {
					t.Errorf("commit: %v", err)
				}
			}
		})
	}
	wg.Wait()
	if n := len(kept(t, cache.Open(path, cache.Options{ReadOnly: true}).Cluster("uid"))); n != 60 {
		t.Errorf("%d of 60 records", n)
	}
}

func TestReadingGivesUpWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "records.db")
	s := cache.Open(path, cache.Options{Now: now})
	cachetest.Commit(t, s.Cluster("uid"), fp.Change{Name: "x", Record: cachetest.Sample(1)})
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	err = s.Cluster("uid").Load(ctx, func([]byte, fp.Kept) {})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("load beside a held lock: %v", err)
	}
}

func TestUnfitDirectories(t *testing.T) {
	commit := func(path string) error {
		done := make(chan error, 1)
		s := cache.Open(path, cache.Options{Now: now})
		s.Cluster("uid").Commit([]fp.Change{{Name: "x", Record: cachetest.Sample(1)}}, func(err error) { done <- err })
		return <-done
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := commit(filepath.Join(file, "records.db")); !errors.Is(err, cache.ErrState) {
		t.Errorf("a file as directory: %v", err)
	}
	if err := commit("/proc/records.db"); !errors.Is(err, cache.ErrState) {
		t.Errorf("a directory that takes no files: %v", err)
	}
	dir := t.TempDir()
	if os.Geteuid() != 0 || syscall.Mount("hk", dir, "tmpfs", 0, "size=256k") != nil {
		t.Skip("the rest needs root to mount a small file system")
	}
	defer func() { _ = syscall.Unmount(dir, 0) }()
	path := filepath.Join(dir, "records.db")
	s := cache.Open(path, cache.Options{Now: now})
	c := s.Cluster("uid")
	var err error
	n := 0
	for ; err == nil && n < 10_000; n++ {
		done := make(chan error, 1)
		c.Commit([]fp.Change{{Name: name(n), Record: cachetest.Sample(n)}}, func(err error) { done <- err })
		err = <-done
	}
	if !errors.Is(err, cache.ErrState) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("a full disk after %d records: %v", n, err)
	}
	for name, k := range kept(t, c) {
		if !k.Good() {
			t.Errorf("on a full disk %s is %+v", name, k)
		}
	}
	if got := len(kept(t, c)); got < n-1 {
		t.Errorf("%d of %d durable records on a full disk", got, n-1)
	}
	if err := syscall.Mount("hk", dir, "tmpfs", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	if err := commit(path); !errors.Is(err, cache.ErrState) {
		t.Errorf("a read-only directory: %v", err)
	}
	if got := len(kept(t, cache.Open(path, cache.Options{ReadOnly: true}).Cluster("uid"))); got < n-1 {
		t.Errorf("%d of %d records from a read-only directory", got, n-1)
	}
	if _, err := cache.TakeLock(filepath.Join(dir, "lock"), cache.Holder{}); !errors.Is(err, cache.ErrState) {
		t.Errorf("a lock in a read-only directory: %v", err)
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "locks", "uid.lock")
	if h, err := cache.ReadLock(path); h != nil || err != nil {
		t.Errorf("no file: %v, %v", h, err)
	}
	other, lines := child(t, "lock", path)
	if !lines.Scan() || lines.Text() != "<nil>" {
		t.Fatalf("the other process: %q", lines.Text())
	}
	_, err := cache.TakeLock(path, cache.Holder{PID: 1})
	var locked *cache.LockedError
	if !errors.As(err, &locked) || !errors.Is(err, cache.ErrLocked) || locked.Holder.PID != other.Process.Pid {
		t.Fatalf("second lock: %v", err)
	}
	if want := "locked by me@here, process "; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%q does not begin with %q", err, want)
	}
	if h, err := cache.ReadLock(path); err != nil || h == nil || h.Command != "hk build demo" {
		t.Errorf("holder: %v, %v", h, err)
	}
	_ = other.Process.Kill()
	_ = other.Wait()
	if h, err := cache.ReadLock(path); h != nil || err != nil {
		t.Errorf("after its death: %v, %v", h, err)
	}
	l, err := cache.TakeLock(path, cache.Holder{PID: 1})
	if err != nil {
		t.Fatalf("after its death: %v", err)
	}
	// Those who only ask do not get in the way.
	if err := l.Release(); err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_, _ = cache.ReadLock(path)
			}
		}
	})
	for range 50 {
		l, err := cache.TakeLock(path, cache.Holder{PID: 1})
		if err != nil {
			t.Fatalf("beside one who asks: %v", err)
		}
		if err := l.Release(); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
}
