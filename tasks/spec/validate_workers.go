package spec

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

var (
	labelPart   = regexp.MustCompile(`^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`)
	labelPrefix = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
)

// hkLabels are the Node labels that hk or kubelet set themselves.
var hkLabels = []string{
	"kubernetes.io/hostname", "kubernetes.io/arch", "kubernetes.io/os", "node.kubernetes.io/instance-type",
	"topology.kubernetes.io/region", "topology.kubernetes.io/zone",
}

func (v *validator) workers() {
	first := map[string]int{}
	for i := range v.c.Workers {
		w, at := &v.c.Workers[i], fmt.Sprintf("workers[%d]", i)
		v.pool(at+".pool", w.Pool)
		if j, twice := first[w.Pool]; twice {
			v.add(at+".pool", fmt.Sprintf("pool %q is there twice, first as workers[%d]", w.Pool, j), "give each pool its own name")
		} else {
			first[w.Pool] = i
		}
		if w.Count < 0 || w.Count > maxWorkers {
			v.add(at+".count", fmt.Sprintf("%d is no number of workers", w.Count), fmt.Sprintf("0 to %d", maxWorkers))
		}
		v.serverType(at+".type", w.Type)
		if w.Location != "" && (!imageName.MatchString(w.Location) || len(w.Location) > 63) {
			v.add(at+".location", fmt.Sprintf("%q cannot be a location", short(w.Location)), "such as fsn1")
		}
		v.labels(at+".labels", w.Labels)
		v.taints(at+".taints", w.Taints)
	}
	v.attached()
}

func (v *validator) pool(path, name string) {
	switch {
	case name == Master || name == Etcd:
		v.add(path, fmt.Sprintf("the name %q is taken by hk's own hosts", name), "")
	case len(name) > maxPool:
		v.add(path, fmt.Sprintf("has %d characters, %d are possible", len(name), maxPool), "")
	case !poolName.MatchString(name):
		v.add(path, fmt.Sprintf("%q is no name of a pool", short(name)), "lower-case letters, digits and dashes, a letter first")
	}
}

// attached checks that the private network has room.
func (v *validator) attached() {
	if v.hosts() > 2000 {
		return // said elsewhere, and not worth expanding
	}
	n, last := 0, ""
	for _, p := range v.c.attachedPools() {
		if n += p.count; p.count > 0 {
			last = p.path
		}
	}
	if n > maxAttached {
		v.add(last, fmt.Sprintf("%d servers in the private network, it holds %d", n, maxAttached), "load_balanced: false for some of the pools")
	}
}

func (v *validator) labels(path string, labels map[string]string) {
	for _, k := range sortedKeys(labels) {
		at := path + "." + k
		if msg := badLabelKey(k); msg != "" {
			v.add(at, fmt.Sprintf("%q is no label key: %s", short(k), msg), "such as tier or example.com/tier")
		} else if slices.Contains(hkLabels, k) {
			v.add(at, "is set by hk itself", "leave it out")
		}
		if msg := badLabelValue(labels[k]); msg != "" {
			v.add(at, fmt.Sprintf("%q is no label value: %s", short(labels[k]), msg), "")
		}
	}
}

func (v *validator) taints(path string, taints []Taint) {
	seen := map[string]bool{}
	for i, t := range taints {
		at := fmt.Sprintf("%s[%d]", path, i)
		if msg := badLabelKey(t.Key); msg != "" {
			v.add(at+".key", fmt.Sprintf("%q is no taint key: %s", short(t.Key), msg), "such as dedicated or example.com/dedicated")
		}
		if msg := badLabelValue(t.Value); msg != "" {
			v.add(at+".value", fmt.Sprintf("%q is no taint value: %s", short(t.Value), msg), "")
		}
		v.oneOf(at+".effect", t.Effect, Effects(), nil)
		if id := t.Key + ":" + t.Effect; seen[id] {
			v.add(at, "the same key and effect are there twice", "keep one of the two")
		} else {
			seen[id] = true
		}
	}
}

// badLabelKey says what is wrong with [PREFIX/]NAME as Kubernetes wants it.
func badLabelKey(k string) string {
	prefix, name, slash := strings.Cut(k, "/")
	if !slash {
		prefix, name = "", k
	}
	switch {
	case slash && (prefix == "" || len(prefix) > 253 || !labelPrefix.MatchString(prefix)):
		return "the part before the slash must be a DNS name"
	case name == "":
		return "it is empty"
	case len(name) > 63:
		return "the name has more than 63 characters"
	case !labelPart.MatchString(name):
		return "letters, digits, dashes, underscores and dots, a letter or digit at both ends"
	}
	return ""
}

func badLabelValue(s string) string {
	switch {
	case s == "":
		return ""
	case len(s) > 63:
		return "it has more than 63 characters"
	case !labelPart.MatchString(s):
		return "letters, digits, dashes, underscores and dots, a letter or digit at both ends"
	}
	return ""
}

func (v *validator) url(path, s string) {
	if s == "" {
		return
	}
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		v.add(path, fmt.Sprintf("%q is no address of a mirror", short(s)), "such as https://mirror.example.com")
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		v.add(path, "holds more than scheme, host and path", "leave user, query and fragment out")
	case strings.ContainsAny(s, "'\"\\ \t\r\n"):
		v.add(path, "holds quotes, backslashes or white space", "")
	}
}
