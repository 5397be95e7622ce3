package run

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"hk/cache/fp"
)

// Reasons without a value in them.
const (
	reasonSame        = "same inputs"
	reasonNoRecord    = "no record"
	reasonDamaged     = "record damaged"
	reasonInterrupted = "interrupted"
	reasonFailed      = "the last run failed"
	reasonForced      = "forced"
	reasonInputs      = "inputs changed"
)

// DecideInput is everything a decision depends on: nothing else is asked, so
// the same input gives the same answer in build, plan, status and explain.
type DecideInput struct {
	// Record is what is kept of the task.
	Record fp.Kept
	// Old returns the labelled parts of the record's run. It is called only if
	// the fingerprints differ. Nil, or nothing returned: not known.
	Old func() []fp.Part
	// Parts are all parts of the task now: its own and the engine's. Nil if
	// nothing is known of them, which a good record makes Maybe.
	Parts *fp.Parts
	// Unknown are the kinds it needs whose outputs may still change in this
	// build. Empty when a build decides; a plan knows only recorded outputs.
	Unknown []string
	// Derived says that own parts were made from an output that may still
	// change, so a difference in a rendered file, a key or an output taken
	// over is not certain.
	Derived bool
	// Drift is what differs from the record in the world: as just seen, or as
	// the record says if nobody looked. Without the word drift.
	Drift string
	// Unreachable is why nobody could look; "" if somebody did or nobody was to.
	Unreachable string
	Forced      bool
	// Spared is the flag that keeps the task out, such as "--keep-data".
	Spared string
	Now    time.Time
}

// Decide says what becomes of a task and why. It is the one staleness decision
// of hk, and pure.
//
// The order is the order of certainty. Without a good record nothing else
// matters. Then what can be known without looking: the end of its validity, its
// inputs. Then what was seen. Force comes after these, so that a task which is
// stale anyway keeps its real reason (and a Once kind that must be made again
// is not merely verified). An unknown upstream comes last: it makes a task
// Maybe only if nothing above made it Run.
//
// A spared task is decided in the same way and then never runs. If its record
// cannot be used it is IsBlocked, which its dependents feel.
func Decide(in DecideInput) (Verdict, string) {
	v, reason := decide(&in)
	if in.Spared == "" {
		return v, reason
	}
	switch {
	case !in.Record.Good():
		return IsBlocked, reason
	case in.Drift != "":
		return IsBlocked, "drift: " + in.Drift
	case in.Unreachable != "":
		return IsUnverified, in.Unreachable
	case v == Run:
		return IsSpared, "spared: would run because " + reason
	}
	return IsSpared, "spared: " + reason
}

func decide(in *DecideInput) (Verdict, string) {
	if reason := distrust(in); reason != "" {
		return Run, reason
	}
	if in.Parts != nil && in.Parts.Fingerprint() != in.Record.Fingerprint {
		if v, reason := changed(in); v != NotSelected {
			return v, reason
		}
	}
	switch {
	case in.Drift != "" && in.Unreachable == "":
		return Run, "drift: " + in.Drift
	case in.Forced:
		return Run, reasonForced
	case len(in.Unknown) > 0:
		return Maybe, "need:" + in.Unknown[0] + " may change"
	case in.Unreachable != "":
		return IsUnverified, in.Unreachable
	}
	return IsFresh, reasonSame
}

// distrust returns why the record cannot be an answer, whatever the inputs are.
func distrust(in *DecideInput) string {
	r := &in.Record
	switch {
	case r.Damaged:
		return reasonDamaged
	case r.Status == 0:
		return reasonNoRecord
	case r.Status == fp.Pending:
		return reasonInterrupted
	case r.Status != fp.Done:
		return reasonFailed
	case r.GoodUntil != 0 && in.Now.UnixNano() >= r.GoodUntil:
		return "expires " + time.Unix(0, r.GoodUntil).UTC().Format(time.RFC3339)
	}
	return ""
}

// changed judges fingerprints that differ. NotSelected means that no difference
// is certain and the rest of the decision goes on.
func changed(in *DecideInput) (Verdict, string) {
	var old []fp.Part
	if in.Old != nil {
		old = in.Old()
	}
	if len(old) == 0 { // a record always has parts; these were lost
		if len(in.Unknown) > 0 {
			return NotSelected, ""
		}
		return Run, reasonInputs
	}
	changes := Diff(old, in.Parts.List())
	if len(in.Unknown) > 0 {
		changes = slices.DeleteFunc(changes, func(c PartChange) bool { return !certain(in, &c) })
		if len(changes) == 0 {
			return NotSelected, ""
		}
	}
	return Run, describe(changes)
}

// certain reports whether a difference in a part stays whatever the unknown
// upstreams will declare.
func certain(in *DecideInput, c *PartChange) bool {
	class, rest, _ := strings.Cut(c.Label, ":")
	switch class {
	case "need": // one that was not needed before, or is no more, is certain
		return c.Added || c.Removed || !slices.Contains(in.Unknown, rest)
	case "file", "secret", "out":
		return !in.Derived
	}
	return true
}

// PartChange is a labelled part that differs between two runs.
type PartChange struct {
	Label string
	// Old and New are the texts; "" for what is never shown or is not there.
	Old, New       string
	Added, Removed bool
}

// String is the change in words: "config:x a -> b", "need:x output changed",
// "file:/x changed", "file:/x added".
func (c PartChange) String() string {
	switch {
	case c.Added && c.New != "":
		return c.Label + " added: " + shorten(c.New)
	case c.Added:
		return c.Label + " added"
	case c.Removed:
		return c.Label + " removed"
	case strings.HasPrefix(c.Label, "need:"):
		return c.Label + " output changed"
	case c.Old == "" && c.New == "":
		return c.Label + " changed"
	}
	return fmt.Sprintf("%s %s -> %s", c.Label, shorten(c.Old), shorten(c.New))
}

func shorten(s string) string {
	const most = 60
	if s == "" {
		return `""`
	}
	s = strings.ReplaceAll(s, "\n", " ")
	if r := []rune(s); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return s
}

// Diff returns what differs between two lists of parts sorted by label, in the
// order in which people want to hear it: what they wrote themselves first, what
// follows from other tasks last.
func Diff(old, now []fp.Part) []PartChange {
	var out []PartChange
	for i, j := 0, 0; i < len(old) || j < len(now); {
		switch {
		case j == len(now) || i < len(old) && old[i].Label < now[j].Label:
			out = append(out, PartChange{Label: old[i].Label, Old: old[i].Text, Removed: true})
			i++
		case i == len(old) || now[j].Label < old[i].Label:
			out = append(out, PartChange{Label: now[j].Label, New: now[j].Text, Added: true})
			j++
		default:
			if old[i].Digest != now[j].Digest {
				out = append(out, PartChange{Label: old[i].Label, Old: old[i].Text, New: now[j].Text})
			}
			i++
			j++
		}
	}
	slices.SortStableFunc(out, func(a, b PartChange) int { return cmp.Compare(rank(a.Label), rank(b.Label)) })
	return out
}

// rank is the place of a label's class in the order of Diff.
func rank(label string) int {
	class, _, _ := strings.Cut(label, ":")
	switch class {
	case "config":
		return 0
	case "versions":
		return 1
	case "schema", "recipe":
		return 2
	case "alloc":
		return 3
	case "artifact":
		return 4
	case "secret":
		return 5
	case "file":
		return 7
	case "need":
		return 8
	}
	return 6 // "out" and whatever else a kind calls its own
}

func describe(changes []PartChange) string {
	const most = 3
	if len(changes) == 0 { // equal digests of 8 bytes, unequal fingerprints
		return reasonInputs
	}
	var words []string
	for i, c := range changes {
		if i == most {
			words = append(words, fmt.Sprintf("and %d more", len(changes)-most))
			break
		}
		words = append(words, c.String())
	}
	return strings.Join(words, "; ")
}
