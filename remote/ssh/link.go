package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"hk/remote"
)

// link is one live connection with hk's program running at its other end.
type link struct {
	client *ssh.Client
	agent  *agent
}

// connect makes a link that accepts the keys in t; timeout is that of the TCP
// connect.
func (p *Pool) connect(ctx context.Context, c *remote.Contact, t *trust, timeout time.Duration) (*link, error) {
	if err := p.dials.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	client, err := p.login(ctx, c, t, timeout)
	p.dials.Release(1)
	if err != nil {
		return nil, err
	}
	l := &link{client: client, agent: newAgent()}
	if err := p.startAgent(ctx, l, p.user(c)); err != nil {
		_ = client.Close()
		return nil, err
	}
	if !p.spawn(func() {
		p.keepAlive(client)
		l.agent.fail(errors.New("the SSH connection ended"))
	}) {
		_ = client.Close()
		return nil, errClosed
	}
	return l, nil
}

func (p *Pool) login(ctx context.Context, c *remote.Contact, t *trust, timeout time.Duration) (*ssh.Client, error) {
	addr := p.address(c)
	conn, err := p.dial(ctx, addr, timeout)
	if err != nil {
		return nil, err
	}
	return p.handshake(ctx, conn, addr, p.user(c), t)
}

// startAgent runs hk's program in the connection's only session; that keeps hk
// far from sshd's limit of ten.
func (p *Pool) startAgent(ctx context.Context, l *link, user string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*p.o.ConnectTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = l.client.Close() })
	defer stop()
	s, err := l.client.NewSession()
	if err != nil {
		return fmt.Errorf("opening a session: %w", err)
	}
	stdin, err := s.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := s.StdoutPipe()
	if err != nil {
		return err
	}
	stderr := new(lastBytes)
	s.Stderr = stderr
	cmd := p.o.start
	if cmd == "" {
		cmd = "exec /usr/bin/env python3 -I -S -u -c '" + boot + "'"
		if user != "root" {
			cmd = "exec sudo -n python3 -I -S -u -c '" + boot + "'"
		}
	}
	if err := s.Start(cmd); err != nil {
		return fmt.Errorf("starting hk's program: %w", err)
	}
	err = l.agent.start(ctx, stdin, stdout)
	if err == nil {
		go func() { l.agent.fail(sessionEnd(s.Wait(), stderr)) }()
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("starting hk's program: %w", ctx.Err())
	}
	return fmt.Errorf("starting hk's program: %w", sessionEnd(s.Wait(), stderr))
}

// sessionEnd words why hk's program is not running.
func sessionEnd(err error, stderr *lastBytes) error {
	said := stderr.String()
	if exit, ok := errors.AsType[*ssh.ExitError](err); ok {
		if exit.ExitStatus() == 127 || strings.Contains(said, "python3: not found") ||
			strings.Contains(said, "No such file or directory") {
			return fmt.Errorf("%w: the host has no python3 (apt-get install python3-minimal): %s", errProgram, said)
		}
		return fmt.Errorf("%w: exit code %d: %s", errProgram, exit.ExitStatus(), said)
	}
	if err == nil {
		return errors.New("hk's program ended")
	}
	return err
}

// errProgram is wrapped where the host runs, but not hk's program: final.
var errProgram = errors.New("hk's program did not run")

func (l *link) dead() bool {
	select {
	case <-l.agent.dead:
		return true
	default:
		return false
	}
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct {
	mu sync.Mutex
	b  []byte
}

const lastBytesKept = 2000

// Write never fails.
func (l *lastBytes) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, p...)
	if n := len(l.b) - lastBytesKept; n > 0 {
		l.b = l.b[n:]
	}
	return len(p), nil
}

func (l *lastBytes) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(bytes.TrimSpace(l.b))
}
