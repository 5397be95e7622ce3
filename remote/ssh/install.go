package ssh

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"hk/remote"
)

// First contact. The order is what makes it safe: the throw-away key, which
// travelled in user data, is trusted for one thing only, to receive the final
// key. Everything else is said after a new connection has shown the final one.

// grace is how long a host seen for the first time may show a key of its
// image's, or refuse ours, because its first boot is not that far yet.
const grace = 45 * time.Second

// Install makes first contact. With c.Seen set a host that shows its
// throw-away key, or lost its installation file, is reported as rebuilt and
// nothing is written.
func (p *Pool) Install(ctx context.Context, c remote.Contact, hostKeyPEM []byte, id remote.HostIdentity) (remote.HostIdentity, error) {
	h := p.open(c)
	found, err := p.install(ctx, h, hostKeyPEM, id)
	if err != nil {
		return remote.HostIdentity{}, h.hostError("first contact", err)
	}
	return found, nil
}

func (p *Pool) install(ctx context.Context, h *host, hostKeyPEM []byte, id remote.HostIdentity) (remote.HostIdentity, error) {
	none := remote.HostIdentity{}
	h.mu.Lock()
	c := h.c
	h.mu.Unlock()
	final, err := parseKey(c.HostKey)
	if err != nil {
		return none, err
	}
	t := &trust{final: final}
	if c.Throwaway != "" && !c.Seen {
		if t.throwaway, err = parseKey(c.Throwaway); err != nil {
			return none, err
		}
	}
	l, err := p.firstContact(ctx, &c, t)
	if err != nil {
		return none, err
	}
	if !t.showed(final) {
		if err := giveKey(ctx, l, final, hostKeyPEM); err != nil {
			_ = l.client.Close()
			return none, fmt.Errorf("installing the final host key: %w", err)
		}
		_ = l.client.Close()
		if l, err = p.lastContact(ctx, &c); err != nil {
			return none, fmt.Errorf("after the final host key was installed: %w", err)
		}
	}
	h.adopt(l)
	var r struct {
		Identity *remote.HostIdentity `json:"identity"`
	}
	q := map[string]any{"identity": id, "write": !c.Seen}
	if err := l.agent.call(ctx, "identity", q, &r, nil); err != nil {
		return none, err
	}
	if r.Identity == nil {
		return none, fmt.Errorf("%w: it has no installation file", remote.ErrRebuilt)
	}
	return *r.Identity, nil
}

// giveKey hands over the final private key, after checking that it is the one
// that will be expected.
func giveKey(ctx context.Context, l *link, final ssh.PublicKey, pem []byte) error {
	signer, err := ssh.ParsePrivateKey(pem)
	if err != nil {
		return fmt.Errorf("reading it: %w", err)
	}
	if !sameKey(signer.PublicKey(), final) {
		return errors.New("bug: it is not the pinned one")
	}
	q := struct {
		Private []byte `json:"private"`
		Public  string `json:"public"`
	}{pem, strings.TrimSpace(string(ssh.MarshalAuthorizedKey(final)))}
	return l.agent.call(ctx, "hostkey", q, new(struct{}), nil)
}

// firstContact dials until the host answers with a key in t.
func (p *Pool) firstContact(ctx context.Context, c *remote.Contact, t *trust) (*link, error) {
	var answered time.Time // when something spoke SSH first
	return p.keepTrying(ctx, c, func() (*link, error) { return p.connectFirst(ctx, c, t) }, func(err error) bool {
		if errors.Is(err, remote.ErrRebuilt) {
			return false
		}
		if !errors.Is(err, remote.ErrHostKey) && !errors.Is(err, errAuth) {
			return true
		}
		if answered.IsZero() {
			answered = time.Now()
		}
		return !c.Seen && time.Since(answered) < grace
	})
}

func (p *Pool) connectFirst(ctx context.Context, c *remote.Contact, t *trust) (*link, error) {
	if c.Seen {
		return p.connectPinned(ctx, c)
	}
	timeout := p.o.ConnectTimeout
	if p.o.Bastion == nil {
		timeout = min(bootDial, timeout)
	}
	return p.connect(ctx, c, t, timeout)
}

// lastContact dials until sshd, which is just reading its new configuration,
// shows the final key.
func (p *Pool) lastContact(ctx context.Context, c *remote.Contact) (*link, error) {
	began := time.Now()
	return p.keepTrying(ctx, c, func() (*link, error) { return p.connectPinned(ctx, c) }, func(err error) bool {
		return !errors.Is(err, remote.ErrHostKey) || time.Since(began) < 10*time.Second
	})
}

// Back-off between two dials. Machines boot in 2 to 4 s, so it stays fine; and
// a dial to an address that does not answer yet is given up early, since the
// kernel's own retries come after 1, 3 and 7 s.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 250 * time.Millisecond
	bootDial   = time.Second
)

func (p *Pool) keepTrying(ctx context.Context, c *remote.Contact, dial func() (*link, error), again func(error) bool) (*link, error) {
	pause, said := firstPause, ""
	for {
		l, err := dial()
		if err == nil {
			return l, nil
		}
		if ctx.Err() != nil || p.ctx.Err() != nil || errors.Is(err, errProgram) || !again(err) {
			return nil, err
		}
		if now := err.Error(); now != said {
			said = now
			p.o.Log(c.Host, "not there yet: "+now)
		}
		if sleep(ctx, pause) != nil {
			return nil, err
		}
		pause = min(lastPause, pause*3/2)
	}
}
