package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Down removes the lab: machines, load balancers, daemon, networks, files. It
// works on whatever is left of a lab, also after a crash, and is no error if
// there is none.
func Down(ctx context.Context, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	dir := o.dir()
	c, err := readConfig(dir)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := supported(); err != nil {
		return err
	}
	if err := stopDaemon(ctx, dir); err != nil {
		return err
	}
	b := newBackend(dir, c, o.Log)
	errs := []error{b.host.Down(ctx), stopBalancers(dir), b.fabric.Down(ctx)}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("taking the lab down: %w", err)
	}
	return removeFiles(dir)
}

// stopDaemon ends the daemon, the hard way if it does not go.
func stopDaemon(ctx context.Context, dir string) error {
	pid := serving(dir)
	if pid == 0 {
		return nil
	}
	start := startTime(pid)
	_ = unix.Kill(pid, unix.SIGTERM)
	for began := time.Now(); startTime(pid) == start && start != ""; {
		if time.Since(began) > 5*time.Second {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		if time.Since(began) > 10*time.Second {
			return fmt.Errorf("the lab's daemon (process %d) does not end", pid)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func stopBalancers(dir string) error {
	entries, err := os.ReadDir(filepath.Join(dir, "lb"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		errs = append(errs, stopBalancer(filepath.Join(dir, "lb", e.Name())))
	}
	return errors.Join(errs...)
}

// removeFiles removes the lab's folder, lab.json last: as long as that is there,
// Down can be repeated. A mount below it would lose what is mounted: refuse.
func removeFiles(dir string) error {
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("%s is still mounted", mounts[0])
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == filepath.Base(configPath(dir)) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return fmt.Errorf("removing the lab's files: %w", err)
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("removing the lab's files: %w", err)
	}
	_ = os.Remove(filepath.Dir(dir)) // the home, if this was its last lab
	return nil
}

// mountsBelow lists what is mounted below dir.
func mountsBelow(dir string) ([]string, error) {
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			out = append(out, f[1])
		}
	}
	return out, nil
}
