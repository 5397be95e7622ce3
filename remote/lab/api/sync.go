package api

import "sync"

// broadcast wakes all who wait, each time it rings.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

func newBroadcast() *broadcast { return &broadcast{ch: make(chan struct{})} }

// wait returns a channel that is closed by the next ring.
func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ch
}

func (b *broadcast) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.ch)
	b.ch = make(chan struct{})
}

// serial runs a job that reads all state and brings the world to it: one run at a
// time, and callers that come while one waits share that one's run. All jobs given to
// one serial do the same.
type serial struct {
	mu   sync.Mutex
	next *serialRun
	busy bool
}

type serialRun struct {
	job  func() error
	done chan struct{}
	err  error
}

// do runs job so that it begins after do was called.
func (s *serial) do(job func() error) error {
	s.mu.Lock()
	if s.next != nil {
		run := s.next
		s.mu.Unlock()
		<-run.done
		return run.err
	}
	run := &serialRun{job: job, done: make(chan struct{})}
	if s.busy {
		s.next = run
		s.mu.Unlock()
		<-run.done
		return run.err
	}
	s.busy = true
	s.mu.Unlock()
	for mine := run; run != nil; {
		run.err = run.job()
		close(run.done)
		s.mu.Lock()
		run = s.next
		s.next = nil
		if run == nil {
			s.busy = false
			s.mu.Unlock()
			return mine.err
		}
		s.mu.Unlock()
	}
	panic("bug: unreachable")
}

// serials is a serial per ID.
type serials struct {
	mu sync.Mutex
	m  map[int64]*serial
}

func (s *serials) of(id int64) *serial {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.m == nil {
		s.m = map[int64]*serial{}
	}
	if s.m[id] == nil {
		s.m[id] = &serial{}
	}
	return s.m[id]
}

// locks is a mutex per ID.
type locks struct {
	mu sync.Mutex
	m  map[int64]*sync.Mutex
}

// of locks an ID and returns what unlocks it.
func (l *locks) of(id int64) func() {
	l.mu.Lock()
	if l.m == nil {
		l.m = map[int64]*sync.Mutex{}
	}
	if l.m[id] == nil {
		l.m[id] = &sync.Mutex{}
	}
	m := l.m[id]
	l.mu.Unlock()
	m.Lock()
	return m.Unlock
}
