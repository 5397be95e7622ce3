// Package cache remembers: the records of tasks, small values beside them, and
// who is building right now. It knows the vocabulary of cache/fp, bytes, files
// and locks; it never knows graphs or tasks.
//
// Three rules:
//
//   - It may be lost at any time, which costs time and nothing else. Whatever
//     cannot be trusted counts as missing, with a reason, and never as an
//     error of the build.
//   - The file is open in short bursts only. bbolt locks the whole file, and a
//     build that held it for minutes would lock out every `hk status`.
//   - Reading writes nothing: no file is created, no directory needed.
//
// Start reading at store.go (the contract), then record.go (the bytes), bolt.go
// (the bursts), commit.go (group commit) and lock.go (the run lock).
package cache
