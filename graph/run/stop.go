package run

import (
	"errors"
	"maps"
	"slices"
)

// errInterrupted is the cause of a context that the second interrupt ended.
var errInterrupted = errors.New("interrupted")

// interrupted takes a wish to stop. First: start nothing new and let what runs
// reach its end, which is a safe point by the contract of Work.Do. Second: cut
// off. A task cut off keeps its pending record, so the next build knows.
func (s *sched) interrupted() {
	s.stage++
	switch s.stage {
	case 1:
		s.stop(errInterrupted.Error())
	case 2:
		s.cancelAll(errInterrupted)
	}
}

// stop starts nothing new from here on. Tasks between two attempts end now.
func (s *sched) stop(why string) {
	if s.stopWhy != "" {
		return
	}
	s.stopWhy = why
	s.noLooks()
	for _, t := range slices.Sorted(maps.Keys(s.jobs)) {
		if j := s.jobs[t]; s.state[t] == Backoff {
			j.stop()
			s.recordFailure(t, j, j.last)
			s.finish(t, Failed, j.reason, j.last)
		}
	}
}

// fail ends the build as a whole: the store refuses a write or cannot be read,
// or the context ended.
func (s *sched) fail(err error) {
	if s.err == nil {
		s.err = err
	}
	s.stop(err.Error())
}

func (s *sched) cancelAll(cause error) { s.cancel(cause) }

// cutOff reports whether running tasks were told to stop at once.
func (s *sched) cutOff() bool { return s.doCtx.Err() != nil }
