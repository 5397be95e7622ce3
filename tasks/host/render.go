package host

import "strings"

// Fill replaces @NAME@ placeholders of an embedded file; pairs are name, value,
// name, value. A placeholder without a value is a programming error. Plain
// replacement instead of text/template, because a no-op build of a large
// cluster renders tens of thousands of files: parsing a template each time
// costs more than everything else it does.
func Fill(text string, pairs ...string) string {
	var b strings.Builder
	b.Grow(len(text) + 256)
	for {
		before, rest, found := strings.Cut(text, "@")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, after, closed := strings.Cut(rest, "@")
		value, ok := lookup(pairs, name)
		switch {
		case closed && ok:
			b.WriteString(value)
			text = after
		case closed && isPlaceholder(name):
			panic("bug: no value for placeholder @" + name + "@")
		default: // an @ of the file's own, as in wg-quick@hk0
			b.WriteByte('@')
			text = rest
		}
	}
}

func lookup(pairs []string, name string) (string, bool) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i] == name {
			return pairs[i+1], true
		}
	}
	return "", false
}

func isPlaceholder(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < 'A' || c > 'Z') && c != '_' {
			return false
		}
	}
	return s != ""
}
