package graph

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// Nearest returns at most three of the words that look like the given one,
// nearest first. A word is near if about a third of its letters differ, or if
// one is the beginning of the other.
func Nearest(word string, words []string) []string {
	type near struct {
		word string
		far  int
	}
	var list []near
	for _, w := range words {
		d := distance(word, w)
		if len(word) >= 3 && (strings.HasPrefix(w, word) || strings.HasPrefix(word, w)) {
			d = min(d, 1)
		}
		if d <= max(1, max(len(word), len(w))/3) {
			list = append(list, near{w, d})
		}
	}
	slices.SortFunc(list, func(a, b near) int {
		return cmp.Or(cmp.Compare(a.far, b.far), strings.Compare(a.word, b.word))
	})
	var out []string
	for _, n := range list {
		if !slices.Contains(out, n.word) && len(out) < 3 {
			out = append(out, n.word)
		}
	}
	return out
}

// distance is the Levenshtein distance in bytes; the words are ASCII.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func hint(id string, byID map[string]*Kind) string {
	near := Nearest(id, slices.Sorted(maps.Keys(byID)))
	if len(near) == 0 {
		return ""
	}
	return " (did you mean " + strings.Join(near, " or ") + "?)"
}
