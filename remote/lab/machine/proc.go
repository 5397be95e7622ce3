package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// errNoDev is what reading a control group's file says while the group goes away.
var errNoDev = unix.ENODEV

// initPid finds the machine's own process number 1 among its processes: the one
// that is number 1 in a process namespace other than ours.
func initPid(pids []int) (int, bool) {
	for _, pid := range pids {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(b)) {
			rest, ok := strings.CutPrefix(line, "NSpid:")
			if !ok {
				continue
			}
			// Containers inside the machine have a third column.
			if f := strings.Fields(rest); len(f) == 2 && f[1] == "1" {
				return pid, true
			}
		}
	}
	return 0, false
}

// supervisor returns the supervisor's pid if it lives: the pid file names it and
// it is in the machine's group, so a number used again is never mistaken.
func (h *Host) supervisor(id int64) (int, bool) {
	b, err := os.ReadFile(filepath.Join(h.dir(id), "pid"))
	if err != nil {
		return 0, false
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil {
		return 0, false
	}
	g, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(g)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		// nspawn moves itself, not its parent, into sub-groups.
		if len(parts) == 3 && strings.HasPrefix(parts[2]+"/", "/"+h.group(id)+"/") {
			return pid, true
		}
	}
	return 0, false
}

// waitGone waits until pid is gone or ctx ends.
func waitGone(ctx context.Context, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	for {
		// Short polls so that ctx is seen; a pidfd becomes readable at exit.
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 500)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
}

// kill ends everything in the machine's group at once: its process 1 first, with
// which all processes of its namespace go, before the supervisor could see a
// reboot in it.
func (h *Host) kill(ctx context.Context, id int64) error {
	deadline := time.Now().Add(time.Minute)
	if pid, ok := h.supervisor(id); ok {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
	for {
		pids, err := groupPids(h.group(id), true)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return nil
		}
		if pid, ok := initPid(pids); ok {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%d processes of machine %d do not end", len(pids), id)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
}
