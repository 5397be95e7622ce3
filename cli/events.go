package cli

import (
	"time"

	"hk/cli/ui"
	"hk/graph/run"
)

// sink turns the engine's events into those of the contract and passes them to
// the views.
type sink struct {
	view    ui.View
	started *bool // set once a task runs; read after the engine has ended
}

// Event implements run.Sink.
func (s *sink) Event(e run.Event) {
	switch e := e.(type) {
	case run.TaskStarted:
		*s.started = true
		s.view.Event(ui.TaskStarted{Task: e.Name, Attempt: e.Attempt, Reason: e.Reason, Host: hostOfTask(e.Name)})
	case run.TaskRetry:
		s.view.Event(ui.TaskRetry{
			Task: e.Name, Attempt: e.Attempt, Error: ui.TaskError{Class: e.Class, Message: e.Error}, WaitMS: e.Wait.Milliseconds(),
		})
	case run.TaskFinished:
		s.view.Event(finished(e))
	case run.LogLine:
		s.view.Event(ui.TaskLog{Task: e.Name, Line: e.Line})
	case run.Progress:
		// The views count for themselves.
	}
}

func finished(e run.TaskFinished) ui.TaskFinished {
	out := ui.TaskFinished{
		RunID: e.RunID, Task: e.Name, Phase: e.Phase, Host: e.Host, Status: e.Status.String(), Reason: e.Reason,
		Attempt: e.Attempt, DurationMS: e.Duration.Milliseconds(),
	}
	if e.Error != "" {
		out.Error = &ui.TaskError{Class: e.Class, Message: e.Error}
	}
	return out
}

// clock is the computer's.
type clock struct{}

// Now implements run.Clock.
func (clock) Now() time.Time { return time.Now() }

// AfterFunc implements run.Clock.
func (clock) AfterFunc(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop }
