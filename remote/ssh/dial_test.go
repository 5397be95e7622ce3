package ssh

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/crypto/ssh"

	"hk/remote"
)

func TestConnectionIsKeptAndMadeAgain(t *testing.T) {
	m, _, h := up(t, nil)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if _, err := h.Facts(ctxOf(t), remote.FactsQuery{}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := m.dials.Load(); n != 1 {
		t.Errorf("%d connections for ten calls", n)
	}
	m.drop()
	if _, err := h.Get(ctxOf(t), "/proc/uptime"); err != nil {
		t.Error(err)
	}
	if n := m.dials.Load(); n != 2 {
		t.Errorf("%d connections after one was lost", n)
	}
}

func TestHostKeys(t *testing.T) {
	final, finalPEM := newKey(t)
	old, oldPEM := newKey(t)
	client, _ := newKey(t)
	m := newMachine(t, oldPEM, client)
	get := func(c remote.Contact) error {
		p := newPool(t, client, nil)
		_, err := p.Open(c).Get(ctxOf(t), "/proc/uptime")
		return err
	}
	var he *remote.HostError
	err := get(m.contact(authorized(final), "", false))
	if !errors.Is(err, remote.ErrHostKey) || !errors.As(err, &he) || he.Again || errors.Is(err, remote.ErrUnreachable) {
		t.Errorf("a stranger's key: %v", err)
	}
	if err = get(m.contact(authorized(final), authorized(old), false)); !errors.Is(err, remote.ErrHostKey) {
		t.Errorf("throw-away key outside of first contact: %v", err)
	}
	err = get(m.contact(authorized(final), authorized(old), true))
	if !errors.Is(err, remote.ErrRebuilt) || errors.Is(err, remote.ErrHostKey) {
		t.Errorf("throw-away key after the final one was seen: %v", err)
	}
	if m.authed.Load() != 0 {
		t.Error("hk logged in to a host with the wrong key")
	}
	m.write("/etc/ssh/ssh_host_ed25519_key", string(finalPEM))
	if err = get(m.contact(authorized(final), authorized(old), true)); err != nil {
		t.Errorf("the right key: %v", err)
	}
}

func TestWrongUserKeyIsFinal(t *testing.T) {
	m, p, _ := up(t, nil)
	other, _ := newKey(t)
	_ = p
	key, _ := ssh.ParsePrivateKey([]byte(m.read("/etc/ssh/ssh_host_ed25519_key")))
	p2 := newPool(t, other, nil)
	_, err := p2.Open(m.contact(authorized(key), "", true)).Get(ctxOf(t), "/x")
	var he *remote.HostError
	if !errors.As(err, &he) || he.Again || !strings.Contains(err.Error(), "no key of ours") {
		t.Errorf("%v", err)
	}
}

// A server that accepts and says nothing must not hold hk.
func TestHangingHandshake(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var conns []net.Conn
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns = append(conns, c)
		}
	})
	defer func() {
		ln.Close()
		wg.Wait()
		for _, c := range conns {
			c.Close()
		}
	}()
	client, _ := newKey(t)
	host, _ := newKey(t)
	p := newPool(t, client, func(o *Options) { o.ConnectTimeout = 500 * time.Millisecond })
	a := ln.Addr().(*net.TCPAddr)
	_, err = p.Open(remote.Contact{Host: "x", Addr: "127.0.0.1", Port: a.Port, HostKey: authorized(host)}).Get(ctxOf(t), "/x")
	var he *remote.HostError
	if !errors.Is(err, remote.ErrUnreachable) || !errors.As(err, &he) || !he.Again || !strings.Contains(err.Error(), "SSH handshake") {
		t.Errorf("%v", err)
	}
}

func TestUnreachable(t *testing.T) {
	m, _, h := up(t, nil)
	m.ln.Close()
	_, err := h.Facts(ctxOf(t), remote.FactsQuery{})
	if !errors.Is(err, remote.ErrUnreachable) {
		t.Errorf("%v", err)
	}
}

func TestClosedPool(t *testing.T) {
	_, p, h := up(t, nil)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Get(ctxOf(t), "/x"); !errors.Is(err, errClosed) {
		t.Errorf("%v", err)
	}
}

func TestTunnel(t *testing.T) {
	_, _, h := up(t, nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = io.Copy(c, c)
	})
	c, err := h.Dial(ctxOf(t), ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("ping")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 4)
	if _, err := io.ReadFull(c, b); err != nil || string(b) != "ping" {
		t.Fatalf("%q %v", b, err)
	}
	if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(b); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a passed deadline: %v", err)
	}
	c.Close()
	ln.Close()
	wg.Wait()
	_, err = h.Dial(ctxOf(t), ln.Addr().String())
	var he *remote.HostError
	if !errors.As(err, &he) || errors.Is(err, remote.ErrUnreachable) {
		t.Errorf("a closed port on a host that answers: %v", err)
	}
}

// A peer that vanished is noticed by three missed signs of life, and one that
// answers stays. Time is the bubble's, so nothing sleeps.
func TestKeepAlive(t *testing.T) {
	for name, answers := range map[string]bool{"alive": true, "vanished": false} {
		t.Run(name, func(t *testing.T) {
			host, _ := newKey(t)
			client, _ := newKey(t)
			synctest.Test(t, func(t *testing.T) {
				near, far := bufferedPipe()
				defer far.Close()
				go quietServer(far, host, answers)
				p := New(Options{Signers: []ssh.Signer{client}})
				c, err := p.handshake(t.Context(), near, "x:22", "root", &trust{final: host.PublicKey()})
				if err != nil {
					t.Fatal(err)
				}
				closed := make(chan time.Duration, 1)
				began := time.Now()
				go func() { p.keepAlive(c); closed <- time.Since(began) }()
				<-time.After(10 * time.Minute) // the bubble's minutes
				synctest.Wait()
				select {
				case d := <-closed:
					if answers || d != time.Minute {
						t.Errorf("closed after %v", d)
					}
				default:
					if !answers {
						t.Error("a vanished peer is still believed in")
					}
				}
				if err := p.Close(); err != nil {
					t.Error(err)
				}
				c.Close()
			})
		})
	}
}

// bufferedPipe is net.Pipe with room: SSH begins with both sides writing.
func bufferedPipe() (a, b net.Conn) {
	x, y := net.Pipe()
	return newRoomy(x), newRoomy(y)
}

type roomy struct {
	net.Conn
	out  chan []byte
	done chan struct{}
	once sync.Once
}

func newRoomy(c net.Conn) *roomy {
	r := &roomy{Conn: c, out: make(chan []byte, 256), done: make(chan struct{})}
	go func() {
		for {
			select {
			case b := <-r.out:
				if _, err := c.Write(b); err != nil {
					return
				}
			case <-r.done:
				return
			}
		}
	}()
	return r
}

func (r *roomy) Write(p []byte) (int, error) {
	select {
	case r.out <- append([]byte(nil), p...):
		return len(p), nil
	case <-r.done:
		return 0, net.ErrClosed
	}
}

func (r *roomy) Close() error {
	r.once.Do(func() { close(r.done) })
	return r.Conn.Close()
}

// quietServer speaks SSH and answers requests, or leaves them unanswered.
func quietServer(c net.Conn, key ssh.Signer, answers bool) {
	conf := &ssh.ServerConfig{PublicKeyCallback: func(ssh.ConnMetadata, ssh.PublicKey) (*ssh.Permissions, error) { return nil, nil }}
	conf.AddHostKey(key)
	conn, chans, reqs, err := ssh.NewServerConn(c, conf)
	if err != nil {
		return
	}
	defer conn.Close()
	go func() {
		for r := range reqs {
			if answers {
				_ = r.Reply(false, nil)
			}
		}
	}()
	for ch := range chans {
		_ = ch.Reject(ssh.Prohibited, "")
	}
}

// All connections may go through one bastion, whose key is pinned too.
func TestBastion(t *testing.T) {
	key, pem := newKey(t)
	jumpKey, jumpPEM := newKey(t)
	client, _ := newKey(t)
	m, j := newMachine(t, pem, client), newMachine(t, jumpPEM, client)
	p := newPool(t, client, func(o *Options) {
		o.Bastion = &Bastion{Addr: j.ln.Addr().String(), HostKey: authorized(jumpKey)}
	})
	if _, err := p.Open(m.contact(authorized(key), "", true)).Get(ctxOf(t), "/proc/uptime"); err != nil {
		t.Fatal(err)
	}
	if j.authed.Load() != 1 || m.authed.Load() != 1 {
		t.Errorf("%d and %d connections", j.authed.Load(), m.authed.Load())
	}
	bad := newPool(t, client, func(o *Options) {
		o.Bastion = &Bastion{Addr: j.ln.Addr().String(), HostKey: authorized(key)}
	})
	if _, err := bad.Open(m.contact(authorized(key), "", true)).Get(ctxOf(t), "/proc/uptime"); !errors.Is(err, remote.ErrHostKey) {
		t.Errorf("a bastion with another key: %v", err)
	}
}

func TestInstall(t *testing.T) {
	final, finalPEM := newKey(t)
	old, oldPEM := newKey(t)
	client, _ := newKey(t)
	m := newMachine(t, oldPEM, client)
	id := remote.HostIdentity{UID: "u", Cluster: "demo", Host: "master-1", Index: 1, Installation: "random", Generation: 1}
	p := newPool(t, client, nil)
	c := m.contact(authorized(final), authorized(old), false)
	got, err := p.Install(ctxOf(t), c, finalPEM, id)
	if err != nil {
		t.Fatal(err)
	}
	if got != id {
		t.Errorf("%+v", got)
	}
	if m.read("/etc/ssh/ssh_host_ed25519_key") != string(finalPEM) || exists(m, "/etc/ssh/ssh_host_rsa_key")() {
		t.Error("the final key is not the only one")
	}
	if !strings.Contains(m.read("/etc/ssh/sshd_config.d/00-hk.conf"), "HostKey /etc/ssh/ssh_host_ed25519_key\n") {
		t.Error("sshd is not told to use it alone")
	}
	if st, err := os.Stat(m.root + "/etc/hk/host.json"); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st, err)
	}
	n := m.authed.Load()
	if n != 2 {
		t.Errorf("%d connections; one for each key are 2", n)
	}
	if f, err := p.Open(c).Facts(ctxOf(t), remote.FactsQuery{}); err != nil || f.Host != id || m.authed.Load() != n {
		t.Errorf("the connection is not kept: %v", err)
	}
	// The throw-away key opens nothing any more: who pins it is refused.
	p2 := newPool(t, client, nil)
	if _, err := p2.Open(m.contact(authorized(old), "", true)).Get(ctxOf(t), "/x"); !errors.Is(err, remote.ErrHostKey) {
		t.Errorf("the throw-away key still passes: %v", err)
	}
	// Again, with another identity: what is on the host stays.
	got, err = p2.Install(ctxOf(t), c, finalPEM, remote.HostIdentity{UID: "other"})
	if err != nil || got != id {
		t.Errorf("%+v %v", got, err)
	}
}

func TestInstallRebuilt(t *testing.T) {
	final, finalPEM := newKey(t)
	old, oldPEM := newKey(t)
	client, _ := newKey(t)
	m := newMachine(t, oldPEM, client)
	c := m.contact(authorized(final), authorized(old), true)
	_, err := newPool(t, client, nil).Install(ctxOf(t), c, finalPEM, remote.HostIdentity{UID: "u"})
	if !errors.Is(err, remote.ErrRebuilt) || m.authed.Load() != 0 {
		t.Errorf("throw-away key shown again: %v, %d logins", err, m.authed.Load())
	}
	m.write("/etc/ssh/ssh_host_ed25519_key", string(finalPEM))
	_, err = newPool(t, client, nil).Install(ctxOf(t), c, finalPEM, remote.HostIdentity{UID: "u"})
	if !errors.Is(err, remote.ErrRebuilt) || exists(m, "/etc/hk/host.json")() {
		t.Errorf("installation file lost: %v", err)
	}
}

// A host that does not answer yet is waited for; one that shows a key of its
// image's on first boot too, until its first boot put ours in place.
func TestInstallWaits(t *testing.T) {
	final, finalPEM := newKey(t)
	old, oldPEM := newKey(t)
	_, imagePEM := newKey(t)
	client, _ := newKey(t)
	m := newMachine(t, imagePEM, client)
	p := newPool(t, client, nil)
	done := make(chan error, 1)
	go func() {
		_, err := p.Install(ctxOf(t), m.contact(authorized(final), authorized(old), false), finalPEM, remote.HostIdentity{UID: "u"})
		done <- err
	}()
	until(t, "two refusals", func() bool { return m.dials.Load() >= 2 })
	m.write("/etc/ssh/ssh_host_ed25519_key", string(oldPEM))
	if err := <-done; err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	m.ln.Close()
	m.drop()
	c := m.contact(authorized(final), authorized(old), false)
	c.Host = "master-2"
	if _, err := p.Install(ctx, c, finalPEM, remote.HostIdentity{}); !errors.Is(err, remote.ErrUnreachable) {
		t.Errorf("no host: %v", err)
	}
}
