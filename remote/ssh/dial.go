package ssh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	sshagent "golang.org/x/crypto/ssh/agent"

	"hk/remote"
)

// errAuth is wrapped where the host refused every key: final, unlike a host
// that does not answer.
var errAuth = errors.New("no key of ours was accepted")

// trust says which host keys are accepted and remembers which was shown.
type trust struct {
	final     ssh.PublicKey
	throwaway ssh.PublicKey // nil where only the final key is good

	mu    sync.Mutex
	shown ssh.PublicKey
}

func (t *trust) check(_ string, _ net.Addr, key ssh.PublicKey) error {
	t.mu.Lock()
	t.shown = key
	t.mu.Unlock()
	if sameKey(key, t.final) || sameKey(key, t.throwaway) {
		return nil
	}
	return fmt.Errorf("%w: it shows %s, pinned is %s", remote.ErrHostKey,
		ssh.FingerprintSHA256(key), ssh.FingerprintSHA256(t.final))
}

func (t *trust) showed(key ssh.PublicKey) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return sameKey(t.shown, key)
}

func sameKey(a, b ssh.PublicKey) bool {
	return a != nil && b != nil && bytes.Equal(a.Marshal(), b.Marshal())
}

// algorithms limits the handshake to the types of the pinned keys: the library
// would prefer a type that the host has too but that nobody pinned
// (golang/go#29286).
func (t *trust) algorithms() []string {
	var out []string
	for _, k := range []ssh.PublicKey{t.final, t.throwaway} {
		if k == nil {
			continue
		}
		names := []string{k.Type()}
		if k.Type() == ssh.KeyAlgoRSA {
			names = []string{ssh.KeyAlgoRSASHA512, ssh.KeyAlgoRSASHA256}
		}
		for _, n := range names {
			if !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	return out
}

// parseKey reads a key in authorized_keys form.
func parseKey(text string) (ssh.PublicKey, error) {
	k, _, _, _, err := ssh.ParseAuthorizedKey([]byte(text))
	if err != nil {
		return nil, fmt.Errorf("reading a host key: %w", err)
	}
	return k, nil
}

// auth offers the keys the user named first and an agent's after them. Both go
// into one method, since the library tries each method once.
func (p *Pool) auth() []ssh.AuthMethod {
	return []ssh.AuthMethod{ssh.PublicKeysCallback(func() ([]ssh.Signer, error) {
		out := slices.Clone(p.o.Signers)
		if p.o.AgentSocket == "" {
			return out, nil
		}
		conn, err := p.agentConn()
		if err != nil {
			if len(out) > 0 {
				return out, nil
			}
			return nil, err
		}
		more, err := sshagent.NewClient(conn).Signers()
		if err != nil && len(out) == 0 {
			return nil, fmt.Errorf("asking the ssh agent: %w", err)
		}
		return append(out, more...), nil
	})}
}

// agentConn returns the one connection to the user's agent, which signs during
// handshakes and so stays open.
func (p *Pool) agentConn() (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.keys != nil {
		return p.keys, nil
	}
	conn, err := (&net.Dialer{Timeout: 5 * time.Second}).DialContext(p.ctx, "unix", p.o.AgentSocket)
	if err != nil {
		return nil, fmt.Errorf("reaching the ssh agent: %w", err)
	}
	p.keys = conn
	return conn, nil
}

// dial makes a TCP connection, through the bastion if there is one.
func (p *Pool) dial(ctx context.Context, addr string, timeout time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if p.o.Bastion == nil {
		return p.o.dial(ctx, "tcp", addr)
	}
	b, err := p.jump(ctx)
	if err != nil {
		return nil, fmt.Errorf("bastion %s: %w", p.o.Bastion.Addr, err)
	}
	return b.DialContext(ctx, "tcp", addr)
}

// jump returns the kept connection to the bastion.
func (p *Pool) jump(ctx context.Context) (*ssh.Client, error) {
	p.jumpMu.Lock()
	defer p.jumpMu.Unlock()
	if p.jumpClient != nil {
		return p.jumpClient, nil
	}
	key, err := parseKey(p.o.Bastion.HostKey)
	if err != nil {
		return nil, err
	}
	conn, err := p.o.dial(ctx, "tcp", p.o.Bastion.Addr)
	if err != nil {
		return nil, err
	}
	user := p.o.Bastion.User
	if user == "" {
		user = p.o.User
	}
	client, err := p.handshake(ctx, conn, p.o.Bastion.Addr, user, &trust{final: key})
	if err != nil {
		return nil, err
	}
	p.jumpClient = client
	if !p.spawn(func() {
		p.keepAlive(client)
		p.jumpMu.Lock()
		p.jumpClient = nil
		p.jumpMu.Unlock()
	}) {
		_ = client.Close()
		return nil, errClosed
	}
	return client, nil
}

// handshake speaks SSH on conn, which it owns. The library's own timeout ends
// with the TCP connect (golang/go#15113), so a deadline closes the connection.
func (p *Pool) handshake(ctx context.Context, conn net.Conn, addr, user string, t *trust) (*ssh.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*p.o.ConnectTimeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	c, chans, reqs, err := ssh.NewClientConn(conn, addr, &ssh.ClientConfig{
		User:              user,
		Auth:              p.auth(),
		HostKeyCallback:   t.check,
		HostKeyAlgorithms: t.algorithms(),
		ClientVersion:     "SSH-2.0-hk",
	})
	if !stop() && err == nil {
		_ = c.Close()
		err = ctx.Err()
	}
	if err != nil {
		_ = conn.Close()
		if ctx.Err() != nil {
			err = fmt.Errorf("SSH handshake: %w", ctx.Err())
		}
		// The library has no type for this one.
		if strings.Contains(err.Error(), "unable to authenticate") {
			err = fmt.Errorf("%w: %w", errAuth, err)
		}
		return nil, err
	}
	return ssh.NewClient(c, chans, reqs), nil
}

// keepAlive asks for a sign of life now and then and closes a connection that
// missed three; nothing else notices a peer that vanished (golang/go#19338). It
// returns when the connection is closed.
func (p *Pool) keepAlive(c *ssh.Client) {
	closed := make(chan struct{})
	go func() { _ = c.Wait(); close(closed) }()
	tick := time.NewTicker(p.o.KeepAlive)
	defer tick.Stop()
	answered := make(chan struct{}, 1)
	asked, missed := false, 0
	for {
		select {
		case <-closed:
			return
		case <-p.ctx.Done():
			_ = c.Close()
			<-closed
			return
		case <-answered:
			asked, missed = false, 0
		case <-tick.C:
			if asked {
				if missed++; missed >= 3 {
					_ = c.Close()
				}
				continue
			}
			asked = true
			go func() {
				if _, _, err := c.SendRequest("keepalive@openssh.com", true, nil); err == nil {
					answered <- struct{}{}
				}
			}()
		}
	}
}

// address is where a contact is dialled.
func (p *Pool) address(c *remote.Contact) string {
	port := c.Port
	if port == 0 {
		port = p.o.Port
	}
	return net.JoinHostPort(c.Addr, strconv.Itoa(port))
}

func (p *Pool) user(c *remote.Contact) string {
	if c.User != "" {
		return c.User
	}
	return p.o.User
}
