package fp

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strconv"
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
//
// Parts are made for every task of every build, also when nothing is to be
// done, so they hash nothing until somebody asks.
type Parts struct {
	list   []part
	sorted bool
}

// usualParts is room for the parts of most tasks, the engine's included.
const usualParts = 12

type part struct {
	label string
	value string // bytes as they enter the fingerprint
	shown bool   // value may be shown to people
}

func (p *Parts) add(label, value string, shown bool) {
	for i := range p.list {
		if p.list[i].label == label {
			panic("bug: part " + label + " added twice")
		}
	}
	if p.list == nil {
		p.list = make([]part, 0, usualParts)
	}
	p.list = append(p.list, part{label, value, shown})
	p.sorted = false
}

// Text adds a value that may be shown to people.
func (p *Parts) Text(label, value string) { p.add(label, value, true) }

// Int adds a number.
func (p *Parts) Int(label string, n int64) { p.Text(label, strconv.FormatInt(n, 10)) }

// Opaque adds bytes that are identity only and are never shown: a rendered
// file, a key ID, an HMAC.
func (p *Parts) Opaque(label string, value []byte) { p.add(label, string(value), false) }

// Digest adds the output digest of a task that is needed.
func (p *Parts) Digest(label string, d OutputDigest) { p.add(label, string(d[:]), false) }

// Len is the number of parts.
func (p *Parts) Len() int { return len(p.list) }

// sort is an insertion sort: parts are few, mostly in order, and this is the
// hottest loop of a build that has nothing to do.
func (p *Parts) sort() {
	if p.sorted {
		return
	}
	for i := 1; i < len(p.list); i++ {
		for j := i; j > 0 && p.list[j].label < p.list[j-1].label; j-- {
			p.list[j], p.list[j-1] = p.list[j-1], p.list[j]
		}
	}
	p.sorted = true
}

// List returns the parts sorted by label, without their values.
func (p *Parts) List() []Part {
	p.sort()
	out := make([]Part, len(p.list))
	for i := range p.list {
		q := &p.list[i]
		out[i].Label = q.label
		if q.shown {
			out[i].Text = q.value
		}
		sum := sha256.Sum256([]byte(q.value))
		copy(out[i].Digest[:], sum[:8])
	}
	return out
}

// Fingerprint is SHA-256 over the canonical encoding: the schema, then each
// part in label order as length-prefixed label and length-prefixed value.
func (p *Parts) Fingerprint() Fingerprint {
	p.sort()
	var room [1024]byte // most inputs fit: no allocation
	buf := binary.BigEndian.AppendUint32(room[:0], Schema)
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(p.list)))
	for i := range p.list {
		buf = appendString(buf, p.list[i].label)
		buf = appendString(buf, p.list[i].value)
	}
	return sha256.Sum256(buf)
}

func appendString(buf []byte, s string) []byte {
	buf = binary.BigEndian.AppendUint32(buf, uint32(len(s)))
	return append(buf, s...)
}
