package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"hk/cache"
	"hk/graph"
	"hk/graph/run"
	"hk/remote"
	"hk/tasks/cluster"
	"hk/tasks/spec"
)

// Every exit code of DESIGN §7 has an error that leads to it, whatever wraps it.
func TestExitCodes(t *testing.T) {
	for _, tc := range []struct {
		err   error
		code  int
		class string
	}{
		{nil, 0, ""},
		{errors.New("anything"), 1, "state"},
		{&remote.HostError{Host: "master-1", Op: "run", Code: 3}, 1, "ssh"},
		{&remote.WorldError{World: "etcd", Op: "members", Err: errors.New("x")}, 1, "etcd"},
		{&buildError{class: "kube", msg: "1 failed"}, 1, "kube"},
		{usagef("", "unknown"), 2, "config"},
		{&graph.UnknownError{What: "phase", Word: "etdc"}, 2, "config"},
		{&run.StaleNeedError{Task: "a", Need: "b"}, 2, "config"},
		{&run.RefusedError{Kept: "a", Flag: "--keep-data"}, 2, "config"},
		{&cluster.Refusal{Exit: 3, World: "config", Message: "changed"}, 3, "config"},
		{fmt.Errorf("x: %w", remote.ErrRebuilt), 4, "state"},
		{&cluster.Refusal{Exit: 4, World: "cloud"}, 4, "cloud"},
		{&cache.LockedError{Path: "x"}, 5, "state"},
		{fmt.Errorf("x: %w", cluster.ErrLocked), 5, "state"},
		{fmt.Errorf("x: %w", cluster.ErrLeaseLost), 5, "state"},
		{fmt.Errorf("x: %w", remote.ErrStaleGeneration), 5, "state"},
		{spec.Problems{{File: "a.yaml", Msg: "wrong"}}, 6, "config"},
		{&exitError{code: ExitConfig, class: classConfig, err: errors.New("no file")}, 6, "config"},
		{&remote.CloudError{Op: "list", Code: "unauthorized", Status: 401}, 7, "cloud"},
		{fmt.Errorf("x: %w", remote.ErrHostKey), 8, "ssh"},
		{fmt.Errorf("x: %w", remote.ErrUnreachable), 8, "ssh"},
		{&cluster.Refusal{Exit: 9, World: "state"}, 9, "state"},
		{&cache.StateError{Op: "write", Path: "x", Err: errors.New("full")}, 10, "state"},
		{fmt.Errorf("writing: %w", syscall.ENOSPC), 10, "state"},
		{fmt.Errorf("writing: %w", syscall.EROFS), 10, "state"},
		{errors.New("bug: impossible"), 70, "bug"},
		{context.Canceled, 130, "state"},
		{errInterrupted, 130, "state"},
	} {
		for _, err := range []error{tc.err, wrap(tc.err)} {
			if v := judge(err); v.code != tc.code || v.class != tc.class {
				// A bug says so with its first word; wrapped, it is judged by class.
				if tc.code == ExitBug && err != tc.err { //nolint:errorlint // identity is meant
					continue
				}
				t.Errorf("%v: exit %d class %q, want %d %q", err, v.code, v.class, tc.code, tc.class)
			}
		}
	}
}

func wrap(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("outer: %w", errors.Join(err, nil))
}

// A code of "nothing was changed" is not used once a task has run.
func TestExitCodeAfterATask(t *testing.T) {
	for _, code := range []int{3, 4, 6, 7, 8, 9, 10} {
		b := &builder{a: &app{cmd: &command{}, now: zeroTime, getenv: noEnv}, form: asJSON, started: true}
		err := b.end(&cluster.Refusal{Exit: code, World: "cloud"})
		if v := judge(err); v.code != ExitFailed || v.class != "cloud" {
			t.Errorf("%d after a task is %d %s, want 1 cloud", code, v.code, v.class)
		}
	}
	b := &builder{a: &app{cmd: &command{}, now: zeroTime, getenv: noEnv}, form: asJSON, started: true}
	if v := judge(b.end(cluster.ErrLeaseLost)); v.code != ExitLocked {
		t.Errorf("a lease lost at any time is 5, not %d", v.code)
	}
}

func TestPrintedProblems(t *testing.T) {
	var out bytes.Buffer
	a := &app{Streams: Streams{Err: &out}}
	err := fmt.Errorf("outer: %w", &exitError{code: 6, err: errors.New("inner")})
	if code := a.fail(errors.Join(err)); code != 6 {
		t.Errorf("exit %d", code)
	}
	code := a.fail(&cluster.Refusal{Exit: 7, Message: "no", Details: []string{"d1", "d2"}, Hints: []string{"h1", "h2"}})
	if code != 7 {
		t.Errorf("exit %d", code)
	}
	want := "error: outer: inner\nerror: no\n  d1\n  d2\nhint: h1\nhint: h2\n"
	if out.String() != want {
		t.Errorf("printed:\n%s\nwant:\n%s", out.String(), want)
	}
}

// The first hint on the way down counts, also behind a wrapper without one.
func TestHints(t *testing.T) {
	inner := &exitError{code: 6, hint: "do this", err: errors.New("x")}
	outer := &exitError{code: 6, err: fmt.Errorf("y: %w", inner)}
	if h := hintsOf(errors.Join(errors.New("z"), outer)); len(h) != 1 || h[0] != "do this" {
		t.Errorf("hints %q", h)
	}
	if h := hintsOf(errors.New("z")); h != nil {
		t.Errorf("hints %q", h)
	}
	if !strings.Contains(strings.Join(atMost([]string{"1", "2", "3", "4"}, 3), " "), "… and 2 more") {
		t.Error("a long list is not cut")
	}
}
