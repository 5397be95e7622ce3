package image

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// testMaker is a new process on the cache directory dir.
func testMaker(dir string) *maker {
	return &maker{dir: dir, targets: map[string]*target{}, versions: DefaultVersions()}
}

// testCache is an empty cache directory.
func testCache(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "stamps"), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// writes returns a run function that writes text and counts how often it ran.
func writes(text string, n *int) func(context.Context, string) error {
	return func(_ context.Context, tmp string) error {
		*n++
		return os.WriteFile(tmp, []byte(text), 0o644)
	}
}

func TestStepRunsOnce(t *testing.T) {
	dir, n := testCache(t), 0
	s := step{name: "s", recipe: 1, inputs: []string{"v1"}, output: "out/thing"}
	for range 3 {
		path, err := testMaker(dir).do(t.Context(), s, writes("x", &n))
		if err != nil || path != filepath.Join(dir, "out/thing") {
			t.Fatalf("do = %q, %v", path, err)
		}
	}
	if n != 1 {
		t.Errorf("ran %d times, want once", n)
	}
}

func TestStepRunsAgain(t *testing.T) {
	base := step{name: "s", recipe: 1, inputs: []string{"a", "b"}, output: "thing"}
	for name, change := range map[string]func(dir string, s *step) error{
		"recipe":          func(_ string, s *step) error { s.recipe = 2; return nil },
		"input":           func(_ string, s *step) error { s.inputs = []string{"a", "c"}; return nil },
		"inputs joined":   func(_ string, s *step) error { s.inputs = []string{"ab"}; return nil },
		"output gone":     func(dir string, _ *step) error { return os.Remove(filepath.Join(dir, "thing")) },
		"stamp gone":      func(dir string, _ *step) error { return os.Remove(filepath.Join(dir, "stamps/s.json")) },
		"stamp cut short": func(dir string, _ *step) error { return os.Truncate(filepath.Join(dir, "stamps/s.json"), 5) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, n, s := testCache(t), 0, base
			if _, err := testMaker(dir).do(t.Context(), s, writes("old", &n)); err != nil {
				t.Fatal(err)
			}
			if err := change(dir, &s); err != nil {
				t.Fatal(err)
			}
			path, err := testMaker(dir).do(t.Context(), s, writes("new", &n))
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := os.ReadFile(path); n != 2 || string(got) != "new" {
				t.Errorf("ran %d times, output %q", n, got)
			}
		})
	}
}

// A killed run leaves a half-made output under its temporary name: the next one must
// neither take it for the real one nor trip over it.
func TestStepAfterKill(t *testing.T) {
	dir, n := testCache(t), 0
	s := step{name: "s", recipe: 1, output: "thing-KEY"}
	killed := errors.New("killed")
	_, err := testMaker(dir).do(t.Context(), s, func(_ context.Context, tmp string) error {
		if err := os.MkdirAll(filepath.Join(tmp, "half"), 0o755); err != nil {
			return err
		}
		return killed
	})
	if !errors.Is(err, killed) {
		t.Fatalf("err = %v", err)
	}
	path, err := testMaker(dir).do(t.Context(), s, writes("whole", &n))
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := os.ReadFile(path); string(got) != "whole" {
		t.Errorf("output %q", got)
	}
	if base := filepath.Base(path); len(base) != len("thing-12345678") {
		t.Errorf("output is called %s: no key in it", base)
	}
}

func TestStepSharedByCallers(t *testing.T) {
	m, n := testMaker(testCache(t)), 0
	s := step{name: "s", recipe: 1, output: "thing"}
	start := make(chan struct{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			<-start
			if _, err := m.do(context.Background(), s, writes("x", &n)); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	wg.Wait()
	if n != 1 {
		t.Errorf("ran %d times, want once", n)
	}
}

// A target that is done is given also to a caller whose context has ended since.
func TestStepDoneAndCancelled(t *testing.T) {
	m, n := testMaker(testCache(t)), 0
	s := step{name: "s", recipe: 1, output: "thing"}
	if _, err := m.do(t.Context(), s, writes("x", &n)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 {
		if _, err := m.do(ctx, s, writes("x", &n)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestReadOnlyMakesNothing(t *testing.T) {
	dir, n := testCache(t), 0
	m := testMaker(dir)
	m.readOnly = true
	_, err := m.do(t.Context(), step{name: "s", output: "thing"}, writes("x", &n))
	if !errors.Is(err, errMissing) || n != 0 {
		t.Errorf("err = %v, ran %d times", err, n)
	}
}

func TestOutdated(t *testing.T) {
	dir := testCache(t)
	for _, d := range []string{
		"roots/debian-12-new", "roots/debian-12-old", "roots/debian-12-machine", "roots/debian-12-mounted", "roots/.tmp-debian-12-x",
		"roots/hk-snapshot-only", "images-new", "images-old", "artifacts", "build",
	} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	in := func(d string) string { return filepath.Join(dir, d) }
	old, err := testMaker(dir).outdated(
		[]string{in("roots/debian-12-new"), in("roots/debian-12-machine"), in("images-new"), ""},
		"1 2 0:39 / /m rw - overlay overlay rw,lowerdir="+in("roots/debian-12-mounted")+",upperdir=/u")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{in("roots/.tmp-debian-12-x"), in("roots/debian-12-old"), in("images-old")}, "\n")
	if got := strings.Join(old, "\n"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}
