package run

import (
	"time"

	"hk/graph"
)

// Event is something that happened in a build. The set of events is closed;
// their fields are those of DESIGN §7.
type Event interface{ event() }

// TaskStarted: the pending record is durable and an attempt begins.
type TaskStarted struct {
	Task    graph.Task
	Name    string
	Attempt int // from 1
	Reason  string
	At      time.Time
	// Expected is how long it took last time; 0 if unknown.
	Expected time.Duration
}

// TaskRetry: an attempt failed in a way that may pass; another follows.
type TaskRetry struct {
	Task    graph.Task
	Name    string
	Attempt int // the one that failed
	Class   string
	Error   string
	Wait    time.Duration
}

// TaskFinished: the task has its final state, and the record of it is durable.
type TaskFinished struct {
	RunID    string
	Task     graph.Task
	Name     string
	Phase    string
	Host     string // "" for cluster tasks
	Status   State  // Ran, Fresh, Spared, Unverified, Failed or Blocked
	Reason   string
	Attempt  int // 0 if it never started
	Duration time.Duration
	Class    string // of the error
	Error    string // "" if none
	// Err is the error as it was returned; its text is Error.
	Err error
}

// LogLine is the last line a running task printed.
type LogLine struct {
	Task graph.Task
	Name string
	Line string
}

// Progress is where the build stands. Remaining is the recorded duration of the
// longest chain still ahead, 0 if unknown.
type Progress struct {
	Selected, Finished, Running, Waiting int
	Remaining                            time.Duration
}

func (TaskStarted) event()  {}
func (TaskRetry) event()    {}
func (TaskFinished) event() {}
func (LogLine) event()      {}
func (Progress) event()     {}
