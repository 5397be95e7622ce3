// Package fake is a world small enough to look into, for the tests of the
// phases' rooms: hosts as maps of files and units, a credential unit, an etcd
// and a Kubernetes whose answers a test sets.
package fake

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"hk/cache/fp"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/pki"
)

// Now is the time of all fakes.
func Now() time.Time { return time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC) }

// Host is a machine in memory.
type Host struct {
	mu    sync.Mutex
	name  string
	Files map[string]remote.File
	Units map[string]remote.UnitFact
	// Started is the digest of a unit's files when it was last started.
	started map[string]string
	// Calls is what was done to the host, in order.
	Calls []string
	// OnExec answers commands; nil answers exit code 0.
	OnExec func(argv []string) (int, string)
	// OnJob runs jobs; nil answers exit code 0.
	OnJob func(j remote.Job) (*remote.JobResult, error)
	// OnDial answers connections; nil accepts them.
	OnDial func(addr string) (net.Conn, error)
	starts int
}

// NewHost is an empty machine.
func NewHost(name string) *Host {
	return &Host{
		name: name, Files: map[string]remote.File{}, Units: map[string]remote.UnitFact{}, started: map[string]string{},
	}
}

// Name implements remote.Host.
func (h *Host) Name() string { return h.name }

// Called are the calls that begin with a word, and forgets all.
func (h *Host) Called(prefix string) []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []string
	for _, c := range h.Calls {
		if strings.HasPrefix(c, prefix) {
			out = append(out, c)
		}
	}
	h.Calls = nil
	return out
}

func (h *Host) note(format string, args ...any) {
	h.Calls = append(h.Calls, fmt.Sprintf(format, args...))
}

func (h *Host) fact(path string) string {
	f, ok := h.Files[path]
	switch {
	case ok && f.Link != "":
		return "link " + f.Link
	case ok && f.Mode&fs.ModeDir != 0:
		return "dir 0755 root:root"
	case ok:
		sum := sha256.Sum256(f.Content)
		return hex.EncodeToString(sum[:]) + " 0644 root:root"
	}
	return "absent"
}

// Facts implements remote.Host.
func (h *Host) Facts(_ context.Context, q remote.FactsQuery) (*remote.Facts, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f := &remote.Facts{Files: map[string]string{}, Units: map[string]remote.UnitFact{}}
	for _, p := range q.Paths {
		f.Files[p] = h.fact(p)
	}
	for _, u := range q.Units {
		f.Units[u] = h.Units[u]
	}
	return f, nil
}

// Apply implements remote.Host.
func (h *Host) Apply(_ context.Context, s remote.HostState) (*remote.Applied, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := &remote.Applied{}
	for _, f := range s.Files {
		old, ok := h.Files[f.Path]
		switch {
		case f.Later:
			return nil, fmt.Errorf("%s has no content yet", f.Path)
		case f.Absent:
			if ok {
				delete(h.Files, f.Path)
				a.Changed = append(a.Changed, f.Path)
				h.note("remove %s", f.Path)
			}
		case ok && (f.Keep || string(old.Content) == string(f.Content) && old.Link == f.Link && old.Mode == f.Mode):
		default:
			h.Files[f.Path] = f
			a.Changed = append(a.Changed, f.Path)
			h.note("write %s", f.Path)
		}
	}
	for _, u := range s.Units {
		var b strings.Builder
		for _, p := range u.Files {
			b.WriteString(h.fact(p))
		}
		text := b.String()
		if u.Active && (h.Units[u.Name].Active != "active" || h.started[u.Name] != text) {
			h.start(u.Name)
			h.started[u.Name] = text
			a.Restarted = append(a.Restarted, u.Name)
		}
	}
	return a, nil
}

func (h *Host) start(unit string) {
	h.starts++
	h.Units[unit] = remote.UnitFact{Active: "active", Enabled: "enabled", Invocation: fmt.Sprint(h.starts)}
	h.note("start %s", unit)
}

// Exec implements remote.Host.
func (h *Host) Exec(_ context.Context, c remote.Command) (*remote.CommandResult, error) {
	h.mu.Lock()
	h.note("exec %s", strings.Join(c.Argv, " "))
	on := h.OnExec
	h.mu.Unlock()
	if on == nil {
		return &remote.CommandResult{}, nil
	}
	code, out := on(c.Argv)
	return &remote.CommandResult{Code: code, Stdout: []byte(out)}, nil
}

// Run implements remote.Host.
func (h *Host) Run(_ context.Context, j remote.Job) (*remote.JobResult, error) {
	h.mu.Lock()
	h.note("job %s", strings.Join(j.Argv, " "))
	on := h.OnJob
	h.mu.Unlock()
	if on == nil {
		return &remote.JobResult{}, nil
	}
	return on(j)
}

// Get implements remote.Host.
func (h *Host) Get(_ context.Context, path string) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f, ok := h.Files[path]
	if ok && f.Link != "" {
		f, ok = h.Files[f.Link]
	}
	if !ok {
		return nil, fmt.Errorf("%s: %w", path, remote.ErrNotFound)
	}
	return f.Content, nil
}

// Dial implements remote.Host.
func (h *Host) Dial(_ context.Context, addr string) (net.Conn, error) {
	if h.OnDial != nil {
		return h.OnDial(addr)
	}
	a, b := net.Pipe()
	go func() { _ = b.Close() }()
	return a, nil
}

// Journal implements remote.Host.
func (h *Host) Journal(_ context.Context, entries map[string][]byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, k := range slices.Sorted(maps.Keys(entries)) {
		h.note("journal %s", k)
	}
	return nil
}

// Put writes a file behind hk's back.
func (h *Host) Put(path, content string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.Files[path] = remote.File{Path: path, Content: []byte(content)}
}

// Vault is a credential unit in memory.
type Vault struct {
	mu          sync.Mutex
	Authorities map[string]*pki.Authority
	Secrets     map[string][]byte
	Hosts       map[string]tasks.HostRecord
	Closed      bool // refuses new keys, as on an established cluster
	Puts        []string
}

// NewVault is an empty unit.
func NewVault() *Vault {
	return &Vault{Authorities: map[string]*pki.Authority{}, Secrets: map[string][]byte{}, Hosts: map[string]tasks.HostRecord{}}
}

// Authority implements tasks.Vault.
func (v *Vault) Authority(name string) (*pki.Authority, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if a := v.Authorities[name]; a != nil {
		return a, nil
	}
	return nil, fmt.Errorf("authority %s: %w", name, remote.ErrNotFound)
}

// CreateAuthority implements tasks.Vault.
func (v *Vault) CreateAuthority(name, cn string) (*pki.Authority, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.Closed {
		return nil, fmt.Errorf("authority %s: no new keys", name)
	}
	a, err := pki.New(name, cn, Now())
	v.Authorities[name] = a
	return a, err
}

// Secret implements tasks.Vault.
func (v *Vault) Secret(name string) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if b, ok := v.Secrets[name]; ok {
		return b, nil
	}
	return nil, fmt.Errorf("secret %s: %w", name, remote.ErrNotFound)
}

// CreateSecret implements tasks.Vault.
func (v *Vault) CreateSecret(name string, draw func() ([]byte, error)) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.Closed {
		return nil, fmt.Errorf("secret %s: no new keys", name)
	}
	b, err := draw()
	v.Secrets[name] = b
	return b, err
}

// Put implements tasks.Vault.
func (v *Vault) Put(name string, data []byte) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.Secrets[name] = data
	v.Puts = append(v.Puts, name)
	return nil
}

// KeyID implements tasks.Vault.
func (v *Vault) KeyID(string) string { return "" }

// HMAC implements tasks.Vault.
func (v *Vault) HMAC(data []byte) []byte {
	sum := sha256.Sum256(append([]byte("hmac"), data...))
	return sum[:]
}

// Host implements tasks.Vault.
func (v *Vault) Host(name string) (tasks.HostRecord, bool) { r, ok := v.Hosts[name]; return r, ok }

// SaveHost implements tasks.Vault.
func (v *Vault) SaveHost(r tasks.HostRecord) error { v.Hosts[r.Host] = r; return nil }

// DropHost implements tasks.Vault.
func (v *Vault) DropHost(name string) error { delete(v.Hosts, name); return nil }

// Env is an environment around hosts and a unit. The first host is the task's.
func Env(v *Vault, hosts ...*Host) *tasks.Env {
	e := &tasks.Env{
		Cluster: "demo", UID: "uid-1", Task: "test", Vault: v, Now: Now,
		Log: func(string) {}, Note: func(string, string) {}, Expires: func(time.Time) {},
		Kube: func() (remote.Kube, error) { return nil, fmt.Errorf("no API") },
		Etcd: func() (remote.Etcd, error) { return nil, fmt.Errorf("no etcd") },
	}
	e.HostOf = func(name string) (remote.Host, error) {
		for _, h := range hosts {
			if h.name == name {
				return h, nil
			}
		}
		return nil, fmt.Errorf("host %s: %w", name, remote.ErrNotFound)
	}
	if len(hosts) > 0 {
		e.Host = hosts[0]
		e.Job = func(ctx context.Context, j remote.Job) (*remote.JobResult, error) { return hosts[0].Run(ctx, j) }
	}
	return e
}

// Out makes a View's Out from a map of kinds.
func Out(m map[string]fp.Output) func(string) fp.Output {
	return func(kind string) fp.Output { return m[kind] }
}
