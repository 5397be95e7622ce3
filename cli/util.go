package cli

import (
	"encoding/hex"
	"fmt"
	"iter"
	"maps"
	"os"
	"slices"

	"hk/cache/fp"
	"hk/tasks/spec"
)

type wantedHost = spec.Host

func keys[K comparable, V any](m map[K]V) iter.Seq[K] { return maps.Keys(m) }

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// parseDigest reads an output digest in hex.
func parseDigest(s string) (fp.OutputDigest, error) {
	var d fp.OutputDigest
	b, err := hex.DecodeString(s)
	if err != nil || len(b) != len(d) {
		return d, fmt.Errorf("%q is not a digest", s)
	}
	copy(d[:], b)
	return d, nil
}

func sorted(words []string) []string {
	out := slices.Clone(words)
	slices.Sort(out)
	return out
}

func pid() int { return os.Getpid() }

// hostName is this computer's, for people; "" if it has none.
func hostName() string {
	h, _ := os.Hostname()
	return h
}

// shorten cuts a text for a line.
func shorten(s string, n int) string {
	r := []rune(s)
	if len(r) <= n {
		return s
	}
	return string(r[:n-1]) + "…"
}
