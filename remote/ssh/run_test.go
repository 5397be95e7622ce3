package ssh

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"hk/remote"
)

// until polls a condition that another process makes true.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx := ctxOf(t)
	for !ok() {
		if sleep(ctx, 10*time.Millisecond) != nil {
			t.Fatalf("never: %s", what)
		}
	}
}

func exists(m *machine, path string) func() bool {
	return func() bool {
		_, err := os.Stat(filepath.Join(m.root, path))
		return err == nil
	}
}

// gated is a job that says one line, waits for the file /go, and counts its
// starts in /starts.
func gated(m *machine, unit string) remote.Job {
	script := `echo x >>"$R/starts"; echo began; while [ ! -e "$R/go" ]; do sleep 0.02; done; cat; printf '%s' "$SECRET" >&2`
	return remote.Job{
		Unit: unit, Task: "install-masters.control-plane/master-1", Argv: []string{"/bin/sh", "-c", script},
		Env: []string{"R=" + m.root, "SECRET=a'b $c \"d\" %n"}, Stdin: []byte("stdin\x00"),
	}
}

func starts(m *machine) int { return strings.Count(m.read("/starts"), "x") }

func TestRun(t *testing.T) {
	m, _, h := up(t, nil)
	m.write("/go", "")
	var mu sync.Mutex
	var lines []string
	j := gated(m, "hk-one")
	j.Log = func(l string) { mu.Lock(); lines = append(lines, l); mu.Unlock() }
	r, err := h.Run(ctxOf(t), j)
	if err != nil {
		t.Fatal(err)
	}
	if r.Code != 0 || string(r.Stdout) != "began\nstdin\x00" || string(r.Stderr) != `a'b $c "d" %n` || r.Attached || len(r.Invocation) != 32 {
		t.Errorf("%+v", r)
	}
	mu.Lock()
	if len(lines) == 0 || lines[0] != "began" {
		t.Errorf("log: %q", lines)
	}
	mu.Unlock()
	for _, c := range m.calls("systemd-run") {
		if strings.Contains(c, "stdin") || strings.Contains(c, "SECRET") || strings.Contains(c, "/bin/sh") {
			t.Errorf("a secret or argv on a command line: %s", c)
		}
	}
	if exists(m, "/run/hk/units/hk-one.in")() || exists(m, "/run/hk/units/hk-one.json")() {
		t.Error("the job's input outlived it")
	}
	// The result was taken, so the same job is work to do again (a forced run).
	if r, err = h.Run(ctxOf(t), j); err != nil || r.Attached || starts(m) != 2 {
		t.Errorf("%+v, %v, %d starts", r, err, starts(m))
	}
}

// A job survives the connection and hk itself, and is found again.
func TestRunAttach(t *testing.T) {
	m, p, h := up(t, nil)
	j := gated(m, "hk-one")
	done := make(chan error, 1)
	go func() {
		r, err := h.Run(ctxOf(t), j)
		if err == nil && (!r.Attached || string(r.Stdout) != "began\nstdin\x00") {
			err = errors.New("not attached: " + string(r.Stdout))
		}
		done <- err
	}()
	until(t, "job began", exists(m, "/starts"))
	m.drop()
	until(t, "connected again", func() bool { return m.authed.Load() == 2 })
	m.write("/go", "")
	if err := <-done; err != nil {
		t.Fatal(err)
	}

	// Now hk goes away while the job runs; another hk finds its end.
	if err := os.Remove(filepath.Join(m.root, "go")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctxOf(t))
	go func() { _, err := h.Run(ctx, j); done <- err }()
	until(t, "second start", func() bool { return starts(m) == 2 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	m.write("/go", "")
	until(t, "the job's end", exists(m, "/run/hk/units/hk-one.rc"))
	p2 := New(p.o)
	defer p2.Close()
	h.(*host).mu.Lock()
	c := h.(*host).c
	h.(*host).mu.Unlock()
	r, err := p2.Open(c).Run(ctxOf(t), j)
	if err != nil || !r.Attached || starts(m) != 2 {
		t.Errorf("%+v, %v, %d starts", r, err, starts(m))
	}
}

func TestRunFails(t *testing.T) {
	_, _, h := up(t, nil)
	j := remote.Job{Unit: "hk-f", Task: "t", Argv: []string{"/bin/sh", "-c", "echo out; echo why >&2; exit 7"}}
	for range 2 { // a failed job is never taken for an answer, but run again
		r, err := h.Run(ctxOf(t), j)
		if err != nil || r.Code != 7 || string(r.Stdout) != "out\n" || string(r.Stderr) != "why\n" || r.Attached {
			t.Errorf("%+v %v", r, err)
		}
	}
	j.Argv = []string{"no-such-program"}
	if r, err := h.Run(ctxOf(t), j); err != nil || r.Code != 127 {
		t.Errorf("%+v %v", r, err)
	}
}

// One job a task: another one of the same task is stopped first.
func TestRunReplaces(t *testing.T) {
	m, _, h := up(t, nil)
	ctx, cancel := context.WithCancel(ctxOf(t))
	done := make(chan struct{})
	go func() { _, _ = h.Run(ctx, gated(m, "hk-old")); close(done) }()
	until(t, "old job began", exists(m, "/starts"))
	cancel()
	<-done
	j := gated(m, "hk-new")
	j.Argv = []string{"/bin/echo", "new"}
	r, err := h.Run(ctxOf(t), j)
	if err != nil || string(r.Stdout) != "new\n" {
		t.Fatalf("%+v %v", r, err)
	}
	if len(m.calls("systemctl --no-pager --no-ask-password stop hk-old.service")) != 1 {
		t.Error("the old job was not stopped")
	}
	if exists(m, "/run/hk/units/hk-old.task")() {
		t.Error("the old job's files are still there")
	}
}

func TestRunDies(t *testing.T) {
	m, _, h := up(t, nil)
	done := make(chan error, 1)
	go func() { _, err := h.Run(ctxOf(t), gated(m, "hk-d")); done <- err }()
	until(t, "job began", exists(m, "/starts"))
	ctx := ctxOf(t)
	if _, err := h.Exec(ctx, remote.Command{Argv: []string{"systemctl", "stop", "hk-d.service"}}); err != nil {
		t.Fatal(err)
	}
	err := <-done
	var he *remote.HostError
	if !errors.As(err, &he) || !he.Again || !strings.Contains(err.Error(), "job died without a result") {
		t.Errorf("%v", err)
	}
}
