package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"hk/tasks/spec"
)

// Classes of a config change (DESIGN §7, plan -o json).
const (
	Safe       = "safe"       // nothing that runs is disturbed
	Disruptive = "disruptive" // something is restarted, replaced or removed
	Immutable  = "immutable"  // refused on an established cluster
)

// ConfigChange is one field whose value differs from the applied config's.
type ConfigChange struct {
	Field string `json:"field"`
	Old   string `json:"old"`
	New   string `json:"new"`
	Class string `json:"class"`
	Line  *int   `json:"line"` // in the config file; filled in by whoever read it
	// Client: it changes how hk works and nothing on the cluster, so it needs
	// no consent.
	Client bool `json:"-"`
}

func (c ConfigChange) String() string {
	return fmt.Sprintf("%s: %s -> %s (%s)", c.Field, orNothing(c.Old), orNothing(c.New), c.Class)
}

func orNothing(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

// why says why an immutable field is one.
func (c ConfigChange) why() string {
	switch top, _, _ := strings.Cut(c.Field, "."); top {
	case "name":
		return "the name is in every server, Node and certificate"
	case "cloud", "lab", "sim":
		return "a cluster cannot move to another world"
	case "network":
		return "addresses are in certificates, etcd members, Nodes and running pods"
	case "cni":
		return "running pods keep the network they were started in"
	case "etcd":
		return "moving etcd between the masters and its own hosts is not a change of config"
	}
	return "it is fixed when the cluster is made"
}

// consentable are the changes that need a yes.
func consentable(diff []ConfigChange) []ConfigChange {
	var out []ConfigChange
	for _, c := range diff {
		if !c.Client {
			out = append(out, c)
		}
	}
	return out
}

// DiffConfig lists every field that differs between the applied config and the
// one wanted now, in the order of field names.
func DiffConfig(applied, wanted *spec.Cluster) []ConfigChange {
	a, b := flatten(applied), flatten(wanted)
	names := map[string]bool{}
	for k := range a {
		names[k] = true
	}
	for k := range b {
		names[k] = true
	}
	var out []ConfigChange
	for _, f := range slices.Sorted(maps.Keys(names)) {
		if a[f] == b[f] {
			continue
		}
		c := ConfigChange{Field: f, Old: a[f], New: b[f]}
		c.Class, c.Client = classify(&c)
		out = append(out, c)
	}
	return out
}

func classify(c *ConfigChange) (class string, client bool) {
	f := c.Field
	top, rest, _ := strings.Cut(f, ".")
	switch {
	case f == "name", f == "cloud", f == "lab", top == "network", f == "cni", f == "sim.world":
		return Immutable, false
	case f == "etcd.count" && (c.Old == "0") != (c.New == "0"):
		return Immutable, false
	case top == "sim", top == "ssh":
		return Safe, true
	case f == "etcd.count", f == "masters.count":
		return Disruptive, false
	case strings.HasPrefix(f, "workers[") && strings.HasSuffix(f, ".count"):
		if number(c.New) > number(c.Old) {
			return Safe, false
		}
		return Disruptive, false
	case strings.HasPrefix(f, "workers[") && (strings.Contains(f, ".labels") || strings.Contains(f, ".taints")):
		return Safe, false
	case top == "kubernetes", strings.HasPrefix(f, "workers["), rest == "type", f == "location", f == "image":
		return Disruptive, false
	}
	return Safe, false
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0
	}
	return n
}

// flatten turns a config into fields and their text, such as
// "workers[0].count" -> "2". Empty lists, maps and strings have no entry, so
// that leaving a field out and emptying it are the same.
func flatten(c *spec.Cluster) map[string]string {
	out := map[string]string{}
	if c == nil {
		return out
	}
	raw, err := json.Marshal(c)
	if err != nil {
		panic("bug: encoding a config: " + err.Error()) // only plain values
	}
	var v any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		panic("bug: encoding a config: " + err.Error())
	}
	flattenInto(out, "", v)
	return out
}

func flattenInto(out map[string]string, at string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			p := k
			if at != "" {
				p = at + "." + k
			}
			flattenInto(out, p, e)
		}
	case []any:
		for i, e := range v {
			flattenInto(out, at+"["+strconv.Itoa(i)+"]", e)
		}
	case nil:
	case string:
		if v != "" {
			out[at] = v
		}
	default:
		out[at] = fmt.Sprint(v)
	}
}

// ConfigText is a config as the unit keeps it: defaults filled in, no secrets
// (a config holds none: keys are named by path).
func ConfigText(c *spec.Cluster) ([]byte, error) {
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(c); err != nil {
		return nil, fmt.Errorf("writing the config: %w", err)
	}
	if err := e.Close(); err != nil {
		return nil, fmt.Errorf("writing the config: %w", err)
	}
	return b.Bytes(), nil
}

// ParseApplied reads what ConfigText wrote.
func ParseApplied(text []byte) (*spec.Cluster, error) {
	var c spec.Cluster
	if err := yaml.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("reading the applied config: %w", err)
	}
	return &c, nil
}

// ConfigDigest identifies what a config wants of the cluster, in whatever form
// it was written; fields that only say how hk works do not count.
func ConfigDigest(c *spec.Cluster) string {
	f := flatten(c)
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(f)) {
		if _, client := classify(&ConfigChange{Field: k}); client {
			continue
		}
		fmt.Fprintf(&b, "%q=%q\n", k, f[k])
	}
	return sumOf([]byte(b.String()))[:16]
}
