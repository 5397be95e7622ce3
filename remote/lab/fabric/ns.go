package fabric

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// nsDir is where `ip netns` looks, so that its users find the lab's too.
const nsDir = "/run/netns"

// NSPath is the path of a namespace by name.
func NSPath(name string) string { return filepath.Join(nsDir, name) }

// nsExists reports whether name is a namespace and not just a leftover file.
func nsExists(name string) bool {
	var st unix.Statfs_t
	if err := unix.Statfs(NSPath(name), &st); err != nil {
		return false
	}
	return st.Type == unix.NSFS_MAGIC
}

// ensureNS makes the namespace name with its loopback up.
func ensureNS(name string) error {
	if nsExists(name) {
		return nil
	}
	// A kill between making the file and mounting on it leaves a plain file.
	if err := os.Remove(NSPath(name)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing half-made namespace %s: %w", name, err)
	}
	err := onThread(func() error {
		ns, err := netns.NewNamed(name)
		if err != nil {
			return err
		}
		return ns.Close()
	})
	if err != nil {
		return fmt.Errorf("making namespace %s: %w", name, err)
	}
	return inNS(name, func(h *netlink.Handle) error {
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		return h.LinkSetUp(lo)
	})
}

// removeNS forgets a namespace; it ends with the last process in it.
func removeNS(name string) error {
	path := NSPath(name)
	for {
		err := unix.Unmount(path, unix.MNT_DETACH)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break
		}
		if err != nil {
			return fmt.Errorf("unmounting namespace %s: %w", name, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("removing namespace %s: %w", name, err)
	}
	return nil
}

// listNS returns the names of all namespaces with the prefix.
func listNS(prefix string) ([]string, error) {
	entries, err := os.ReadDir(nsDir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// onThread runs f on a thread of its own namespace state, and puts the thread
// back; a thread that cannot be put back is given up with its goroutine.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		orig, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			done <- err
			return
		}
		ferr := f()
		if err := netns.Set(orig); err == nil {
			runtime.UnlockOSThread() // else the thread dies with this goroutine
		}
		_ = orig.Close()
		done <- ferr
	}()
	return <-done
}

// Do runs f on a thread that is in the namespace name.
func Do(name string, f func() error) error {
	return onThread(func() error {
		ns, err := netns.GetFromName(name)
		if err != nil {
			return fmt.Errorf("opening namespace %s: %w", name, err)
		}
		defer func() { _ = ns.Close() }()
		if err := netns.Set(ns); err != nil {
			return fmt.Errorf("entering namespace %s: %w", name, err)
		}
		return f()
	})
}

// inNS runs f with a netlink handle of the namespace name ("" = this one).
func inNS(name string, f func(*netlink.Handle) error) error {
	if name == "" {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		return f(h)
	}
	ns, err := netns.GetFromName(name)
	if err != nil {
		return fmt.Errorf("opening namespace %s: %w", name, err)
	}
	defer func() { _ = ns.Close() }()
	h, err := netlink.NewHandleAt(ns, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("netlink in namespace %s: %w", name, err)
	}
	defer h.Close()
	return f(h)
}

// sysctls writes settings inside a namespace; keys with dots as in sysctl(8).
func sysctls(ns string, kv map[string]string) error {
	return Do(ns, func() error {
		for k, v := range kv {
			p := "/proc/sys/" + strings.ReplaceAll(k, ".", "/")
			if err := os.WriteFile(p, []byte(v), 0o600); err != nil {
				return fmt.Errorf("sysctl %s: %w", k, err)
			}
		}
		return nil
	})
}
