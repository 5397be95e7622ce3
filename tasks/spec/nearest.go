package spec

import (
	"cmp"
	"slices"
	"strings"
)

// nearest are at most two of the words that look like the given one. Two
// letters that changed places count as one mistake: it is the most common one.
func nearest(word string, words []string) []string {
	type near struct {
		word string
		far  int
	}
	var list []near
	if len(word) > 64 {
		return nil
	}
	for _, w := range words {
		d := mistakes(strings.ToLower(word), strings.ToLower(w))
		if len(word) >= 3 && (strings.HasPrefix(w, word) || strings.HasPrefix(word, w)) {
			d = min(d, 1)
		}
		if d <= max(1, max(len(word), len(w))/3) {
			list = append(list, near{w, d})
		}
	}
	slices.SortStableFunc(list, func(a, b near) int { return cmp.Compare(a.far, b.far) })
	var out []string
	for _, n := range list[:min(2, len(list))] {
		if n.far == list[0].far {
			out = append(out, n.word)
		}
	}
	return out
}

// mistakes is the number of letters changed, left out, added or swapped with
// their neighbour between two ASCII words (optimal string alignment).
func mistakes(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := 1; i <= len(a); i++ {
		before, last, now := rows[(i+2)%3], rows[i%3], rows[(i+1)%3]
		now[0] = i
		for j := 1; j <= len(b); j++ {
			change := last[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			now[j] = min(change, last[j]+1, now[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				now[j] = min(now[j], before[j-2]+1)
			}
		}
	}
	return rows[(len(a)+1)%3][len(b)]
}
