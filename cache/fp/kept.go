package fp

import (
	"encoding/binary"
	"errors"
	"time"
)

// Kept is a record as a store hands it to a build: the few fields every
// decision needs, without the labelled parts, observations and texts. A no-op
// over 100,000 tasks reads only these.
type Kept struct {
	Status Status // zero: there is no record
	// Damaged says that something is kept under the name which cannot be
	// trusted. It counts as no record, with a reason of its own.
	Damaged bool
	// Drifted says that Record.Drift is set.
	Drifted     bool
	Fingerprint Fingerprint
	Digest      OutputDigest  // of the last good run's output
	GoodUntil   int64         // Unix nanoseconds; 0: no end
	Took        time.Duration // of the last good run
	Generation  uint64
	// Output is the canonical encoding of the last good run's output, nil for
	// the empty one. It may be kept; it must not be changed.
	Output []byte
}

// Keep is the short form of a record. It encodes the output, so it is for
// stores and tests; a nil record gives the zero value.
func Keep(r *Record) Kept {
	if r == nil {
		return Kept{}
	}
	k := Kept{
		Status: r.Status, Drifted: r.Drift != "", Fingerprint: r.Fingerprint,
		Digest: r.Output.Digest(), Took: r.Took, Generation: r.Generation,
	}
	if !r.GoodUntil.IsZero() {
		k.GoodUntil = r.GoodUntil.UnixNano()
	}
	if len(r.Output) > 0 {
		k.Output = r.Output.Encode()
	}
	return k
}

// Good reports whether there is a last good run that nothing later put in
// doubt.
func (k *Kept) Good() bool { return k.Status == Done && !k.Damaged }

// Ran reports whether there ever was a good run whose output is known, even if
// a later attempt is pending or failed.
func (k *Kept) Ran() bool {
	return k.Status != 0 && !k.Damaged && k.Fingerprint != Fingerprint{}
}

// Change is one record to be written: Record nil removes what is kept.
type Change struct {
	Name   string
	Record *Record
}

// errOutput is returned for bytes that Output.Encode cannot have made.
var errOutput = errors.New("not an encoded output")

// DecodeOutput reverses Output.Encode; no bytes are the empty output. Bytes
// that are not canonical are refused.
func DecodeOutput(b []byte) (Output, error) {
	if len(b) == 0 {
		return nil, nil
	}
	n, b, ok := cutUint32(b)
	if !ok || uint64(n)*8 > uint64(len(b)) {
		return nil, errOutput
	}
	if n == 0 {
		if len(b) != 0 {
			return nil, errOutput
		}
		return nil, nil
	}
	o := make(Output, n)
	last := ""
	for i := range n {
		var k, v []byte
		if k, b, ok = cutBytes(b); !ok {
			return nil, errOutput
		}
		if v, b, ok = cutBytes(b); !ok {
			return nil, errOutput
		}
		label := string(k)
		if i > 0 && label <= last {
			return nil, errOutput
		}
		o[label], last = string(v), label
	}
	if len(b) != 0 {
		return nil, errOutput
	}
	return o, nil
}

func cutUint32(b []byte) (uint32, []byte, bool) {
	if len(b) < 4 {
		return 0, nil, false
	}
	return binary.BigEndian.Uint32(b), b[4:], true
}

func cutBytes(b []byte) (v, rest []byte, ok bool) {
	n, b, ok := cutUint32(b)
	if !ok || uint64(n) > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n], b[n:], true
}
