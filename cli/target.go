package cli

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

// target is what a command is about: CLUSTER[/HOST], or
// CLUSTER:PHASE[.PART][/HOST]; HOST may hold `*` and `?`. With a final `+` it
// also means what needs the tasks named.
type target struct {
	Cluster string
	Phase   string // "" means all
	Part    string // "" means all of the phase
	Host    string // "" means all; may be a pattern
	Plus    bool
}

// targetSyntax is named in every message about a target that cannot be read.
const targetSyntax = "targets are CLUSTER, CLUSTER/HOST, CLUSTER:PHASE, CLUSTER:PHASE.PART or CLUSTER:PHASE.PART/HOST; " +
	"a host may be a pattern like worker-*; a final + adds what needs it"

var (
	wordRE    = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	patternRE = regexp.MustCompile(`^[a-z0-9*?]([a-z0-9*?-]*[a-z0-9*?])?$`)
)

// parseTarget reads one target. What it names need not exist.
func parseTarget(s string) (target, error) {
	bad := func(format string, args ...any) (target, error) {
		return target{}, usagef(targetSyntax, "target %q: %s", s, fmt.Sprintf(format, args...))
	}
	var t target
	rest, plus := strings.CutSuffix(s, "+")
	t.Plus = plus
	rest, host, hasHost := strings.Cut(rest, "/")
	cluster, phase, hasPhase := strings.Cut(rest, ":")
	phase, part, hasPart := strings.Cut(phase, ".")
	t.Cluster, t.Phase, t.Part, t.Host = cluster, phase, part, host
	switch {
	case cluster == "":
		return bad("no cluster is named")
	case !wordRE.MatchString(cluster):
		return bad("%q is not a cluster's name (lower-case letters, digits, dashes)", cluster)
	case hasPhase && !wordRE.MatchString(phase):
		return bad("%q is not a phase", phase)
	case hasPart && !wordRE.MatchString(part):
		return bad("%q is not a part of a phase", part)
	case hasHost && !patternRE.MatchString(host):
		return bad("%q is not a host", host)
	case plus && !hasPhase:
		return bad("+ needs a phase: %s:PHASE+", cluster)
	}
	return t, nil
}

// String is the target as it is typed.
func (t target) String() string {
	var b strings.Builder
	b.WriteString(t.Cluster)
	if t.Phase != "" {
		b.WriteString(":" + t.Phase)
	}
	if t.Part != "" {
		b.WriteString("." + t.Part)
	}
	if t.Host != "" {
		b.WriteString("/" + t.Host)
	}
	if t.Plus {
		b.WriteString("+")
	}
	return b.String()
}

// whole reports whether the target is the cluster and nothing narrower.
func (t target) whole() bool { return t.Phase == "" && t.Host == "" }

// matchHost reports whether the target means a host; "" stands for the cluster.
func (t target) matchHost(host string) bool {
	if t.Host == "" {
		return true
	}
	ok, err := path.Match(t.Host, host)
	return err == nil && ok && host != ""
}

// parseTargets reads the targets of one command; all must name one cluster.
func parseTargets(words []string) ([]target, error) {
	out := make([]target, 0, len(words))
	for _, w := range words {
		t, err := parseTarget(w)
		if err != nil {
			return nil, err
		}
		if len(out) > 0 && out[0].Cluster != t.Cluster {
			return nil, usagef("run hk once for each cluster",
				"targets name two clusters, %q and %q", out[0].Cluster, t.Cluster)
		}
		out = append(out, t)
	}
	return out, nil
}

// clusterArg reads an argument that must be a cluster and nothing narrower.
func clusterArg(word string) (string, error) {
	t, err := parseTarget(word)
	if err != nil {
		return "", err
	}
	if !t.whole() {
		return "", usagef("give the cluster's name alone: "+t.Cluster, "%q names more than a cluster", word)
	}
	return t.Cluster, nil
}
