package api

import (
	"strings"
	"testing"
)

func TestLabelSyntax(t *testing.T) {
	long := strings.Repeat("a", 64)
	for k, ok := range map[string]bool{
		"a": true, "A.b_c-d": true, "example.com/x": true, "a/b/c": false, "": false, "/x": false, "x/": false,
		"-a": false, "a-": false, long: false, long[1:]: true, "Example.com/x": false, "ä": false, "a b": false,
		strings.Repeat("a.", 126) + "a/x": true, strings.Repeat("a.", 127) + "a/x": false,
	} {
		if validLabelKey(k) != ok {
			t.Errorf("key %q: valid is %t, want %t", k, !ok, ok)
		}
	}
	for v, ok := range map[string]bool{"": true, "x": true, "-x": false, "x-": false, long: false, long[1:]: true, "a/b": false, "a=b": false} {
		if (checkLabels(map[string]string{"k": v}) == nil) != ok {
			t.Errorf("value %q: valid is %t, want %t", v, !ok, ok)
		}
	}
	if checkLabels(map[string]string{"hetzner.cloud/x": ""}) == nil {
		t.Error("the reserved prefix is taken")
	}
}

func TestSelector(t *testing.T) {
	labels := map[string]string{"env": "prod", "tier": "web", "empty": "", "x.y/z": "1"}
	for text, want := range map[string]bool{
		"":                         true,
		"env":                      true,
		"!env":                     false,
		"nope":                     false,
		"!nope":                    true,
		"env=prod":                 true,
		"env==prod":                true,
		"env = prod":               true,
		"env!=prod":                false,
		"env!=test":                true,
		"nope!=test":               true,
		"empty=":                   true,
		"env=":                     false,
		"x.y/z=1":                  true,
		"env in (prod,test)":       true,
		"env in ( test , prod )":   true,
		"env in (test)":            false,
		"env notin (test)":         true,
		"nope notin (test)":        true,
		"env notin (prod,test)":    false,
		"env=prod,tier=web":        true,
		"env=prod,tier=db":         false,
		"env in (prod,test),!nope": true,
		" env = prod , !nope ":     true,
	} {
		s, err := parseSelector(text)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if s.matches(labels) != want {
			t.Errorf("%q: matches is %t, want %t", text, !want, want)
		}
	}
	for _, bad := range []string{",", "env=prod,", "=x", "!", "env in prod", "env in (a", "a b", "env=a b", "-a=b", "a==b=c", "env in (a b)", "env=ä"} {
		if _, err := parseSelector(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func FuzzSelector(f *testing.F) {
	for _, s := range []string{"a=b", "a in (b,c),!d", "((", "a!=b", "!=,", "a notin ()"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if s, err := parseSelector(text); err == nil {
			s.matches(map[string]string{"a": "b"})
		}
	})
}
