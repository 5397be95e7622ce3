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

// distance is the number of letters to insert, remove, replace or swap with
// the next one (Levenshtein, with neighbours swapped counted once). In bytes;
// the words are ASCII.
func distance(a, b string) int {
	before, above := make([]int, len(b)+1), make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			change := above[j]
			if a[i] != b[j] {
				change++
			}
			row[j+1] = min(change, above[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(b)]
}

func hint(id string, byID map[string]*Kind) string {
	near := Nearest(id, slices.Sorted(maps.Keys(byID)))
	if len(near) == 0 {
		return ""
	}
	return " (did you mean " + strings.Join(near, " or ") + "?)"
}
