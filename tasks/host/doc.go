// Package host is what several phases share about machines: pinned artifacts
// as files, units that remember what they were started with, the names of the
// programs and places that more than one phase touches, and resolving versions
// into the lock file.
//
// Its rules: everything here is pure but [ResolveLock]; a path that two phases
// know is written down here once; nothing here decides when something runs.
package host
