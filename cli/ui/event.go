package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// EventVersion is the "v" of every event line. Fields are only ever added;
// taking one away or changing its meaning raises it.
const EventVersion = 1

// Event is something that happened in a build. The JSON fields of each are a
// contract (DESIGN §7): absent values are null, never missing.
type Event interface{ event() string }

// BuildStarted is the first event once it is known what is to be built.
type BuildStarted struct {
	Cluster string  `json:"cluster"`
	UID     *string `json:"uid"`
	RunID   string  `json:"run_id"`
	// Selected is the number of tasks the build is about.
	Selected int `json:"-"`
}

// TaskStarted says that a task runs now, and why.
type TaskStarted struct {
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	Reason  string `json:"reason"`
	Host    string `json:"-"`
}

// TaskRetry says that an attempt failed in a way that another may not.
type TaskRetry struct {
	Task    string    `json:"task"`
	Attempt int       `json:"attempt"`
	Error   TaskError `json:"error"`
	WaitMS  int64     `json:"wait_ms"`
}

// TaskFinished says what became of a task.
type TaskFinished struct {
	RunID      string     `json:"run_id"`
	Task       string     `json:"task"`
	Phase      string     `json:"phase"`
	Host       string     `json:"host"`
	Status     string     `json:"status"` // ran, spared, unverified, failed, blocked, fresh
	Reason     string     `json:"reason"`
	Attempt    int        `json:"attempt"`
	DurationMS int64      `json:"duration_ms"`
	Error      *TaskError `json:"error"`
}

// TaskError is the error of a task.
type TaskError struct {
	Class   string `json:"class"` // config, cloud, ssh, etcd, kube, state, bug
	Message string `json:"message"`
}

// TaskLog is one line of a task's output; it goes to views and logs only.
type TaskLog struct {
	Task string `json:"task"`
	Line string `json:"line"`
}

// KeyCreated says that key material was made: a name is created once in a
// cluster's life.
type KeyCreated struct {
	Name  string `json:"name"`
	KeyID string `json:"key_id"`
}

// Note is a line about the build as a whole, such as what is being looked at;
// it goes to views and logs only.
type Note struct {
	Text string `json:"text"`
}

// BuildFinished is the last event, always.
type BuildFinished struct {
	Cluster        string      `json:"cluster"`
	RunID          *string     `json:"run_id"`
	Ran            int         `json:"ran"`
	Fresh          int         `json:"fresh"`
	Spared         int         `json:"spared"`
	Unverified     int         `json:"unverified"`
	Failed         int         `json:"failed"`
	Blocked        int         `json:"blocked"`
	WallMS         int64       `json:"wall_ms"`
	CriticalPathMS int64       `json:"critical_path_ms"`
	APICalls       int64       `json:"api_calls"`
	Exit           int         `json:"exit"`
	Error          *BuildError `json:"error"`
}

// BuildError is the error of a build.
type BuildError struct {
	Class   string  `json:"class"`
	Message string  `json:"message"`
	Hint    *string `json:"hint"`
}

func (BuildStarted) event() string  { return "build_started" }
func (TaskStarted) event() string   { return "task_started" }
func (TaskRetry) event() string     { return "task_retry" }
func (TaskFinished) event() string  { return "task_finished" }
func (TaskLog) event() string       { return "task_log" }
func (KeyCreated) event() string    { return "key_created" }
func (Note) event() string          { return "note" }
func (BuildFinished) event() string { return "build_finished" }

type eventHead struct {
	V     int    `json:"v"`
	Event string `json:"event"`
	Time  string `json:"time"`
}

// EncodeEvent is the event's JSON line, without the newline.
func EncodeEvent(e Event, at time.Time) []byte {
	h := eventHead{V: EventVersion, Event: e.event(), Time: at.UTC().Format("2006-01-02T15:04:05.000Z07:00")}
	var v any
	switch e := e.(type) {
	case BuildStarted:
		v = struct {
			eventHead
			BuildStarted
		}{h, e}
	case TaskStarted:
		v = struct {
			eventHead
			TaskStarted
		}{h, e}
	case TaskRetry:
		v = struct {
			eventHead
			TaskRetry
		}{h, e}
	case TaskFinished:
		v = struct {
			eventHead
			TaskFinished
		}{h, e}
	case TaskLog:
		v = struct {
			eventHead
			TaskLog
		}{h, e}
	case KeyCreated:
		v = struct {
			eventHead
			KeyCreated
		}{h, e}
	case Note:
		v = struct {
			eventHead
			Note
		}{h, e}
	case BuildFinished:
		v = struct {
			eventHead
			BuildFinished
		}{h, e}
	default:
		panic(fmt.Sprintf("bug: event %T has no JSON form", e))
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // it is read by programs and people, not by browsers
	if err := enc.Encode(v); err != nil {
		panic("bug: encoding an event: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
