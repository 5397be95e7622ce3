package fp

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// MaxOutput is the size limit of an encoded Output in bytes (ENGINE, outputs).
// A larger value, such as the peers of the whole mesh, is stored once and
// addressed by its digest.
const MaxOutput = 4 << 10

// Output is the contract a task declares for those that need it: labelled
// values, no secrets, nothing that differs between two equal runs. A nil
// Output is the empty contract; its digest is a constant.
type Output map[string]string

// Encode is the canonical encoding, labels sorted, everything length-prefixed.
func (o Output) Encode() []byte {
	buf := binary.BigEndian.AppendUint32(nil, uint32(len(o)))
	for _, k := range slices.Sorted(maps.Keys(o)) {
		buf = appendString(buf, k)
		buf = appendString(buf, o[k])
	}
	return buf
}

// Combine is the digest of the outputs of several tasks of one kind, in host
// order; of one task it is that task's digest.
func Combine(digests []OutputDigest) OutputDigest {
	if len(digests) == 1 {
		return digests[0]
	}
	buf := binary.BigEndian.AppendUint32(nil, uint32(len(digests)))
	for i := range digests {
		buf = append(buf, digests[i][:]...)
	}
	return sha256.Sum256(buf)
}

// Digest identifies the output.
func (o Output) Digest() OutputDigest { return sha256.Sum256(o.Encode()) }

// Check refuses an output that is larger than MaxOutput.
func (o Output) Check() error {
	if n := len(o.Encode()); n > MaxOutput {
		return fmt.Errorf("output has %d bytes, more than %d", n, MaxOutput)
	}
	return nil
}
