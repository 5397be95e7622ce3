// Package state is what a lab remembers: rows of a few kinds, kept in memory and
// written to one log file.
//
// A change is a function run by [Store.Update]. All rows it touches are appended
// to the log as one line with a checksum and one write call, so a killed daemon
// leaves either the whole change or none of it. What the log grows is folded when
// the store is opened and when it has become much longer than what it says. The
// file is not synced at each change: a lab's machines do not survive the loss of
// the computer's power either, and the checksum then tells where the log ends.
//
// Three rules: rows handed out are never changed, [Edit] works on a copy; nothing
// slow happens inside Update; the store knows nothing of what rows mean.
package state
