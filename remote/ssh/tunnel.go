package ssh

import (
	"net"
	"os"
	"sync"
	"time"
)

// tunnel is a connection through a host. An SSH channel knows no deadlines;
// here one that passes closes the channel, which is enough for clients: TLS,
// HTTP and gRPC give a connection up after a missed deadline anyway.
type tunnel struct {
	net.Conn
	mu          sync.Mutex
	read, write *time.Timer
	late        bool
}

func newTunnel(c net.Conn) *tunnel { return &tunnel{Conn: c} }

func (t *tunnel) set(timer **time.Timer, at time.Time) {
	if *timer != nil {
		(*timer).Stop()
		*timer = nil
	}
	if at.IsZero() {
		return
	}
	*timer = time.AfterFunc(max(0, time.Until(at)), func() {
		t.mu.Lock()
		t.late = true
		t.mu.Unlock()
		_ = t.Conn.Close()
	})
}

// SetDeadline sets both deadlines.
func (t *tunnel) SetDeadline(at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(&t.read, at)
	t.set(&t.write, at)
	return nil
}

// SetReadDeadline closes the connection at that time.
func (t *tunnel) SetReadDeadline(at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(&t.read, at)
	return nil
}

// SetWriteDeadline closes the connection at that time.
func (t *tunnel) SetWriteDeadline(at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.set(&t.write, at)
	return nil
}

func (t *tunnel) Read(p []byte) (int, error) {
	n, err := t.Conn.Read(p)
	return n, t.word(err)
}

func (t *tunnel) Write(p []byte) (int, error) {
	n, err := t.Conn.Write(p)
	return n, t.word(err)
}

func (t *tunnel) word(err error) error {
	if err == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.late {
		return os.ErrDeadlineExceeded
	}
	return err
}

// Close stops the timers and closes the channel.
func (t *tunnel) Close() error {
	t.mu.Lock()
	t.set(&t.read, time.Time{})
	t.set(&t.write, time.Time{})
	t.mu.Unlock()
	return t.Conn.Close()
}
