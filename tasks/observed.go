package tasks

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"

	"hk/cache/fp"
	"hk/remote"
)

// Keys of Record.Observed: where a value was seen.
const (
	keyFile   = "file:"
	keyUnit   = "unit:"
	keySysctl = "sysctl:"
	keyModule = "module:"
)

// QueryOf asks for everything that records observed.
func QueryOf(recs []*fp.Record) remote.FactsQuery {
	var q remote.FactsQuery
	seen := map[string]bool{}
	for _, r := range recs {
		if r == nil {
			continue
		}
		for k := range r.Observed {
			if seen[k] {
				continue
			}
			seen[k] = true
			switch {
			case strings.HasPrefix(k, keyFile):
				q.Paths = append(q.Paths, k[len(keyFile):])
			case strings.HasPrefix(k, keyUnit):
				q.Units = append(q.Units, k[len(keyUnit):])
			case strings.HasPrefix(k, keySysctl):
				q.Sysctls = append(q.Sysctls, k[len(keySysctl):])
			case strings.HasPrefix(k, keyModule):
				q.Modules = append(q.Modules, k[len(keyModule):])
			case strings.HasPrefix(k, "wg:"):
				q.WireGuard = append(q.WireGuard, k[len("wg:"):])
			}
		}
	}
	for _, l := range []*[]string{&q.Paths, &q.Units, &q.Sysctls, &q.Modules, &q.WireGuard} {
		slices.Sort(*l)
	}
	return q
}

func queryState(st *remote.HostState) remote.FactsQuery {
	var q remote.FactsQuery
	for i := range st.Files {
		q.Paths = append(q.Paths, st.Files[i].Path)
	}
	for i := range st.Units {
		q.Units = append(q.Units, st.Units[i].Name)
	}
	q.Sysctls = slices.Sorted(maps.Keys(st.Sysctls))
	q.Modules = slices.Clone(st.Modules)
	return q
}

func empty(st *remote.HostState) bool {
	return len(st.Files)+len(st.Units)+len(st.Sysctls)+len(st.Modules) == 0
}

// checkState compares facts with what is declared and adds what was seen.
func checkState(st *remote.HostState, f *remote.Facts, obs map[string]string) error {
	for i := range st.Files {
		fl := &st.Files[i]
		got, ok := f.Files[fl.Path]
		if !ok {
			got = "absent"
		}
		if want := wantFile(fl); want != "" && !strings.HasPrefix(got, want) {
			return fmt.Errorf("%s is %q on the host, not %q", fl.Path, got, want)
		}
		if got == "absent" && !fl.Absent {
			return fmt.Errorf("%s is missing on the host", fl.Path)
		}
		obs[keyFile+fl.Path] = got
	}
	for i := range st.Units {
		u := &st.Units[i]
		got := f.Units[u.Name]
		if err := checkUnit(u, &got); err != nil {
			return err
		}
		obs[keyUnit+u.Name] = unitValue(&got)
	}
	for k, want := range st.Sysctls {
		if f.Sysctls[k] != want {
			return fmt.Errorf("sysctl %s is %q on the host, not %q", k, f.Sysctls[k], want)
		}
		obs[keySysctl+k] = want
	}
	for _, m := range st.Modules {
		if !f.Modules[m] {
			return fmt.Errorf("kernel module %s is not loaded", m)
		}
		obs[keyModule+m] = "loaded"
	}
	return nil
}

// wantFile is the beginning of what facts must say of a declared file; "" if
// that is known only after it was written.
func wantFile(f *remote.File) string {
	switch {
	case f.Absent:
		return "absent"
	case f.Link != "":
		return "link " + f.Link
	case f.Mode&fs.ModeDir != 0:
		return "dir"
	case f.Artifact != nil:
		return f.Artifact.FileSHA256
	case f.Later, f.Keep:
		return ""
	}
	sum := sha256.Sum256(f.Content)
	return hex.EncodeToString(sum[:])
}

func checkUnit(u *remote.Unit, got *remote.UnitFact) error {
	if u.Masked {
		if got.Enabled != "masked" && got.Enabled != "" {
			return fmt.Errorf("unit %s is %s, not masked", u.Name, got.Enabled)
		}
		return nil
	}
	if u.Active && got.Active == "activating" && u.NoBlock {
		got.Active = "active" // coming up; who needs it up verifies that itself
	}
	if u.Active && got.Active != "active" {
		return fmt.Errorf("unit %s is %s, not active", u.Name, orNone(got.Active))
	}
	if u.Enabled && got.Enabled != "enabled" && got.Enabled != "static" && got.Enabled != "enabled-runtime" {
		return fmt.Errorf("unit %s is %s, not enabled", u.Name, orNone(got.Enabled))
	}
	return nil
}

func unitValue(u *remote.UnitFact) string {
	s := orNone(u.Active) + " " + orNone(u.Enabled)
	if u.Started != "" && u.Started != u.Disk {
		s += " started with other files"
	}
	return s
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// driftOf names the first difference between what a record observed on a host
// and what its facts say now; "" if there is none.
func driftOf(obs map[string]string, f *remote.Facts) string {
	for _, k := range slices.Sorted(maps.Keys(obs)) {
		was := obs[k]
		switch {
		case strings.HasPrefix(k, keyFile):
			path := k[len(keyFile):]
			if d := fileDrift(path, was, f.Files[path]); d != "" {
				return d
			}
		case strings.HasPrefix(k, keyUnit):
			name := k[len(keyUnit):]
			u := f.Units[name]
			if u.Active == "activating" && strings.HasPrefix(was, "active ") {
				u.Active = "active"
			}
			if now := unitValue(&u); now != was {
				return fmt.Sprintf("unit %s is %s, was %s", name, now, was)
			}
		case strings.HasPrefix(k, keySysctl):
			name := k[len(keySysctl):]
			if now := f.Sysctls[name]; now != was {
				return fmt.Sprintf("sysctl %s is %s, was %s", name, orNone(now), was)
			}
		case strings.HasPrefix(k, keyModule):
			if name := k[len(keyModule):]; !f.Modules[name] {
				return fmt.Sprintf("kernel module %s is not loaded", name)
			}
		}
	}
	return ""
}

func fileDrift(path, was, now string) string {
	switch {
	case now == "" || now == "absent":
		if was == "absent" {
			return ""
		}
		return path + " is missing"
	case was == now:
		return ""
	case was == "absent":
		return path + " appeared"
	case strings.Fields(was)[0] != strings.Fields(now)[0]:
		return path + " changed"
	default:
		return fmt.Sprintf("%s has mode and owner %s, had %s", path, strings.Join(strings.Fields(now)[1:], " "), strings.Join(strings.Fields(was)[1:], " "))
	}
}

// driftOfNotes compares what the kind itself watches.
func driftOfNotes(obs, now map[string]string) string {
	for _, k := range slices.Sorted(maps.Keys(now)) {
		if was, ok := obs[k]; ok && was != now[k] {
			return fmt.Sprintf("%s is %s, was %s", k, orNone(now[k]), orNone(was))
		}
	}
	return ""
}
