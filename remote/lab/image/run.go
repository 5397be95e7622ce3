package image

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// heartbeat is the time between two progress lines of one long command.
const heartbeat = 15 * time.Second

// command is one program run for a step. Its output goes to a log file in the
// cache directory; only a failure's last lines become part of the error.
type command struct {
	step     string // for the progress lines and the log file's name
	dir      string
	env      []string // whole environment; nil means this process's
	isolated bool     // own mount and process namespaces: nothing survives it
	args     []string
}

// run runs c to its end. A cancelled context or the death of this process kills
// it; with isolated set, everything it started and mounted goes with it.
func (m *maker) run(ctx context.Context, c command) error {
	logPath := filepath.Join(m.dir, "log", c.step+".log")
	if err := makeFolder(filepath.Dir(logPath)); err != nil {
		return err
	}
	logFile, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer closeQuietly(logFile)
	fmt.Fprintf(logFile, "\n$ %s\n", strings.Join(c.args, " "))

	tail := &tailWriter{}
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	cmd.Dir, cmd.Env = c.dir, c.env
	cmd.Stdout = io.MultiWriter(logFile, tail)
	cmd.Stderr = cmd.Stdout
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if c.isolated {
		// Unshareflags rather than Cloneflags for the mounts: only then does Go make
		// the new tree private, so that mounts do not leak to the computer.
		cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWPID
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

	stop := m.beat(c.step, tail)
	defer stop()
	// Pdeathsig is about the thread that forked, not the process (golang/go#27505).
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("running %s: %w; log: %s\n%s", filepath.Base(c.args[0]), err, logPath, tail.last(12))
	}
	return nil
}

// beat prints how a long command is getting on until the returned function is called.
func (m *maker) beat(name string, tail *tailWriter) (stop func()) {
	done := make(chan struct{})
	start := time.Now()
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(heartbeat)
		defer tick.Stop()
		for {
			select {
			case <-done:
				return
			case <-tick.C:
				last := strings.TrimSpace(tail.last(1))
				if len(last) > 70 {
					last = last[:70] + "…"
				}
				m.logf("%s: %s, %d lines of output: %s", name, time.Since(start).Round(time.Second), tail.count(), last)
			}
		}
	})
	return func() { close(done); wg.Wait() }
}

// output runs a short program and returns what it wrote to stdout.
func output(ctx context.Context, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("running %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// tailWriter remembers the last lines written to it.
type tailWriter struct {
	mu    sync.Mutex
	lines []string
	part  []byte
	n     int
}

// tailLines is how many lines a tailWriter remembers.
const tailLines = 40

func (t *tailWriter) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.part = append(t.part, p...)
	for {
		i := bytes.IndexByte(t.part, '\n')
		if i < 0 {
			break
		}
		t.lines = append(t.lines, string(t.part[:i]))
		t.n++
		t.part = t.part[i+1:]
	}
	if extra := len(t.lines) - tailLines; extra > 0 {
		t.lines = append(t.lines[:0], t.lines[extra:]...)
	}
	return len(p), nil
}

func (t *tailWriter) last(n int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines[max(0, len(t.lines)-n):], "\n")
}

func (t *tailWriter) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.n
}

// removeTree is os.RemoveAll that never walks into a mounted file system: a killed
// debootstrap may leave /proc or /dev mounted in a half-made root.
func removeTree(path string) error {
	mounts, err := mountsBelow(path)
	if err != nil {
		return err
	}
	for _, mp := range mounts {
		if err := unix.Unmount(mp, unix.MNT_DETACH); err != nil {
			return fmt.Errorf("unmounting %s: %w", mp, err)
		}
	}
	return os.RemoveAll(path)
}

// mountsBelow lists the mount points at or below path, deepest first.
func mountsBelow(path string) ([]string, error) {
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		mp := unescapeMount(fields[4])
		if mp == path || strings.HasPrefix(mp, path+"/") {
			found = append(found, mp)
		}
	}
	sort.Slice(found, func(i, j int) bool { return len(found[i]) > len(found[j]) })
	return found, nil
}

// unescapeMount undoes the kernel's octal escapes in mountinfo.
func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
