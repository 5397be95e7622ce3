package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"

	"go.yaml.in/yaml/v4"

	"hk/tasks/spec"
)

// ConfigChange is one field whose value differs from the applied config's, as
// `plan -o json` shows it.
type ConfigChange struct {
	Field string     `json:"field"`
	Old   string     `json:"old"`
	New   string     `json:"new"`
	Class spec.Class `json:"class"` // safe, disruptive, immutable
	Line  *int       `json:"line"`  // in the config file
	why   string
}

func (c ConfigChange) String() string {
	class := string(c.Class)
	if c.why != "" {
		class += ": " + c.why
	}
	return fmt.Sprintf("%s: %s -> %s (%s)", c.Field, orNothing(c.Old), orNothing(c.New), class)
}

func orNothing(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

// reason is why an immutable field is one.
func (c *ConfigChange) reason() string {
	if c.why != "" {
		return c.why
	}
	switch top, _, _ := strings.Cut(c.Field, "."); top {
	case "name":
		return "the name is in every server, Node and certificate"
	case "cloud", "lab":
		return "a cluster cannot move to another world"
	case "network":
		return "addresses are in certificates, etcd members, Nodes and running pods"
	case "cni":
		return "running pods keep the network they were started in"
	}
	return "it is fixed when the cluster is made"
}

// DiffConfig lists what differs between the applied config and the wanted one;
// src is the wanted one's source or nil.
func DiffConfig(applied, wanted *spec.Cluster, src *spec.Source) []ConfigChange {
	var out []ConfigChange
	for _, c := range spec.Diff(applied, wanted, src) {
		n := ConfigChange{Field: c.Field, Old: c.Old, New: c.New, Class: c.Class, why: c.Why}
		if c.Line > 0 {
			n.Line = &c.Line
		}
		out = append(out, n)
	}
	return out
}

// ParseApplied reads a config that a unit keeps. It was checked before it got
// there, by whichever hk wrote it, so that it is not judged by today's rules.
func ParseApplied(text []byte) (*spec.Cluster, error) {
	var c spec.Cluster
	if err := yaml.Unmarshal(text, &c); err != nil {
		return nil, fmt.Errorf("reading the applied config: %w", err)
	}
	for _, n := range []string{c.Network.Mesh, c.Network.Pods} {
		if p, err := netip.ParsePrefix(n); err != nil || !p.Addr().Is4() {
			return nil, fmt.Errorf("reading the applied config: %q is no network", n)
		}
	}
	return &c, nil
}

// ConfigDigest identifies what a config wants of the cluster. Fields that only
// say how this computer reaches it do not count.
func ConfigDigest(c *spec.Cluster) string {
	n := *c
	// The zero value of every client field: equal for all.
	n.Sim = spec.Sim{}
	n.SSH.Key, n.SSH.Agent, n.SSH.Bastion = "", false, spec.Bastion{}
	raw, err := json.Marshal(n) // maps are sorted
	if err != nil {
		panic("bug: encoding a config: " + err.Error()) // only plain values
	}
	h := sha256.Sum256(raw)
	return hex.EncodeToString(h[:8])
}
