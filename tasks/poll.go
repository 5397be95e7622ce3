package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Poll intervals: quick at first, because most things that are waited for are
// there almost at once; never slower than half a second.
const (
	pollFirst = 50 * time.Millisecond
	pollMax   = 500 * time.Millisecond
)

// Final marks an answer that asking again cannot change; Poll stops with it.
type Final struct{ Err error }

func (f Final) Error() string { return f.Err.Error() }

// Unwrap returns the cause.
func (f Final) Unwrap() error { return f.Err }

// Poll asks until the answer is nil, Final, or the limit is reached. ask
// returns what it saw as its error; the last of them is in Poll's own, which is
// transient when time ran out, as a later attempt may see more.
func Poll(ctx context.Context, limit time.Duration, what string, ask func(ctx context.Context) error) error {
	ctx2, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for wait := pollFirst; ; wait = min(wait*3/2, pollMax) {
		err := ask(ctx2)
		if err == nil {
			return nil
		}
		if f, ok := errors.AsType[Final](err); ok {
			return fmt.Errorf("%s: %w", what, f.Err)
		}
		// An answer cut off by our own deadline tells less than the one before.
		if last == nil || ctx2.Err() == nil {
			last = err
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx2.Done():
			t.Stop()
			if ctx.Err() != nil {
				return fmt.Errorf("%s: %w; last seen: %w", what, context.Cause(ctx), last)
			}
			return Again("%s: not within %s; last seen: %w", what, limit, last)
		case <-t.C:
		}
	}
}
