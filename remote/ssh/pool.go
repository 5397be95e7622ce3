package ssh

import (
	"time"

	"golang.org/x/crypto/ssh"

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
	// ConnectTimeout bounds the TCP connect and, once more, the handshake; 0
	// means 10 s.
	ConnectTimeout time.Duration
	// KeepAlive is the time between two signs of life; 0 means 15 s. A
	// connection that misses three of them is closed.
	KeepAlive time.Duration
}

// Bastion is a jump host. Its key is pinned like every other.
type Bastion struct {
	Addr    string // host:port
	User    string
	HostKey string // authorized_keys form
}

// Pool opens and keeps connections.
type Pool struct{ remote.Hosts }

// New returns a pool; nothing is dialled before the first use.
func New(o Options) *Pool { return &Pool{} }
