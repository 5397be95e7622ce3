package run

import (
	"fmt"

	"hk/graph"
)

// State is where a task stands in a build.
type State uint8

const (
	// Waiting: something it needs is not finished.
	Waiting State = iota
	// Deciding: everything it needs is finished; it waits for its decision.
	Deciding
	// Looking: its inputs equal the record; Work.Look is on its way.
	Looking
	// Queued: it is stale and waits for a job, a place in its pools or the slot
	// of its guard.
	Queued
	// Starting: it has its places; its pending record is being made durable.
	Starting
	// Running: the pending record is durable and Work.Do is called.
	Running
	// Backoff: an attempt failed in a way that may pass; it waits to be queued
	// again. It keeps the slot of its guard and no other place.
	Backoff
	// Recording: Work.Do came back; the record of that is being made durable.
	// Those that need it were already told.
	Recording

	// Ran: it was run and verified, and the record is durable. Final, as are
	// those below.
	Ran
	// Fresh: its inputs equal the record and nothing seen speaks against it.
	Fresh
	// Spared: an asset the user keeps; its recorded output counts.
	Spared
	// Unverified: nobody could look; it keeps its record, whose output counts.
	Unverified
	// Failed: it was tried and did not succeed, or its inputs could not be made.
	Failed
	// Blocked: it was not tried, because of what it needs, of its guard, or
	// because the build was stopped.
	Blocked

	states
)

var stateNames = [states]string{
	"waiting", "deciding", "looking", "queued", "starting", "running", "backoff", "recording",
	"ran", "fresh", "spared", "unverified", "failed", "blocked",
}

// String is the state's word in events and drawings.
func (s State) String() string { return stateNames[s] }

// Final reports whether the task is finished.
func (s State) Final() bool { return s >= Ran }

// Good reports whether the task has a valid record that others may use.
func (s State) Good() bool { return s >= Ran && s <= Unverified }

// set is the only place where a task's state changes. It keeps the counters in
// step and refuses moves that make no sense.
func (s *sched) set(t graph.Task, to State) {
	from := s.state[t]
	if !allowed(from, to) {
		panic(fmt.Sprintf("bug: %s goes from %s to %s", s.g.Name(t), from, to))
	}
	s.count[from]--
	s.count[to]++
	s.state[t] = to
}

// allowed is the picture of a task's life:
//
//	Waiting -> Deciding -> Looking -> Queued -> Starting -> Running -> Recording -> Ran
//	              |           |         ^ |        |           | ^
//	              +-----------+---------+ |        |           v |
//	              |           |           |        |         Backoff
//	              v           v           v        v
//	        Fresh, Spared, Unverified, Failed, Blocked
func allowed(from, to State) bool {
	switch to {
	case Deciding:
		return from == Waiting
	case Looking:
		return from == Deciding
	case Queued:
		return from == Deciding || from == Looking || from == Backoff
	case Starting:
		return from == Queued
	case Running:
		return from == Starting
	case Backoff, Recording:
		return from == Running
	case Ran:
		return from == Recording
	case Fresh, Spared, Unverified:
		return from == Deciding || from == Looking
	case Failed:
		return !from.Final() && from != Waiting
	case Blocked:
		return from < Running
	default:
		return false
	}
}
