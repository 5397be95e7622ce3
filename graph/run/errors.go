package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// StaleNeedError refuses a build with Only: the named task needs something that
// is stale and not named.
type StaleNeedError struct {
	Task, Need string
	Reason     string // why Need is stale
	More       int    // further such needs
}

func (e *StaleNeedError) Error() string {
	s := fmt.Sprintf("%s needs %s, which is stale (%s)", e.Task, e.Need, e.Reason)
	if e.More > 0 {
		s += fmt.Sprintf(", and %d more", e.More)
	}
	return s
}

// RefusedError refuses a build that keeps something others need, but that
// cannot be used: it has no record, or is not what its record says.
type RefusedError struct {
	Kept   string   // the task that is kept
	Flag   string   // such as "--keep-data"
	Reason string   // "no record", "drift: …"
	Needed []string // the selected tasks that need it directly
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("%s is kept by %s but cannot be used (%s); it is needed by %s",
		e.Kept, e.Flag, e.Reason, strings.Join(e.Needed, ", "))
}

// TaskError is the error of a task's attempt.
type TaskError struct {
	Name    string
	Attempt int // 0: before the first
	Err     error
}

func (e *TaskError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *TaskError) Unwrap() error { return e.Err }

// Class returns the class of an error: what its Class method says, else "bug":
// every error of the outside world says where it comes from. Work that was cut
// off, or took too long, was nearly always talking to a host.
func Class(err error) string {
	var c interface{ Class() string }
	switch {
	case errors.As(err, &c):
		return c.Class()
	case errors.Is(err, errInterrupted), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return "ssh"
	}
	return "bug"
}

// transient reports whether an error says that trying again can help.
func transient(err error) bool {
	var t interface{ Transient() bool }
	return errors.As(err, &t) && t.Transient()
}
