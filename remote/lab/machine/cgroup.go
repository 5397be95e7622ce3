package machine

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// hierarchy is one mounted control group hierarchy.
type hierarchy struct {
	mount       string
	controllers string // version 1: "memory", "cpu,cpuacct", "name=systemd"; version 2: ""
	v2          bool
}

// hierarchies lists all mounted ones, the one nothing is ever moved out of first. With version 1 a machine must be in its own
// group in every one of them: the kernel shows a group namespace only what is
// below the group a process was in when the namespace was made.
// They are looked up once: they do not change while a computer runs.
var hierarchies = sync.OnceValues(mountedHierarchies)

func mountedHierarchies() ([]hierarchy, error) {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var hs []hierarchy
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		p := strings.Fields(sc.Text())
		if len(p) < 4 || !strings.HasPrefix(p[1], "/sys/fs/cgroup") {
			continue
		}
		switch p[2] {
		case "cgroup2":
			hs = append(hs, hierarchy{mount: p[1], v2: true})
		case "cgroup":
			hs = append(hs, hierarchy{mount: p[1], controllers: v1Controllers(p[3])})
		}
	}
	// The one nothing is ever moved out of comes first; see supervisor.sh.
	slices.SortStableFunc(hs, func(a, b hierarchy) int { return rank(a) - rank(b) })
	if len(hs) == 0 {
		return nil, errors.New("no control groups are mounted below /sys/fs/cgroup")
	}
	return hs, sc.Err()
}

func rank(h hierarchy) int {
	switch {
	case h.has("pids"):
		return 0
	case h.v2:
		return 1
	}
	return 2
}

func v1Controllers(options string) string {
	var cs []string
	for o := range strings.SplitSeq(options, ",") {
		switch o {
		case "rw", "ro", "nosuid", "nodev", "noexec", "relatime", "noatime", "xattr", "clone_children":
		default:
			cs = append(cs, o)
		}
	}
	return strings.Join(cs, ",")
}

func (h hierarchy) has(c string) bool {
	return slices.Contains(strings.Split(h.controllers, ","), c)
}

// limits of a machine; zero means none.
type limits struct {
	memory int64
	cores  int
}

// makeGroups makes the group rel (a relative path) in every hierarchy.
func makeGroups(rel string, l limits) ([]string, error) {
	hs, err := hierarchies()
	if err != nil {
		return nil, err
	}
	var dirs []string
	for _, h := range hs {
		dir := filepath.Join(h.mount, rel)
		if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // as all groups are
			return nil, fmt.Errorf("making control group: %w", err)
		}
		if err := h.prepare(rel); err != nil {
			return nil, err
		}
		if err := h.share(rel); err != nil {
			return nil, err
		}
		if err := h.limit(dir, l); err != nil {
			return nil, err
		}
		dirs = append(dirs, dir)
	}
	return dirs, nil
}

// prepare makes the group usable: version 1's cpuset starts empty, version 2's
// controllers must be handed down level by level.
func (h hierarchy) prepare(rel string) error {
	parent := h.mount
	for part := range strings.SplitSeq(rel, "/") {
		dir := filepath.Join(parent, part)
		if h.has("cpuset") {
			for _, f := range []string{"cpuset.cpus", "cpuset.mems"} {
				v, err := os.ReadFile(filepath.Join(parent, f))
				if err != nil {
					return err
				}
				if err := os.WriteFile(filepath.Join(dir, f), v, 0o600); err != nil {
					return fmt.Errorf("handing down %s: %w", f, err)
				}
			}
		}
		if h.v2 {
			avail, err := os.ReadFile(filepath.Join(parent, "cgroup.controllers"))
			if err != nil {
				return err
			}
			for c := range strings.FieldsSeq(string(avail)) {
				// A controller that cannot be handed down (cpu with real-time
				// tasks about) is one the machine does without.
				_ = os.WriteFile(filepath.Join(parent, "cgroup.subtree_control"), []byte("+"+c), 0o600)
			}
		}
		parent = dir
	}
	return nil
}

// share gives the groups above the machines more than one process's share of the
// computer: all machines of all labs together would otherwise get as much as a
// single compiler beside them.
func (h hierarchy) share(rel string) error {
	for dir := filepath.Dir(rel); dir != "."; dir = filepath.Dir(dir) {
		var err error
		switch {
		case h.v2:
			err = set(filepath.Join(h.mount, dir), "cpu.weight", "800")
		case h.has("cpu"):
			err = set(filepath.Join(h.mount, dir), "cpu.shares", "8192")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// set writes a setting of a group if its controller is there.
func set(dir, file, v string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0) // never create it
	if err == nil {
		_, err = f.WriteString(v)
		err = errors.Join(err, f.Close())
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("setting %s: %w", file, err)
	}
	return nil
}

func (h hierarchy) limit(dir string, l limits) error {
	mem, cpu := "-1", "-1"
	if l.memory > 0 {
		mem = strconv.FormatInt(l.memory, 10)
	}
	if l.cores > 0 && l.cores < runtime.NumCPU() {
		cpu = strconv.Itoa(l.cores * 100000)
	}
	switch {
	case h.v2:
		max := func(v string) string { return strings.Replace(v, "-1", "max", 1) }
		return errors.Join(set(dir, "memory.max", max(mem)), set(dir, "cpu.max", max(cpu)+" 100000"))
	case h.has("memory"):
		return set(dir, "memory.limit_in_bytes", mem)
	case h.has("cpu"):
		return set(dir, "cpu.cfs_quota_us", cpu)
	}
	return nil
}

// groupPids lists every process in rel or below: in any hierarchy if all is set, else
// in the first.
func groupPids(rel string, all bool) ([]int, error) {
	hs, err := hierarchies()
	if err != nil {
		return nil, err
	}
	if !all {
		hs = hs[:1]
	}
	seen := map[int]bool{}
	for _, h := range hs {
		err := filepath.WalkDir(filepath.Join(h.mount, rel), func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() {
				return ignoreGone(err)
			}
			b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
			for f := range strings.FieldsSeq(string(b)) {
				if pid, err := strconv.Atoi(f); err == nil && pid > 0 {
					seen[pid] = true
				}
			}
			return ignoreGone(err)
		})
		if err != nil {
			return nil, err
		}
	}
	pids := make([]int, 0, len(seen))
	for p := range seen {
		pids = append(pids, p)
	}
	slices.Sort(pids)
	return pids, nil
}

// groupBusy reports whether anything runs in rel; it looks at one hierarchy only,
// the one nothing is ever taken out of.
func groupBusy(rel string) (bool, error) {
	hs, err := hierarchies()
	if err != nil {
		return false, err
	}
	busy := false
	err = filepath.WalkDir(filepath.Join(hs[0].mount, rel), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return ignoreGone(err)
		}
		b, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if len(b) > 0 {
			busy = true
			return filepath.SkipAll
		}
		return ignoreGone(err)
	})
	return busy, err
}

// ignoreGone: groups come and go while they are walked.
func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errNoDev) {
		return nil
	}
	return err
}

// removeGroups removes rel and everything below it, in every hierarchy; what was
// killed a moment ago may hold a group for a moment longer.
func removeGroups(rel string) error {
	hs, err := hierarchies()
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range hs {
		errs = append(errs, removeTree(filepath.Join(h.mount, rel)))
	}
	return errors.Join(errs...)
}

func removeTree(root string) error {
	deadline := time.Now().Add(5 * time.Second)
	for {
		var dirs []string
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return ignoreGone(err)
		})
		if err != nil {
			return err
		}
		slices.Reverse(dirs)
		var last error
		for _, d := range dirs {
			if err := os.Remove(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
				last = err
			}
		}
		if last == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("removing control group: %w", last)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
