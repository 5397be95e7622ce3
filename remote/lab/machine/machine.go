package machine

import (
	"context"
	"crypto/rand"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed supervisor.sh
var supervisorScript string

// Host holds the machines of one lab.
type Host struct {
	Lab   string // name of the lab
	Index int    // of the lab, for machine names
	Dir   string // holds one folder per machine

	// Fill puts an image's prefilled container storage into an empty directory.
	Fill func(ctx context.Context, image, dir string) error
	// Enter runs f, which starts a process, inside a network namespace.
	Enter func(ns string, f func() error) error
	// Exited is told when a machine ended; End says how. It may be nil.
	Exited func(id int64)

	mu      sync.Mutex
	watched map[int64]bool
}

// Spec is what a machine is made from and started with.
type Spec struct {
	ID       int64
	Hostname string
	Image    string // name for Fill
	Root     string // the base root, never written to
	NS       string // its network namespace, for Host.Enter
	Address  string // public IPv4, "" for none
	Gateway  string
	Resolver string
	Packages string // URL of the proxy for apt, "" for none
	UserData string
	SSHKeys  []string // authorized for root
	Memory   int64    // bytes, 0 for no limit
	Cores    int      // 0 for no limit
}

func (h *Host) dir(id int64) string      { return filepath.Join(h.Dir, strconv.FormatInt(id, 10)) }
func (h *Host) group(id int64) string    { return fmt.Sprintf("hk-lab/%s/%d", h.Lab, id) }
func (h *Host) trash() string            { return filepath.Join(h.Dir, ".trash") }
func (h *Host) unitName(id int64) string { return fmt.Sprintf("hk%d-%d", h.Index, id) }

// Built reports whether the machine has a whole disk.
func (h *Host) Built(id int64) bool {
	_, err := os.Stat(filepath.Join(h.dir(id), "built"))
	return err == nil
}

// Build makes a fresh disk. One that is whole is left alone, a half-made one is
// thrown away.
func (h *Host) Build(ctx context.Context, s Spec) error {
	if h.Built(s.ID) {
		return h.mount(s)
	}
	if err := h.Remove(ctx, s.ID); err != nil {
		return err
	}
	dir := h.dir(s.ID)
	for _, d := range []string{"upper", "work", "root", "containerd", "kubelet"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil { //nolint:gosec // "upper" is the machine's /
			return fmt.Errorf("making disk: %w", err)
		}
	}
	if h.Fill != nil {
		if err := h.Fill(ctx, s.Image, filepath.Join(dir, "containerd")); err != nil {
			return fmt.Errorf("filling container storage: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "base"), []byte(s.Root), 0o600); err != nil {
		return err
	}
	if err := h.mount(s); err != nil {
		return err
	}
	if err := seed(filepath.Join(dir, "root"), s); err != nil {
		return fmt.Errorf("writing seed: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, "built"), nil, 0o600)
}

// mount mounts the overlay unless it is. The base root is the one the disk was
// made over, whatever the image's newest is by now.
func (h *Host) mount(s Spec) error {
	dir := h.dir(s.ID)
	root := filepath.Join(dir, "root")
	if isOverlay(root) {
		return nil
	}
	base, err := os.ReadFile(filepath.Join(dir, "base"))
	if err != nil {
		return fmt.Errorf("machine %d has no base root: %w", s.ID, err)
	}
	opts := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", base, filepath.Join(dir, "upper"), filepath.Join(dir, "work"))
	if err := unix.Mount("hk-lab-"+h.Lab, root, "overlay", 0, opts); err != nil {
		return fmt.Errorf("mounting disk of machine %d: %w", s.ID, err)
	}
	return nil
}

func isOverlay(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.OVERLAYFS_SUPER_MAGIC
}

// Start starts the machine if it does not run.
func (h *Host) Start(ctx context.Context, s Spec) error {
	if h.Running(s.ID) {
		h.watch(s.ID) //nolint:contextcheck // it watches as long as this process lives
		return nil
	}
	// What a hard stop may have left.
	if err := h.kill(ctx, s.ID); err != nil {
		return err
	}
	if err := removeGroups(h.group(s.ID)); err != nil {
		return err
	}
	if err := h.mount(s); err != nil {
		return err
	}
	groups, err := makeGroups(h.group(s.ID), limits{memory: s.Memory, cores: s.Cores})
	if err != nil {
		return err
	}
	dir := h.dir(s.ID)
	console, err := os.OpenFile(filepath.Join(dir, "console.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = console.Close() }()
	args := append([]string{"-c", supervisorScript, "hk-lab-machine", dir, strings.Join(groups, "\n")}, h.nspawn(s)...)
	cmd := exec.Command("/bin/sh", args...) //nolint:noctx // outlives us on purpose
	cmd.Dir = "/"
	cmd.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin",
		"SYSTEMD_NSPAWN_TMPFS_TMP=0", // /tmp is on the disk, as on a real Debian server
		"SYSTEMD_SECCOMP=0",          // a server of one's own takes every system call
	}
	cmd.Stdout, cmd.Stderr = console, console
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	for _, note := range []string{"pid", "exit"} {
		_ = os.Remove(filepath.Join(dir, note))
	}
	// The whole of systemd-nspawn runs in the machine's namespace: with its own
	// --network-namespace-path, /sys/class/net in the machine would be this computer's.
	if err := h.Enter(s.NS, cmd.Start); err != nil {
		return fmt.Errorf("starting machine %d: %w", s.ID, err)
	}
	go func() { _ = cmd.Wait() }() // reaps it, if we are still there
	return h.started(ctx, s.ID, cmd.Process.Pid)
}

// started waits until the machine's own process 1 is there.
func (h *Host) started(ctx context.Context, id int64, pid int) error {
	for deadline := time.Now().Add(30 * time.Second); ; {
		if pids, err := groupPids(h.group(id), false); err == nil {
			if _, ok := initPid(pids); ok {
				h.watch(id) //nolint:contextcheck // it watches as long as this process lives
				return nil
			}
		}
		if err := unix.Kill(pid, 0); err != nil || time.Now().After(deadline) {
			return fmt.Errorf("machine %d did not start: %s", id, h.lastWords(id))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// lastWords is the end of the console.
func (h *Host) lastWords(id int64) string {
	b, err := os.ReadFile(filepath.Join(h.dir(id), "console.log"))
	if err != nil {
		return "no console"
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " / ")
}

// nspawn is the command that is the machine. See LAB.md for why each part is there.
func (h *Host) nspawn(s Spec) []string {
	dir := h.dir(s.ID)
	args := []string{
		"systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit",
		"--machine=" + h.unitName(s.ID), "--hostname=" + s.Hostname,
		"--directory=" + filepath.Join(dir, "root"),
		"--resolv-conf=off", "--timezone=off", "--link-journal=no",
		"--capability=all",
		"--bind=" + filepath.Join(dir, "containerd") + ":/var/lib/containerd",
		"--bind=" + filepath.Join(dir, "kubelet") + ":/var/lib/kubelet",
	}
	for _, dev := range []string{"/dev/kmsg", "/dev/fuse", "/dev/net/tun"} {
		if _, err := os.Stat(dev); err == nil {
			args = append(args, "--bind="+dev)
		}
	}
	return args
}

// watch tells Exited when the machine ended. Once per machine.
func (h *Host) watch(id int64) {
	if h.Exited == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.watched == nil {
		h.watched = map[int64]bool{}
	}
	if h.watched[id] {
		return
	}
	h.watched[id] = true
	go func() {
		h.waitEnd(context.Background(), id)
		h.mu.Lock()
		delete(h.watched, id)
		h.mu.Unlock()
		h.Exited(id)
	}()
}

// waitEnd waits until nothing of the machine runs: its supervisor, or what is left
// when somebody killed only that.
func (h *Host) waitEnd(ctx context.Context, id int64) {
	for h.Running(id) {
		pid, ok := h.supervisor(id)
		if !ok {
			if pids, err := groupPids(h.group(id), false); err == nil {
				pid, ok = initPid(pids)
			}
		}
		if !ok || waitGone(ctx, pid) != nil {
			time.Sleep(100 * time.Millisecond) // on its way up or down
		}
	}
}

// Watch begins to watch a machine that an earlier daemon started.
func (h *Host) Watch(id int64) { h.watch(id) }

// Running reports whether the machine runs.
func (h *Host) Running(id int64) bool {
	busy, err := groupBusy(h.group(id))
	return err == nil && busy
}

// How a machine that does not run came to that.
const (
	Lost     = iota // with the computer's power: nobody noted its end
	WentOff         // it or somebody meant it
	Rebooted        // it wants to be started again
)

// End reports how the machine ended; it means nothing while it runs.
func (h *Host) End(id int64) int {
	b, err := os.ReadFile(filepath.Join(h.dir(id), "exit"))
	switch {
	case err != nil:
		return Lost
	case strings.TrimSpace(string(b)) == "133": // see supervisor.sh
		return Rebooted
	}
	return WentOff
}

// Started reports whether the machine was ever started from its disk.
func (h *Host) Started(id int64) bool {
	_, err := os.Stat(filepath.Join(h.dir(id), "console.log"))
	return err == nil
}

// PowerOff cuts the power.
func (h *Host) PowerOff(ctx context.Context, id int64) error { return h.kill(ctx, id) }

// Real-time signals that systemd as process 1 understands: SIGRTMIN+n, where
// glibc's SIGRTMIN is 34.
const (
	sigPowerOff = 34 + 4
	sigReboot   = 34 + 5
)

// Shutdown asks the machine to power off, as the power button does; Exited tells.
func (h *Host) Shutdown(id int64) error { return h.signal(id, sigPowerOff) }

// Reboot asks the machine to reboot, as Ctrl-Alt-Del does.
func (h *Host) Reboot(id int64) error { return h.signal(id, sigReboot) }

func (h *Host) signal(id int64, sig int) error {
	pids, err := groupPids(h.group(id), false)
	if err != nil {
		return err
	}
	pid, ok := initPid(pids)
	if !ok {
		return fmt.Errorf("machine %d does not run", id)
	}
	return unix.Kill(pid, unix.Signal(sig))
}

// Remove ends the machine and removes its disk.
func (h *Host) Remove(ctx context.Context, id int64) error {
	if err := h.kill(ctx, id); err != nil {
		return err
	}
	if err := removeGroups(h.group(id)); err != nil {
		return err
	}
	dir := h.dir(id)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	root := filepath.Join(dir, "root")
	h.forgetNspawn(id, root)
	if err := unmountAll(root); err != nil {
		return err
	}
	// Deleting takes long and cannot fail halfway in a way that matters: out of
	// the way first, then in the background; Clean finishes after a kill.
	_ = os.Remove(filepath.Join(dir, "built"))
	if err := os.MkdirAll(h.trash(), 0o700); err != nil {
		return err
	}
	to := filepath.Join(h.trash(), fmt.Sprintf("%d-%s", id, randomHex(4)))
	if err := os.Rename(dir, to); err != nil {
		return fmt.Errorf("removing disk of machine %d: %w", id, err)
	}
	go func() { _ = os.RemoveAll(to) }()
	return nil
}

// Clean empties the trash and waits for it.
func (h *Host) Clean() error { return os.RemoveAll(h.trash()) }

// forgetNspawn removes what a killed systemd-nspawn leaves in /run.
func (h *Host) forgetNspawn(id int64, root string) {
	_ = os.RemoveAll(filepath.Join("/run/systemd/nspawn/propagate", h.unitName(id)))
	var st unix.Stat_t
	if unix.Stat(root, &st) == nil {
		_ = os.Remove(fmt.Sprintf("/run/systemd/nspawn/locks/inode-%d:%d", st.Dev, st.Ino))
	}
}

// unmountAll unmounts whatever is mounted on path.
func unmountAll(path string) error {
	for {
		err := unix.Unmount(path, unix.UMOUNT_NOFOLLOW)
		switch {
		case err == nil:
		case errors.Is(err, unix.EINVAL), errors.Is(err, fs.ErrNotExist):
			return nil
		case errors.Is(err, unix.EBUSY):
			// A process of the computer looks at it (a shell, a copy): take the
			// name away now, the rest goes when that process ends.
			if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
				return fmt.Errorf("unmounting %s: %w", path, err)
			}
		default:
			return fmt.Errorf("unmounting %s: %w", path, err)
		}
	}
}

// IDs lists the machines that have a disk.
func (h *Host) IDs() ([]int64, error) {
	entries, err := os.ReadDir(h.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var ids []int64
	for _, e := range entries {
		if id, err := strconv.ParseInt(e.Name(), 10, 64); err == nil {
			ids = append(ids, id)
		}
	}
	return ids, err
}

// Groups lists the machines that have control groups, which after a crash may be
// others than those with a disk.
func (h *Host) Groups() ([]int64, error) {
	hs, err := hierarchies()
	if err != nil {
		return nil, err
	}
	seen := map[int64]bool{}
	var ids []int64
	for _, hi := range hs {
		entries, err := os.ReadDir(filepath.Join(hi.mount, "hk-lab", h.Lab))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			if id, err := strconv.ParseInt(e.Name(), 10, 64); err == nil && !seen[id] {
				seen[id] = true
				ids = append(ids, id)
			}
		}
	}
	return ids, nil
}

// Down removes every machine and every group of the lab.
func (h *Host) Down(ctx context.Context) error {
	ids, err := h.IDs()
	if err != nil {
		return err
	}
	grouped, err := h.Groups()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	all := append(ids, grouped...)
	errs := make([]error, len(all))
	done := map[int64]bool{}
	for i, id := range all {
		if done[id] {
			continue
		}
		done[id] = true
		wg.Go(func() { errs[i] = h.Remove(ctx, id) })
	}
	wg.Wait()
	errs = append(errs, removeGroups(filepath.Join("hk-lab", h.Lab)), h.Clean())
	// The folder above is shared by all labs; it goes with the last one.
	if hs, err := hierarchies(); err == nil {
		for _, hi := range hs {
			_ = os.Remove(filepath.Join(hi.mount, "hk-lab"))
		}
	}
	return errors.Join(errs...)
}

func randomHex(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails (Go 1.24)
	return hex.EncodeToString(b)
}

// Mounted reports whether the machine's disk is mounted.
func (h *Host) Mounted(id int64) bool { return isOverlay(filepath.Join(h.dir(id), "root")) }
