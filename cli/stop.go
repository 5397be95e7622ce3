package cli

import (
	"context"
	"errors"
	"os"
	"sync"
)

// Three stages of an interrupt. While hk only looks, the first signal ends it
// at once. While tasks run, the first starts nothing new and lets running tasks
// reach a safe point, the second cancels them, and the third leaves hk as it
// is: records and remote units are made for that.

// errInterrupted is the cause of a context that a signal ended.
var errInterrupted = errors.New("interrupted")

// stopper gives a command's signals their meaning.
type stopper struct {
	cancel context.CancelCauseFunc
	tell   func(string)

	mu     sync.Mutex
	stages chan struct{} // of the build that runs; nil while there is none
	count  int
}

// newStopper watches the signals until done.
func newStopper(ctx context.Context, signals <-chan os.Signal, tell func(string)) (context.Context, *stopper, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	s := &stopper{cancel: cancel, tell: tell}
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-signals:
				s.signal()
			case <-done:
				return
			}
		}
	}()
	return ctx, s, func() { close(done); cancel(nil) }
}

func (s *stopper) signal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count++
	switch {
	case s.count >= 3:
		os.Exit(ExitInterrupted)
	case s.stages == nil:
		s.cancel(errInterrupted)
		s.count = 2 // the next one leaves
	case s.count == 1:
		s.tell("interrupted: nothing new is started; running tasks reach a safe point (again to cancel them)")
		s.stages <- struct{}{}
	default:
		s.tell("interrupted again: running tasks are cancelled (once more to leave at once)")
		s.stages <- struct{}{}
	}
}

// building is told when tasks begin to run; its channel is the engine's.
func (s *stopper) building() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stages = make(chan struct{}, 2)
	return s.stages
}
