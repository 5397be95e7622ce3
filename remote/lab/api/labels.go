package api

import (
	"regexp"
	"slices"
	"strings"
)

// Label keys and values as Kubernetes has them: an optional DNS prefix and a name;
// names and values start and end alphanumeric.
var (
	labelNameRE  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$`)
	labelDNSRE   = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$`)
	labelValueRE = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$`)
)

func validLabelKey(k string) bool {
	prefix, name, found := strings.Cut(k, "/")
	if !found {
		return labelNameRE.MatchString(k)
	}
	return len(prefix) <= 253 && labelDNSRE.MatchString(prefix) && labelNameRE.MatchString(name)
}

// checkLabels judges labels given by a client.
func checkLabels(labels map[string]string) error {
	for k, v := range labels {
		if !validLabelKey(k) {
			return invalid("labels", "label key '%s' is not correctly formatted", k)
		}
		if strings.HasPrefix(k, "hetzner.cloud/") {
			return invalid("labels", "label key '%s' uses a reserved prefix", k)
		}
		if !labelValueRE.MatchString(v) {
			return invalid("labels", "label value '%s' (key: %s) is not correctly formatted", v, k)
		}
	}
	return nil
}

// selector is a parsed label selector: all parts must hold.
type selector []requirement

type requirement struct {
	key    string
	op     string // exists, absent, in, notin
	values []string
}

// matches judges labels. A missing key fulfils notin (k!=v), as on the real API.
func (s selector) matches(labels map[string]string) bool {
	for _, r := range s {
		v, has := labels[r.key]
		ok := false
		switch r.op {
		case "exists":
			ok = has
		case "absent":
			ok = !has
		case "in":
			ok = has && slices.Contains(r.values, v)
		case "notin":
			ok = !has || !slices.Contains(r.values, v)
		}
		if !ok {
			return false
		}
	}
	return true
}

// parseSelector reads k, !k, k=v, k==v, k!=v, k in (a,b), k notin (a,b), joined
// by commas. An empty selector matches everything.
func parseSelector(text string) (selector, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var s selector
	for _, part := range splitTop(text) {
		r, ok := parseRequirement(strings.TrimSpace(part))
		if !ok {
			return nil, invalid("label_selector", "label selector '%s' is not correctly formatted", text)
		}
		s = append(s, r)
	}
	return s, nil
}

// splitTop splits at commas outside of parentheses.
func splitTop(text string) []string {
	var parts []string
	depth, start := 0, 0
	for i, c := range text {
		switch {
		case c == '(':
			depth++
		case c == ')':
			depth--
		case c == ',' && depth == 0:
			parts = append(parts, text[start:i])
			start = i + 1
		}
	}
	return append(parts, text[start:])
}

var setRE = regexp.MustCompile(`^(\S+)\s+(in|notin)\s*\(([^()]*)\)$`)

func parseRequirement(p string) (requirement, bool) {
	if m := setRE.FindStringSubmatch(p); m != nil {
		r := requirement{key: m[1], op: m[2]}
		for v := range strings.SplitSeq(m[3], ",") {
			r.values = append(r.values, strings.TrimSpace(v))
		}
		return r, r.valid()
	}
	if rest, ok := strings.CutPrefix(p, "!"); ok && !strings.Contains(rest, "=") {
		r := requirement{key: strings.TrimSpace(rest), op: "absent"}
		return r, r.valid()
	}
	for _, op := range []struct{ sign, name string }{{"!=", "notin"}, {"==", "in"}, {"=", "in"}} {
		if k, v, ok := strings.Cut(p, op.sign); ok {
			r := requirement{key: strings.TrimSpace(k), op: op.name, values: []string{strings.TrimSpace(v)}}
			return r, r.valid()
		}
	}
	r := requirement{key: p, op: "exists"}
	return r, r.valid()
}

func (r requirement) valid() bool {
	return validLabelKey(r.key) && !slices.ContainsFunc(r.values, func(v string) bool { return !labelValueRE.MatchString(v) })
}
