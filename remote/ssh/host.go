package ssh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"

	"hk/remote"
)

// host is a remote.Host.
type host struct {
	pool *Pool

	mu      sync.Mutex
	c       remote.Contact
	cur     *link
	dialing *attempt
}

// attempt is a connection being made; all who need it wait for the same one.
type attempt struct {
	done chan struct{}
	link *link
	err  error
}

var _ remote.Host = (*host)(nil)

// Name is hk's name of the host.
func (h *host) Name() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.c.Host
}

// link returns the live connection, or makes one.
func (h *host) link(ctx context.Context) (*link, error) {
	h.mu.Lock()
	if h.cur != nil && !h.cur.dead() {
		defer h.mu.Unlock()
		return h.cur, nil
	}
	a := h.dialing
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		h.dialing = a
		c := h.c
		if !h.pool.spawn(func() { h.make(a, &c) }) {
			h.dialing = nil
			h.mu.Unlock()
			return nil, errClosed
		}
	}
	h.mu.Unlock()
	select {
	case <-a.done:
		return a.link, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// make connects on behalf of all who wait, so it ends with the pool only, not
// with the first caller's patience.
func (h *host) make(a *attempt, c *remote.Contact) {
	l, err := h.pool.connectPinned(h.pool.ctx, c)
	h.mu.Lock()
	a.link, a.err = l, err
	h.dialing = nil
	if err == nil {
		h.cur = l
		h.c.Seen = true
	}
	h.mu.Unlock()
	if err != nil {
		h.pool.o.Log(c.Host, "no connection: "+err.Error())
	}
	close(a.done)
}

// adopt takes a connection that Install made.
func (h *host) adopt(l *link) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cur = l
	h.c.Seen = true
}

// connectPinned connects with the final key only and words what is wrong.
func (p *Pool) connectPinned(ctx context.Context, c *remote.Contact) (*link, error) {
	final, err := parseKey(c.HostKey)
	if err != nil {
		return nil, err
	}
	var old ssh.PublicKey
	if c.Throwaway != "" {
		if old, err = parseKey(c.Throwaway); err != nil {
			return nil, err
		}
	}
	t := &trust{final: final}
	l, err := p.connect(ctx, c, t, p.o.ConnectTimeout)
	if errors.Is(err, remote.ErrHostKey) && t.showed(old) {
		if c.Seen {
			return nil, fmt.Errorf("%w: it shows its throw-away key again", remote.ErrRebuilt)
		}
		return nil, fmt.Errorf("%w: it still shows its throw-away key, first contact is not finished", remote.ErrHostKey)
	}
	return l, err
}

// hostError words an error of an operation. What comes from the network says
// that the host is unreachable.
func (h *host) hostError(op string, err error) error {
	out := &remote.HostError{Host: h.Name(), Op: op, Err: err}
	var wire *wireError
	switch {
	case errors.As(err, &wire):
		out.Stderr, out.Code, out.Again = wire.Stderr, wire.Code, wire.Again
	case errors.Is(err, remote.ErrHostKey), errors.Is(err, remote.ErrRebuilt), errors.Is(err, errProgram),
		errors.Is(err, errClosed), errors.Is(err, context.Canceled):
	case errors.Is(err, errAuth):
		out.Err = fmt.Errorf("%w: %w", remote.ErrUnreachable, err)
	default:
		out.Again = true
		out.Err = fmt.Errorf("%w: %w", remote.ErrUnreachable, err)
	}
	return out
}

// redials is how often an operation whose connection was lost under it is done
// again on a new one. All operations can be done twice.
const redials = 2

// call does one operation on the host.
func (h *host) call(ctx context.Context, op, what string, q, result any) error {
	for n := 0; ; n++ {
		l, err := h.link(ctx)
		if err != nil {
			return h.hostError(what, err)
		}
		err = l.agent.call(ctx, op, q, result, nil)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errLost) || n >= redials {
			return h.hostError(what, err)
		}
		h.pool.o.Log(h.Name(), "connecting again: "+err.Error())
	}
}

// bounded gives an operation a deadline if its caller gave none.
func bounded(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d)
}

// Facts looks at the host in one round trip and changes nothing.
func (h *host) Facts(ctx context.Context, q remote.FactsQuery) (*remote.Facts, error) {
	ctx, cancel := bounded(ctx, time.Minute)
	defer cancel()
	var w wireFacts
	if err := h.call(ctx, "facts", "gathering facts", wireQuery(q), &w); err != nil {
		return nil, err
	}
	return w.facts()
}

// Apply makes the host what s says. What was touched before an error is in the
// result beside the error.
func (h *host) Apply(ctx context.Context, s remote.HostState) (*remote.Applied, error) {
	ctx, cancel := bounded(ctx, 30*time.Minute)
	defer cancel()
	q, err := stateToWire(&s)
	if err != nil {
		return nil, &remote.HostError{Host: h.Name(), Op: "applying its state", Err: err}
	}
	q.Lease = h.pool.o.Generation()
	var w wireApplied
	err = h.call(ctx, "apply", "applying its state", q, &w)
	var wire *wireError
	if errors.As(err, &wire) && wire.Applied != nil {
		w = *wire.Applied
	}
	return &remote.Applied{Changed: w.Changed, Restarted: w.Restarted}, err
}

// Exec runs a short probe.
func (h *host) Exec(ctx context.Context, c remote.Command) (*remote.CommandResult, error) {
	if len(c.Argv) == 0 {
		return nil, errors.New("bug: a command without argv")
	}
	d := c.Timeout
	if d == 0 {
		d = 10 * time.Second
	}
	ctx, cancel := context.WithTimeout(ctx, d+30*time.Second)
	defer cancel()
	var r remote.CommandResult
	q := wireExec{Argv: c.Argv, Stdin: c.Stdin, Timeout: d.Seconds()}
	if err := h.call(ctx, "exec", "run "+c.Argv[0], q, &r); err != nil {
		return nil, err
	}
	return &r, nil
}

// Get reads a file.
func (h *host) Get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := bounded(ctx, time.Minute)
	defer cancel()
	var r struct {
		Data []byte `json:"data"`
	}
	if err := h.call(ctx, "get", "reading "+path, map[string]string{"path": path}, &r); err != nil {
		return nil, err
	}
	return r.Data, nil
}

// Journal writes entries of the host's own journal.
func (h *host) Journal(ctx context.Context, entries map[string][]byte) error {
	if len(entries) == 0 {
		return nil
	}
	ctx, cancel := bounded(ctx, 5*time.Minute)
	defer cancel()
	q := wireJournal{Lease: h.pool.o.Generation(), Entries: entries}
	return h.call(ctx, "journal", "writing its journal", q, new(struct{}))
}

// Dial opens a TCP connection from the host.
func (h *host) Dial(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := bounded(ctx, 30*time.Second)
	defer cancel()
	l, err := h.link(ctx)
	if err != nil {
		return nil, h.hostError("dial "+addr, err)
	}
	conn, err := l.client.DialContext(ctx, "tcp", addr)
	if err != nil {
		if _, ok := errors.AsType[*ssh.OpenChannelError](err); ok {
			return nil, &remote.HostError{Host: h.Name(), Op: "dial " + addr, Err: err, Again: true}
		}
		return nil, h.hostError("dial "+addr, err)
	}
	return newTunnel(conn), nil
}
