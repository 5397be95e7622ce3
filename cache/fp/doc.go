// Package fp is the vocabulary of identity: the labelled parts of what goes
// into a task, their canonical encoding, the Fingerprint over them, the Output
// a task declares for others and its OutputDigest, and the Record of a good run.
//
// It knows the standard library only, so that the scheduler, the tasks and the
// store can all speak of the same values without knowing each other.
//
// Its three rules: two different inputs never encode to the same bytes; the
// order in which parts were added never matters; a secret enters by its key ID
// or an HMAC, never by its text or a plain hash of it.
package fp
