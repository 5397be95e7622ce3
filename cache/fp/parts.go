package fp

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// Schema is the version of the canonical encoding. Raising it makes every task
// of every cluster stale, so it changes only when the encoding does.
const Schema = 1

// Fingerprint identifies everything that goes into a task.
type Fingerprint [sha256.Size]byte

// OutputDigest identifies what a task declared for the tasks that need it. It
// is a type of its own so that it cannot be taken for a Fingerprint: early
// cutoff rests on the difference.
type OutputDigest [sha256.Size]byte

// Short is the first eight bytes in hex, for people.
func (f Fingerprint) Short() string { return hex.EncodeToString(f[:8]) }

// String is the whole fingerprint in hex.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// Short is the first eight bytes in hex, for people.
func (d OutputDigest) Short() string { return hex.EncodeToString(d[:8]) }

// Part is one labelled input of a task, such as `config:kubernetes.version`.
// Labels are listed in DESIGN §4.
type Part struct {
	Label string
	// Digest is the first eight bytes of SHA-256 over the part's value. It is
	// kept with the record so that explain can say which part changed.
	Digest [8]byte
	// Text is the value as people read it; empty for files and secrets.
	Text string
}

// Parts collects the labelled inputs of one task. The zero value is empty and
// ready. Adding the same label twice is a programming error and panics: the
// second value would silently hide the first.
type Parts struct {
	list []part
}

type part struct {
	Part
	value []byte
}

func (p *Parts) add(label, text string, value []byte) {
	for i := range p.list {
		if p.list[i].Label == label {
			panic("bug: part " + label + " added twice")
		}
	}
	sum := sha256.Sum256(value)
	np := part{Part: Part{Label: label, Text: text}, value: value}
	copy(np.Digest[:], sum[:8])
	p.list = append(p.list, np)
}

// Text adds a value that may be shown to people.
func (p *Parts) Text(label, value string) { p.add(label, value, []byte(value)) }

// Int adds a number.
func (p *Parts) Int(label string, n int64) { p.Text(label, strconv.FormatInt(n, 10)) }

// Opaque adds bytes that are identity only and are never shown: a rendered
// file, a key ID, an HMAC.
func (p *Parts) Opaque(label string, value []byte) { p.add(label, "", slices.Clone(value)) }

// Digest adds the output digest of a task that is needed.
func (p *Parts) Digest(label string, d OutputDigest) { p.add(label, "", d[:]) }

// Len is the number of parts.
func (p *Parts) Len() int { return len(p.list) }

// List returns the parts sorted by label, without their values.
func (p *Parts) List() []Part {
	out := make([]Part, len(p.list))
	for i, q := range p.list {
		out[i] = q.Part
	}
	slices.SortFunc(out, func(a, b Part) int { return strings.Compare(a.Label, b.Label) })
	return out
}

// Fingerprint is SHA-256 over the canonical encoding: the schema, then each
// part in label order as length-prefixed label and length-prefixed value.
func (p *Parts) Fingerprint() Fingerprint {
	sorted := slices.Clone(p.list)
	slices.SortFunc(sorted, func(a, b part) int { return strings.Compare(a.Label, b.Label) })
	buf := make([]byte, 0, 64*len(sorted)+8)
	buf = binary.BigEndian.AppendUint32(buf, Schema)
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(sorted)))
	for i := range sorted {
		buf = appendBytes(buf, []byte(sorted[i].Label))
		buf = appendBytes(buf, sorted[i].value)
	}
	return sha256.Sum256(buf)
}

func appendBytes(buf, b []byte) []byte {
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(b)))
	return append(buf, b...)
}
