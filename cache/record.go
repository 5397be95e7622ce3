package cache

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"time"

	"hk/cache/fp"
)

// A record is one binary value under its task's name. What every build reads
// lies in front at fixed places, so that a no-op decodes nothing:
//
//	 0  version, status, flags, zero       4 bytes
//	 4  CRC-32C of everything else         4
//	 8  fingerprint                       32
//	40  output digest                     32
//	72  good until, started, took          3 × 8, nanoseconds; 0 = none
//	96  generation                         8
//	104 length of the output               4
//	108 output, canonical encoding
//	    name, parts, observed, drift, run ID, reason, error, attempt
//
// The checksum makes a flipped byte in the value a missing record. The name
// inside makes the same of a flipped byte in the key, and tells whose record it
// was. All numbers are little-endian; strings have a uvarint length.
const (
	recordVersion = 1
	hotLen        = 108
	flagDrift     = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errDamaged is every way in which bytes are not a record.
var errDamaged = errors.New("record damaged")

func checksum(v []byte) uint32 {
	return crc32.Update(crc32.Checksum(v[:4], castagnoli), castagnoli, v[8:])
}

func encodeRecord(name string, r *fp.Record) []byte {
	out := []byte(nil)
	if len(r.Output) > 0 {
		out = r.Output.Encode()
	}
	v := make([]byte, hotLen, hotLen+len(out)+len(name)+256)
	v[0], v[1] = recordVersion, byte(r.Status)
	if r.Drift != "" {
		v[2] = flagDrift
	}
	digest := r.Output.Digest()
	copy(v[8:], r.Fingerprint[:])
	copy(v[40:], digest[:])
	le := binary.LittleEndian
	le.PutUint64(v[72:], nanos(r.GoodUntil))
	le.PutUint64(v[80:], nanos(r.Started))
	le.PutUint64(v[88:], uint64(r.Took))
	le.PutUint64(v[96:], r.Generation)
	le.PutUint32(v[104:], uint32(len(out)))
	v = append(v, out...)
	v = appendString(v, name)
	v = binary.AppendUvarint(v, uint64(len(r.Parts)))
	for i := range r.Parts {
		v = appendString(v, r.Parts[i].Label)
		v = append(v, r.Parts[i].Digest[:]...)
		v = appendString(v, r.Parts[i].Text)
	}
	v = binary.AppendUvarint(v, uint64(len(r.Observed)))
	for _, k := range slices.Sorted(maps.Keys(r.Observed)) {
		v = appendString(appendString(v, k), r.Observed[k])
	}
	for _, s := range []string{r.Drift, r.RunID, r.Reason, r.Error} {
		v = appendString(v, s)
	}
	v = binary.AppendUvarint(v, uint64(max(0, r.Attempt)))
	le.PutUint32(v[4:], checksum(v))
	return v
}

func nanos(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixNano())
}

func moment(n uint64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(n)).UTC()
}

func appendString(v []byte, s string) []byte {
	return append(binary.AppendUvarint(v, uint64(len(s))), s...)
}

// decodeKept reads the front of a record and checks all of it. name is the one
// inside; it differs from the key if that was damaged. The result refers to v.
func decodeKept(v []byte) (name []byte, k fp.Kept, err error) {
	le := binary.LittleEndian
	if len(v) < hotLen || v[0] != recordVersion || le.Uint32(v[4:]) != checksum(v) {
		return nil, fp.Kept{}, errDamaged
	}
	k.Status, k.Drifted = fp.Status(v[1]), v[2]&flagDrift != 0
	copy(k.Fingerprint[:], v[8:])
	copy(k.Digest[:], v[40:])
	k.GoodUntil = int64(le.Uint64(v[72:]))
	k.Took = time.Duration(le.Uint64(v[88:]))
	k.Generation = le.Uint64(v[96:])
	r := reader{rest: v[hotLen:]}
	if out := r.bytes(int(le.Uint32(v[104:]))); len(out) > 0 {
		k.Output = out
	}
	name = r.string()
	if r.bad || k.Status < fp.Pending || k.Status > fp.Failed {
		return nil, fp.Kept{}, errDamaged
	}
	return name, k, nil
}

// decodeRecord reads all of a record kept under a name.
func decodeRecord(name string, v []byte) (*fp.Record, error) {
	inside, k, err := decodeKept(v)
	if err != nil {
		return nil, err
	}
	if string(inside) != name {
		return nil, fmt.Errorf("%w: it is that of %s", errDamaged, inside)
	}
	out, err := fp.DecodeOutput(k.Output)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	le := binary.LittleEndian
	rec := &fp.Record{
		Status: k.Status, Fingerprint: k.Fingerprint, Output: out, GoodUntil: moment(le.Uint64(v[72:])),
		Started: moment(le.Uint64(v[80:])), Took: k.Took, Generation: k.Generation,
	}
	r := reader{rest: v[hotLen+len(k.Output):]}
	r.string() // the name
	for range r.count(10) {
		p := fp.Part{Label: string(r.string())}
		copy(p.Digest[:], r.bytes(8))
		p.Text = string(r.string())
		rec.Parts = append(rec.Parts, p)
	}
	if n := r.count(2); n > 0 {
		rec.Observed = make(map[string]string, n)
		for range n {
			key := string(r.string())
			rec.Observed[key] = string(r.string())
		}
	}
	for _, s := range []*string{&rec.Drift, &rec.RunID, &rec.Reason, &rec.Error} {
		*s = string(r.string())
	}
	rec.Attempt = int(r.uvarint())
	if r.bad || len(r.rest) > 0 {
		return nil, errDamaged
	}
	return rec, nil
}

// reader takes values off the front of a slice. After the first that is not
// there everything is empty and bad is set.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) uvarint() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

func (r *reader) bytes(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.bad, r.rest = true, nil
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) string() []byte {
	n := r.uvarint()
	if n > uint64(len(r.rest)) {
		r.bad, r.rest = true, nil
		return nil
	}
	return r.bytes(int(n))
}

// count reads the length of a list whose elements have at least so many bytes.
func (r *reader) count(least int) int {
	n := r.uvarint()
	if n > uint64(len(r.rest)/least) {
		r.bad, r.rest = true, nil
		return 0
	}
	return int(n)
}

// Values beside the records carry a checksum over key and value in front.
func encodeValue(key string, value []byte) []byte {
	v := make([]byte, 4, 4+len(value))
	v = append(v, value...)
	binary.LittleEndian.PutUint32(v, valueSum([]byte(key), value))
	return v
}

// decodeValue returns the value, referring to v; false if it is damaged.
func decodeValue(key, v []byte) ([]byte, bool) {
	if len(v) < 4 || binary.LittleEndian.Uint32(v) != valueSum(key, v[4:]) {
		return nil, false
	}
	return v[4:], true
}

func valueSum(key, value []byte) uint32 {
	return crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
}
