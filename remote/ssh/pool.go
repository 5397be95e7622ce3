package ssh

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"golang.org/x/crypto/ssh"
	"golang.org/x/sync/semaphore"

	"hk/remote"
)

// Options say how hosts are reached.
type Options struct {
	// Signers are offered first and in this order: the key the user named wins
	// over whatever an agent holds.
	Signers []ssh.Signer
	// AgentSocket is the path of an ssh-agent's socket; "" for none.
	AgentSocket string
	// User and Port are used where a Contact has none: root and 22.
	User string
	Port int
	// Bastion, if any, is the machine all connections go through.
	Bastion *Bastion
	// Generation is the lease generation writes carry; nil means 0.
	Generation func() uint64
	// Log gets a line about connections made, lost and retried; may be nil.
	Log func(host, line string)
	// ConnectTimeout bounds the TCP connect, and twice as long bounds the
	// handshake and the start of hk's program, each; 0 means 10 s.
	ConnectTimeout time.Duration
	// KeepAlive is the time between two signs of life; 0 means 15 s. A
	// connection that misses three of them is closed.
	KeepAlive time.Duration

	dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	start string // command that starts hk's program, for tests
}

// Bastion is a jump host. Its key is pinned like every other.
type Bastion struct {
	Addr    string // host:port
	User    string
	HostKey string // authorized_keys form
}

// At most this many connections are being made at once. sshd drops
// unauthenticated connections at random beyond ten (MaxStartups 10:30:100),
// which counts where all of them arrive at one bastion.
const (
	dialsBastion = 8
	dialsDirect  = 64
)

// Pool opens and keeps connections.
type Pool struct {
	o       Options
	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	running sync.WaitGroup // goroutines of kept connections
	dials   *semaphore.Weighted

	mu     sync.Mutex
	hosts  map[string]*host
	keys   net.Conn // to the user's ssh agent
	closed bool

	jumpMu     sync.Mutex
	jumpClient *ssh.Client
}

var _ remote.Hosts = (*Pool)(nil)

// New returns a pool; nothing is dialled before the first use.
func New(o Options) *Pool {
	if o.User == "" {
		o.User = "root"
	}
	if o.Port == 0 {
		o.Port = 22
	}
	if o.Generation == nil {
		o.Generation = func() uint64 { return 0 }
	}
	if o.Log == nil {
		o.Log = func(string, string) {}
	}
	if o.ConnectTimeout == 0 {
		o.ConnectTimeout = 10 * time.Second
	}
	if o.KeepAlive == 0 {
		o.KeepAlive = 15 * time.Second
	}
	if o.dial == nil {
		o.dial = (&net.Dialer{}).DialContext
	}
	n := int64(dialsDirect)
	if o.Bastion != nil {
		n = dialsBastion
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Pool{o: o, ctx: ctx, cancel: cancel, dials: semaphore.NewWeighted(n), hosts: map[string]*host{}}
}

// Open returns the host; the connection is made on first use and kept. Two
// calls for the same place and key share it.
func (p *Pool) Open(c remote.Contact) remote.Host { return p.open(c) }

func (p *Pool) open(c remote.Contact) *host {
	key := c.Host + "\x00" + p.address(&c) + "\x00" + c.HostKey
	p.mu.Lock()
	defer p.mu.Unlock()
	h := p.hosts[key]
	if h == nil {
		h = &host{pool: p}
		p.hosts[key] = h
	}
	h.mu.Lock()
	c.Seen = c.Seen || h.c.Seen
	if c.Throwaway == "" {
		c.Throwaway = h.c.Throwaway
	}
	h.c = c
	h.mu.Unlock()
	return h
}

// Close closes all connections and waits for what served them.
func (p *Pool) Close() error {
	p.mu.Lock()
	p.closed = true
	keys := p.keys
	p.keys = nil
	p.mu.Unlock()
	p.cancel()
	p.running.Wait()
	if keys != nil {
		return keys.Close()
	}
	return nil
}

var errClosed = errors.New("the pool is closed")

// spawn runs f in a goroutine that Close waits for; false if it is too late.
func (p *Pool) spawn(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.running.Go(f)
	return true
}
