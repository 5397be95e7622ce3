package run

import (
	"context"
	"runtime/debug"
	"time"

	"hk/graph"
)

// defaultAttempts is how often a task is tried if its errors may pass.
const defaultAttempts = 3

// backoff waits 1 s, 2 s, 4 s and so on up to 30 s. There is no jitter: tasks
// of one build are few, and what must not be asked too often has a token bucket
// of its own in remote.
func backoff(attempt int) time.Duration {
	return min(30*time.Second, time.Second<<min(attempt-1, 5))
}

// do calls Work.Do and turns a panic into an error of this task alone.
func do(ctx context.Context, w Work, t graph.Task, name string, in Input, a Attempt) (res Result, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &panicError{what: name, value: r, stack: debug.Stack()}
		}
		if err != nil {
			err = &TaskError{Name: name, Attempt: a.Number, Err: err}
		}
	}()
	return w.Do(ctx, t, in, a)
}
