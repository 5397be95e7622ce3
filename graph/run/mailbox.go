package run

import "sync"

// mailbox takes messages for the goroutine that owns the build. Posting never
// blocks: a Recorder may call back from inside Commit, and a task that comes
// back while the build is busy must not wait.
type mailbox struct {
	mu   sync.Mutex
	list []any
	wake chan struct{} // holds one token while list is not empty
}

func newMailbox() *mailbox { return &mailbox{wake: make(chan struct{}, 1)} }

func (m *mailbox) post(msg any) {
	m.mu.Lock()
	m.list = append(m.list, msg)
	m.mu.Unlock()
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

func (m *mailbox) take() []any {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.list
	m.list = nil
	return list
}
