package spec

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Change is one difference between the applied config and the file.
type Change struct {
	Field string // such as masters.count or workers[gpu].labels.tier
	Old   string // "" where there was nothing
	New   string
	Class Class
	Why   string // of a class that depends on the values; "" for the field's usual one
	Line  int    // of the new file; 0 if it does not say
}

// Diff lists what changed, in the file's order; client fields, which are no
// part of the cluster, are left out. Pools of workers are compared by name, so
// that their order does not matter. src is the new config's source or nil.
func Diff(older, newer *Cluster, src *Source) []Change {
	was, is := flatten(older), flatten(newer)
	var out []Change
	for _, k := range mergeKeys(was, is) {
		o, n := was.values[k], is.values[k]
		if o == n {
			continue
		}
		f, ok := fieldOf(k)
		if !ok || f.Class == Client {
			continue
		}
		ch := Change{Field: k, Old: o, New: n, Class: f.Class}
		judge(&ch, f.Path, older, newer)
		line, _, _ := src.Position(is.paths[k])
		ch.Line = line
		out = append(out, ch)
	}
	return out
}

// flat is a config as leaf values by field name; the names keep the file's
// order.
type flat struct {
	values map[string]string
	paths  map[string]string // field name -> path in the source
	order  []string
}

func flatten(c *Cluster) flat {
	f := flat{values: map[string]string{}, paths: map[string]string{}}
	f.add(reflect.ValueOf(c).Elem(), "", "")
	return f
}

func (f *flat) set(name, path, value string) {
	f.values[name], f.paths[name] = value, path
	f.order = append(f.order, name)
}

func (f *flat) add(v reflect.Value, name, path string) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			key := yamlName(v.Type().Field(i))
			f.add(v.Field(i), join(name, key), join(path, key))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			f.add(v.Elem(), name, path)
		}
	case reflect.Map:
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
		for _, k := range keys {
			f.addLeaf(v.MapIndex(k), join(name, k.String()), join(path, k.String()))
		}
	case reflect.Slice:
		if pools, ok := reflect.TypeAssert[[]WorkerPool](v); ok {
			for i := range pools {
				f.addPool(&pools[i], fmt.Sprintf("%s[%d]", path, i))
			}
			return
		}
		f.addLeaf(v, name, path)
	default:
		f.addLeaf(v, name, path)
	}
}

// addPool names a pool by its name. Its count stands for the pool being there.
func (f *flat) addPool(w *WorkerPool, path string) {
	f.add(reflect.ValueOf(w).Elem(), "workers["+w.Pool+"]", path)
}

func (f *flat) addLeaf(v reflect.Value, name, path string) {
	switch x := v.Interface().(type) {
	case string:
		f.set(name, path, x)
	case int:
		f.set(name, path, strconv.Itoa(x))
	default:
		data, err := json.Marshal(x)
		if err != nil {
			panic("bug: config value of " + path + ": " + err.Error())
		}
		f.set(name, path, string(data))
	}
}

// mergeKeys is the new order, with what only the old one has after the field it
// stood behind.
func mergeKeys(was, is flat) []string {
	out := slices.Clone(is.order)
	at := -1
	for _, k := range was.order {
		if i := slices.Index(out, k); i >= 0 {
			at = i
			continue
		}
		at++
		out = slices.Insert(out, min(at, len(out)), k)
	}
	return out
}

// fieldOf finds the table's entry of a field: workers[gpu].labels.tier is of
// workers[].labels.
func fieldOf(name string) (Field, bool) {
	p := name
	if i := strings.IndexByte(p, '['); i >= 0 {
		if j := strings.IndexByte(p, ']'); j > i {
			p = p[:i+1] + p[j:]
		}
	}
	fields := Fields()
	for ; p != ""; p = parentPath(p) {
		for i := range fields {
			if fields[i].Path == p {
				return fields[i], true
			}
		}
	}
	return Field{}, false
}

// judge looks closer at changes whose direction matters.
func judge(ch *Change, path string, older, newer *Cluster) {
	grown := func() bool {
		o, _ := strconv.Atoi(ch.Old) // "" is a new pool: from nothing
		n, _ := strconv.Atoi(ch.New)
		return n > o
	}
	switch path {
	case "etcd.count":
		switch {
		case older.Etcd.Count == 0 || newer.Etcd.Count == 0:
			ch.Class, ch.Why = Immutable, "etcd cannot move between the masters and hosts of its own"
		case grown():
			ch.Class, ch.Why = Safe, "members are added one at a time"
		}
	case "masters.count":
		if grown() {
			ch.Class, ch.Why = Safe, "masters are added"
		}
	case "workers[].count", "workers[].pool":
		switch {
		case ch.New == "":
			ch.Why = "the pool's hosts are removed"
		case ch.Old == "" || path == "workers[].count" && grown():
			ch.Class, ch.Why = Safe, "hosts are added"
		}
	case "workers[].taints":
		if strings.Contains(ch.New, "NoExecute") && ch.Old != "" {
			ch.Class, ch.Why = Disruptive, "NoExecute evicts pods that do not tolerate it"
		}
	case "kubernetes.version":
		judgeVersion(ch)
	case "location", "image", "etcd.type", "masters.type", "workers[].type", "workers[].location":
		ch.Why = "for new servers; those that exist stay as they are"
	}
}

// judgeVersion: Kubernetes goes up, one minor version at a time.
func judgeVersion(ch *Change) {
	o, err1 := parseVersion(ch.Old)
	n, err2 := parseVersion(ch.New)
	switch {
	case err1 != nil || err2 != nil:
	case n.less(o):
		ch.Class, ch.Why = Immutable, "Kubernetes cannot go back to an older version"
	case n.minor > o.minor+1 || n.major != o.major:
		ch.Class, ch.Why = Immutable, "Kubernetes goes up one minor version at a time"
	}
}
