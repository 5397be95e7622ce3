package ssh

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"hk/remote"
)

// machine is a host made of a directory, an SSH server in this process and the
// real program of hk run by the local Python.
type machine struct {
	t      *testing.T
	root   string
	bin    string
	ln     net.Listener
	wg     sync.WaitGroup
	client ssh.PublicKey // who may log in

	dials  atomic.Int64 // connections accepted
	authed atomic.Int64 // handshakes completed
	mu     sync.Mutex
	conns  map[net.Conn]bool
}

func newKey(t *testing.T) (ssh.Signer, []byte) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		t.Fatal(err)
	}
	return signer, pem.EncodeToMemory(block)
}

func authorized(s ssh.Signer) string { return string(ssh.MarshalAuthorizedKey(s.PublicKey())) }

// newMachine starts a machine that shows hostKey and lets client in.
func newMachine(t *testing.T, hostKey []byte, client ssh.Signer) *machine {
	t.Helper()
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("needs /usr/bin/python3, as every host does")
	}
	m := &machine{t: t, root: t.TempDir(), bin: t.TempDir(), client: client.PublicKey(), conns: map[net.Conn]bool{}}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for f := range fakes {
		if err := os.Symlink(self, filepath.Join(m.bin, f)); err != nil {
			t.Fatal(err)
		}
	}
	m.write("/etc/ssh/ssh_host_ed25519_key", string(hostKey))
	m.write("/etc/ssh/ssh_host_rsa_key", "old")
	m.write("/proc/1/status", "Name:\tsystemd\nCapEff:\t000001ffffffffff\n")
	m.write("/proc/uptime", "12.5 1.0\n")
	m.write("/proc/sys/kernel/random/boot_id", "b00t\n")
	m.write("/proc/swaps", "Filename Type Size\n")
	m.write("/proc/filesystems", "nodev\toverlay\n")
	if m.ln, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	m.wg.Go(m.serve)
	t.Cleanup(m.close)
	return m
}

func (m *machine) write(path, content string) {
	m.t.Helper()
	p := filepath.Join(m.root, path)
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(p, []byte(content), 0o600); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) read(path string) string {
	m.t.Helper()
	b, err := os.ReadFile(filepath.Join(m.root, path))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(b)
}

// setUnit puts a unit into the fake systemd.
func (m *machine) setUnit(name string, u fakeUnit) {
	m.t.Helper()
	units := map[string]fakeUnit{}
	if b, err := os.ReadFile(filepath.Join(m.root, "fake/units.json")); err == nil {
		if err := json.Unmarshal(b, &units); err != nil {
			m.t.Fatal(err)
		}
	}
	units[name] = u
	b, err := json.Marshal(units)
	if err != nil {
		m.t.Fatal(err)
	}
	m.write("/fake/units.json", string(b))
}

// calls returns, and forgets, the calls of system programs that begin with
// prefix.
func (m *machine) calls(prefix string) []string {
	m.t.Helper()
	b, err := os.ReadFile(filepath.Join(m.root, "fake/calls"))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		m.t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(m.root, "fake/calls"), 0); err != nil {
		m.t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, prefix) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}

func (m *machine) contact(final, throwaway string, seen bool) remote.Contact {
	a := m.ln.Addr().(*net.TCPAddr)
	return remote.Contact{
		Host: "master-1", Addr: a.IP.String(), Port: a.Port, HostKey: final, Throwaway: throwaway, Seen: seen,
	}
}

func (m *machine) serve() {
	for {
		c, err := m.ln.Accept()
		if err != nil {
			return
		}
		m.dials.Add(1)
		m.mu.Lock()
		m.conns[c] = true
		m.mu.Unlock()
		m.wg.Go(func() {
			m.session(c)
			c.Close()
			m.mu.Lock()
			delete(m.conns, c)
			m.mu.Unlock()
		})
	}
}

// drop breaks all connections, as a router that forgot them would.
func (m *machine) drop() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for c := range m.conns {
		c.Close()
	}
}

func (m *machine) close() {
	m.ln.Close()
	m.drop()
	m.wg.Wait()
}

// session serves one connection with the host key that is on disk now.
func (m *machine) session(c net.Conn) {
	key, err := os.ReadFile(filepath.Join(m.root, "etc/ssh/ssh_host_ed25519_key"))
	if err != nil {
		return
	}
	signer, err := ssh.ParsePrivateKey(key)
	if err != nil {
		return
	}
	conf := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		if sameKey(k, m.client) {
			return nil, nil
		}
		return nil, errors.New("not yours")
	}}
	conf.AddHostKey(signer)
	conn, chans, reqs, err := ssh.NewServerConn(c, conf)
	if err != nil {
		return
	}
	m.authed.Add(1)
	defer conn.Close()
	m.wg.Go(func() { ssh.DiscardRequests(reqs) })
	for ch := range chans {
		switch ch.ChannelType() {
		case "session":
			m.wg.Go(func() { m.exec(ch) })
		case "direct-tcpip":
			m.wg.Go(func() { forward(ch) })
		default:
			_ = ch.Reject(ssh.UnknownChannelType, "")
		}
	}
}

func (m *machine) exec(ch ssh.NewChannel) {
	c, reqs, err := ch.Accept()
	if err != nil {
		return
	}
	defer c.Close()
	for r := range reqs {
		if r.Type != "exec" {
			_ = r.Reply(false, nil)
			continue
		}
		_ = r.Reply(true, nil)
		cmd := exec.Command("/usr/bin/python3", "-I", "-S", "-u", "-c", boot, "--root", m.root, "--path",
			m.bin+":/usr/bin:/bin")
		cmd.Stdout, cmd.Stderr = c, c.Stderr()
		in, err := cmd.StdinPipe()
		if err != nil || cmd.Start() != nil {
			return
		}
		m.wg.Go(func() { _, _ = io.Copy(in, c); in.Close() })
		code := 0
		if err := cmd.Wait(); err != nil {
			code = cmd.ProcessState.ExitCode()
		}
		_, _ = c.SendRequest("exit-status", false, ssh.Marshal(struct{ C uint32 }{uint32(code)}))
		return
	}
}

func forward(ch ssh.NewChannel) {
	var to struct {
		Host string
		Port uint32
		From string
		At   uint32
	}
	if err := ssh.Unmarshal(ch.ExtraData(), &to); err != nil {
		return
	}
	conn, err := net.Dial("tcp", net.JoinHostPort(to.Host, itoa(to.Port)))
	if err != nil {
		_ = ch.Reject(ssh.ConnectionFailed, err.Error())
		return
	}
	defer conn.Close()
	c, reqs, err := ch.Accept()
	if err != nil {
		return
	}
	defer c.Close()
	go ssh.DiscardRequests(reqs)
	done := make(chan struct{}, 2)
	go func() { _, _ = io.Copy(conn, c); conn.Close(); done <- struct{}{} }()
	go func() { _, _ = io.Copy(c, conn); c.Close(); done <- struct{}{} }()
	<-done
	<-done
}

func itoa(n uint32) string {
	b, _ := json.Marshal(n)
	return string(b)
}

// up is a machine with its final key, and a pool and host for it.
func up(t *testing.T, change func(*Options)) (*machine, *Pool, remote.Host) {
	t.Helper()
	key, pem := newKey(t)
	client, _ := newKey(t)
	m := newMachine(t, pem, client)
	p := newPool(t, client, change)
	return m, p, p.Open(m.contact(authorized(key), "", true))
}

func newPool(t *testing.T, client ssh.Signer, change func(*Options)) *Pool {
	t.Helper()
	// Patient, for computers that are busy with other things.
	o := Options{Signers: []ssh.Signer{client}, ConnectTimeout: time.Minute, start: "agent"}
	if change != nil {
		change(&o)
	}
	p := New(o)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

func ctxOf(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
