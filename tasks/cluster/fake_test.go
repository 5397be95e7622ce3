package cluster

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"hk/remote"
	"hk/tasks"
	"hk/tasks/spec"
)

// fakeCloud is a project in memory. fault is asked before each write (after ==
// false) and after its effect; an error is what the caller gets.
type fakeCloud struct {
	mu     sync.Mutex
	inv    remote.Inventory
	nextID int64
	now    func() time.Time
	cat    *remote.Catalog
	down   error
	fault  func(op string, after bool) error
	calls  []string // writes
	looks  int
	unique bool // names are unique
}

func newCloud(now func() time.Time) *fakeCloud {
	return &fakeCloud{nextID: 100, now: now, unique: true, cat: catalog()}
}

func catalog() *remote.Catalog {
	t := remote.ServerType{
		Name: "cx23", Arch: "x86", Available: map[string]bool{"fsn1": true}, Price: map[string]float64{"fsn1": 4.5},
	}
	old := t
	old.Name, old.Deprecated = "cx21", map[string]bool{"fsn1": true}
	return &remote.Catalog{
		ServerTypes: map[string]remote.ServerType{"cx23": t, "cx21": old},
		LBTypes:     map[string]map[string]float64{"lb11": {"fsn1": 6}},
		Locations:   map[string]string{"fsn1": "eu-central", "ash": "us-east"},
		Images:      []remote.Image{{ID: 1, Name: "debian-12", Type: "system", Arch: "x86"}},
		Currency:    "EUR",
	}
}

func (c *fakeCloud) write(op string, f func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fault != nil {
		if err := c.fault(op, false); err != nil {
			return err
		}
	}
	c.calls = append(c.calls, op)
	if err := f(); err != nil {
		return err
	}
	if c.fault != nil {
		return c.fault(op, true)
	}
	return nil
}

func (c *fakeCloud) id() int64 { c.nextID++; return c.nextID }

func (c *fakeCloud) Inventory(ctx context.Context) (*remote.Inventory, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	if c.down != nil {
		return nil, c.down
	}
	inv := c.inv
	inv.Time = c.now().Truncate(time.Second)
	inv.Servers = slices.Clone(inv.Servers)
	inv.Firewalls = slices.Clone(inv.Firewalls)
	return &inv, ctx.Err()
}

func (c *fakeCloud) Catalog(context.Context) (*remote.Catalog, error) { return c.cat, c.down }
func (c *fakeCloud) Usage() remote.Usage                              { return remote.Usage{Calls: 1, Limit: 3600, Remaining: 3500} }

func (c *fakeCloud) CreateServer(_ context.Context, s remote.ServerSpec) (*remote.Server, error) {
	var out remote.Server
	err := c.write("create server "+s.Name, func() error {
		out = remote.Server{ID: c.id(), Name: s.Name, Status: "running", Type: s.Type, Location: s.Location, Labels: s.Labels, IPv4: "192.0.2.9"}
		c.inv.Servers = append(c.inv.Servers, out)
		return nil
	})
	return &out, err
}

func (c *fakeCloud) Server(_ context.Context, id int64) (*remote.Server, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.inv.Servers {
		if s.ID == id {
			return &s, nil
		}
	}
	return nil, fmt.Errorf("server %d: %w", id, remote.ErrNotFound)
}

func (c *fakeCloud) LabelServer(_ context.Context, id int64, labels map[string]string) error {
	return c.write("label server", func() error {
		for i := range c.inv.Servers {
			if c.inv.Servers[i].ID == id {
				c.inv.Servers[i].Labels = labels
			}
		}
		return nil
	})
}

func (c *fakeCloud) DeleteServer(_ context.Context, id int64) error {
	return c.write(fmt.Sprintf("delete server %d", id), func() error {
		c.inv.Servers = without(c.inv.Servers, serverID, id)
		return nil
	})
}

func (c *fakeCloud) PowerOn(context.Context, int64) error { return errors.New("not used") }

func (c *fakeCloud) AttachNetwork(context.Context, int64, int64) error { return errors.New("not used") }

func (c *fakeCloud) CreateNetwork(_ context.Context, n remote.Network, _ string) (*remote.Network, error) {
	err := c.write("create network", func() error {
		n.ID = c.id()
		c.inv.Networks = append(c.inv.Networks, n)
		return nil
	})
	return &n, err
}

func (c *fakeCloud) DeleteNetwork(_ context.Context, id int64) error {
	return c.write("delete network", func() error {
		c.inv.Networks = without(c.inv.Networks, networkID, id)
		return nil
	})
}

func (c *fakeCloud) CreateFirewall(_ context.Context, f remote.Firewall) (*remote.Firewall, error) {
	err := c.write("create firewall "+f.Name, func() error {
		for i := range c.inv.Firewalls {
			if c.unique && c.inv.Firewalls[i].Name == f.Name {
				return &remote.CloudError{Op: "create firewall", Code: "uniqueness_error", Status: 409, Message: "name is taken"}
			}
		}
		f.ID, f.Created = c.id(), c.now()
		f.Labels = maps.Clone(f.Labels)
		c.inv.Firewalls = append(c.inv.Firewalls, f)
		return nil
	})
	return &f, err
}

func (c *fakeCloud) SetFirewallRules(context.Context, int64, []remote.Rule) error {
	return errors.New("not used")
}

func (c *fakeCloud) ApplyFirewall(context.Context, int64, []int64) error {
	return errors.New("not used")
}

func (c *fakeCloud) LabelFirewall(_ context.Context, id int64, labels map[string]string) error {
	return c.write("label firewall", func() error {
		for i := range c.inv.Firewalls {
			if c.inv.Firewalls[i].ID == id {
				c.inv.Firewalls[i].Labels = maps.Clone(labels)
				return nil
			}
		}
		return fmt.Errorf("firewall %d: %w", id, remote.ErrNotFound)
	})
}

func (c *fakeCloud) DeleteFirewall(_ context.Context, id int64) error {
	return c.write(fmt.Sprintf("delete firewall %d", id), func() error {
		for i := range c.inv.Firewalls {
			f := &c.inv.Firewalls[i]
			if f.ID == id && len(f.Servers) > 0 {
				return &remote.CloudError{Op: "delete firewall", Code: "resource_in_use", Status: 409, Message: "in use"}
			}
		}
		c.inv.Firewalls = without(c.inv.Firewalls, firewallID, id)
		return nil
	})
}

func (c *fakeCloud) CreatePlacementGroup(_ context.Context, g remote.PlacementGroup) (*remote.PlacementGroup, error) {
	err := c.write("create placement group", func() error {
		g.ID = c.id()
		c.inv.PlacementGroups = append(c.inv.PlacementGroups, g)
		return nil
	})
	return &g, err
}

func (c *fakeCloud) DeletePlacementGroup(_ context.Context, id int64) error {
	return c.write("delete placement group", func() error {
		c.inv.PlacementGroups = without(c.inv.PlacementGroups, groupID, id)
		return nil
	})
}

func (c *fakeCloud) CreateSSHKey(_ context.Context, k remote.SSHKey) (*remote.SSHKey, error) {
	err := c.write("create ssh key", func() error {
		k.ID = c.id()
		c.inv.SSHKeys = append(c.inv.SSHKeys, k)
		return nil
	})
	return &k, err
}

func (c *fakeCloud) DeleteSSHKey(_ context.Context, id int64) error {
	return c.write("delete ssh key", func() error {
		c.inv.SSHKeys = without(c.inv.SSHKeys, sshKeyID, id)
		return nil
	})
}

func (c *fakeCloud) CreateLoadBalancer(_ context.Context, lb remote.LoadBalancer) (*remote.LoadBalancer, error) {
	err := c.write("create load balancer", func() error {
		lb.ID = c.id()
		c.inv.LoadBalancers = append(c.inv.LoadBalancers, lb)
		return nil
	})
	return &lb, err
}

func (c *fakeCloud) LoadBalancer(context.Context, int64) (*remote.LoadBalancer, error) {
	return nil, errors.New("not used")
}

func (c *fakeCloud) SetLoadBalancer(context.Context, remote.LoadBalancer) error {
	return errors.New("not used")
}

func (c *fakeCloud) DeleteLoadBalancer(_ context.Context, id int64) error {
	return c.write("delete load balancer", func() error {
		c.inv.LoadBalancers = without(c.inv.LoadBalancers, balancerID, id)
		return nil
	})
}

// fakeHosts are hosts by name; one that is not there is never reached.
type fakeHosts struct {
	mu    sync.Mutex
	hosts map[string]*fakeHost
}

func (h *fakeHosts) Open(c remote.Contact) remote.Host {
	h.mu.Lock()
	defer h.mu.Unlock()
	if f := h.hosts[c.Host]; f != nil {
		return f
	}
	return &fakeHost{name: c.Host, err: fmt.Errorf("%s: %w", c.Host, remote.ErrUnreachable)}
}

func (h *fakeHosts) Install(context.Context, remote.Contact, []byte, remote.HostIdentity) (remote.HostIdentity, error) {
	return remote.HostIdentity{}, errors.New("not used")
}

func (h *fakeHosts) Close() error { return nil }

type fakeHost struct {
	mu      sync.Mutex
	name    string
	id      remote.HostIdentity
	err     error // of every call
	hang    bool  // Facts answers only to its context
	slow    time.Duration
	files   map[string][]byte
	journal map[string][]byte
	asked   remote.FactsQuery
	applied int
}

func (h *fakeHost) Name() string { return h.name }

func (h *fakeHost) Facts(ctx context.Context, q remote.FactsQuery) (*remote.Facts, error) {
	if h.hang {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if h.slow > 0 {
		time.Sleep(h.slow) // a bubble's time
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asked = q
	if h.err != nil {
		return nil, h.err
	}
	f := &remote.Facts{Host: h.id, Files: map[string]string{}}
	for _, p := range q.Paths {
		f.Files[p] = "absent"
		if b, ok := h.files[p]; ok {
			s := sha256.Sum256(b)
			f.Files[p] = hex.EncodeToString(s[:]) + " 600 root:root"
		}
	}
	if q.Journal {
		f.Journal = maps.Clone(h.journal)
	}
	return f, nil
}

func (h *fakeHost) Apply(_ context.Context, s remote.HostState) (*remote.Applied, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return nil, h.err
	}
	h.applied++
	for _, f := range s.Files {
		if f.Mode&fs.ModeDir == 0 {
			if h.files == nil {
				h.files = map[string][]byte{}
			}
			h.files[f.Path] = f.Content
		}
	}
	return &remote.Applied{}, nil
}

func (h *fakeHost) Run(context.Context, remote.Job) (*remote.JobResult, error) {
	return nil, errors.New("not used")
}

func (h *fakeHost) Exec(context.Context, remote.Command) (*remote.CommandResult, error) {
	return &remote.CommandResult{}, h.err
}

func (h *fakeHost) Get(_ context.Context, path string) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return nil, h.err
	}
	if b, ok := h.files[path]; ok {
		return b, nil
	}
	return nil, fmt.Errorf("%s: %w", path, remote.ErrNotFound)
}

func (h *fakeHost) Dial(context.Context, string) (net.Conn, error) {
	return nil, errors.New("not used")
}

func (h *fakeHost) Journal(_ context.Context, entries map[string][]byte) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return h.err
	}
	if h.journal == nil {
		h.journal = map[string][]byte{}
	}
	for k, v := range entries {
		if v == nil {
			delete(h.journal, k)
			continue
		}
		h.journal[k] = v
	}
	return nil
}

// stage is a world with one cluster's config.
type stage struct {
	t     *testing.T
	cloud *fakeCloud
	hosts *fakeHosts
	store *Mem
	cfg   *spec.Cluster
	keys  []KeyCreated
	kube  *fakeKube
	etcd  *fakeEtcd
	run   int
}

const config = `name: demo
cloud: sim
masters: {count: 3}
workers: [{pool: worker, count: 2}]
`

func newStage(t *testing.T) *stage {
	t.Helper()
	return &stage{
		t: t, cloud: newCloud(time.Now), hosts: &fakeHosts{hosts: map[string]*fakeHost{}}, store: NewMem(),
		cfg: parse(t, config), kube: &fakeKube{}, etcd: &fakeEtcd{},
	}
}

func parse(t *testing.T, text string) *spec.Cluster {
	t.Helper()
	c, _, err := spec.Parse([]byte(text), "demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (g *stage) options() Options {
	g.run++
	return Options{
		Name: "demo", Store: g.store, Spec: g.cfg, LockText: []byte("kubernetes: v1.37.2\n"),
		SSHKey: "ssh-ed25519 AAAA me@here", Version: "1.2.0", RunID: fmt.Sprintf("run-%d", g.run), Holder: "me@here:1",
		World: remote.World{
			Name: "sim", Cloud: g.cloud, Hosts: g.hosts, Clock: time.Now,
			NewKube: func(c remote.ClientCert, e []remote.Endpoint) (remote.Kube, error) {
				g.kube.cert, g.kube.endpoints = c, e
				return g.kube, nil
			},
			NewEtcd: func(c remote.ClientCert, e []remote.Endpoint) (remote.Etcd, error) {
				g.etcd.cert, g.etcd.endpoints = c, e
				return g.etcd, nil
			},
		},
		KeyCreated: func(k KeyCreated) { g.keys = append(g.keys, k) },
		Timer:      bubbleTimer(nil),
	}
}

func (g *stage) load() *Session {
	g.t.Helper()
	s, err := Load(g.options())
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

// up makes an established cluster: unit, servers, hosts.
func (g *stage) up() {
	g.t.Helper()
	s := g.load()
	ctx := g.t.Context()
	if _, err := s.Discover(ctx, Look{}); err != nil {
		g.t.Fatal(err)
	}
	if _, err := s.Write(ctx, Ask{}, Look{}); err != nil {
		g.t.Fatal(err)
	}
	u := s.Unit()
	for _, a := range []string{KubernetesCA, EtcdCA, FrontProxyCA} {
		if _, err := u.CreateAuthority(a, a); err != nil {
			g.t.Fatal(err)
		}
	}
	labels := map[string]string{remote.LabelCluster: "demo", remote.LabelUID: u.UID()}
	if _, err := s.cloud.CreateNetwork(ctx, remote.Network{Name: "demo", Range: "10.99.0.0/16", Labels: labels}, "eu-central"); err != nil {
		g.t.Fatal(err)
	}
	if _, err := s.cloud.CreateFirewall(ctx, remote.Firewall{Name: "demo", Labels: labels}); err != nil {
		g.t.Fatal(err)
	}
	if _, err := s.cloud.CreatePlacementGroup(ctx, remote.PlacementGroup{Name: "demo-master-1", Labels: labels}); err != nil {
		g.t.Fatal(err)
	}
	if _, err := s.cloud.CreateSSHKey(ctx, remote.SSHKey{Name: "demo", Labels: labels}); err != nil {
		g.t.Fatal(err)
	}
	if _, err := s.cloud.CreateLoadBalancer(ctx, remote.LoadBalancer{Name: "demo", Type: "lb11", Location: "fsn1", IPv4: "198.51.100.1", Labels: labels}); err != nil {
		g.t.Fatal(err)
	}
	hosts, err := s.Hosts()
	if err != nil {
		g.t.Fatal(err)
	}
	for _, h := range hosts {
		g.addHost(s, h)
	}
	if err := u.MarkBorn(); err != nil {
		g.t.Fatal(err)
	}
	if w, err := s.Finish(ctx, Outcome{OK: true, Whole: true}); err != nil || len(w) > 0 {
		g.t.Fatal(w, err)
	}
	if err := s.Close(); err != nil {
		g.t.Fatal(err)
	}
}

func (g *stage) addHost(s *Session, h spec.Host) {
	g.t.Helper()
	u := s.Unit()
	l := map[string]string{
		remote.LabelCluster: "demo", remote.LabelUID: u.UID(), remote.LabelHost: h.Name,
		remote.LabelRole: h.Role, remote.LabelIndex: fmt.Sprint(h.Index),
	}
	if h.Role == spec.Master {
		l[remote.LabelBorn] = "1"
	}
	sv, err := s.cloud.CreateServer(g.t.Context(), remote.ServerSpec{Name: h.Node, Type: h.Type, Location: h.Location, Labels: l})
	if err != nil {
		g.t.Fatal(err)
	}
	r := tasks.HostRecord{
		Host: h.Name, Index: h.Index, ServerID: sv.ID, Addr: sv.IPv4, Installation: "disk-" + h.Name,
		HostKey: "ssh-ed25519 KEY-" + h.Name, Seen: true,
	}
	if err := u.SaveHost(r); err != nil {
		g.t.Fatal(err)
	}
	g.hosts.mu.Lock()
	g.hosts.hosts[h.Name] = &fakeHost{name: h.Name, id: remote.HostIdentity{
		UID: u.UID(), Cluster: "demo", Host: h.Name, Index: h.Index, Installation: r.Installation,
	}}
	g.hosts.mu.Unlock()
}

// look is a session that has looked.
func (g *stage) look(l Look) (*Session, *Found) {
	g.t.Helper()
	s := g.load()
	f, err := s.Discover(g.t.Context(), l)
	if err != nil {
		g.t.Fatal(err)
	}
	return s, f
}

func refusal(t *testing.T, err error, exit int) *Refusal {
	t.Helper()
	var r *Refusal
	if !errors.As(err, &r) {
		t.Fatalf("error %v is no refusal", err)
	}
	if r.Exit != exit {
		t.Fatalf("exit %d (%v), want %d", r.Exit, r, exit)
	}
	return r
}

type fakeKube struct {
	remote.Kube
	cert      remote.ClientCert
	endpoints []remote.Endpoint
	nodes     []remote.Node
	err       error
	hang      bool
	ca        string
}

func (k *fakeKube) answer(ctx context.Context) error {
	if k.hang {
		<-ctx.Done()
		return ctx.Err()
	}
	return k.err
}

func (k *fakeKube) Version(ctx context.Context) (string, error) { return "v1.37.2", k.answer(ctx) }

func (k *fakeKube) Nodes(ctx context.Context) ([]remote.Node, error) { return k.nodes, k.answer(ctx) }

func (k *fakeKube) Get(ctx context.Context, _ remote.ObjectRef) ([]byte, error) {
	return []byte(`{"metadata":{},"items":[]}`), k.answer(ctx)
}

func (k *fakeKube) ServedCA(ctx context.Context, _ string) (string, error) {
	return k.ca, k.answer(ctx)
}

type fakeEtcd struct {
	remote.Etcd
	cert      remote.ClientCert
	endpoints []remote.Endpoint
	status    map[string]*remote.EtcdStatus
	members   []remote.Member
	snapshot  []byte
	err       error
}

func (e *fakeEtcd) Members(context.Context) ([]remote.Member, error) { return e.members, e.err }

func (e *fakeEtcd) Status(_ context.Context, host string) (*remote.EtcdStatus, error) {
	if s := e.status[host]; s != nil {
		return s, nil
	}
	return nil, errors.New("no answer")
}

func (e *fakeEtcd) Alarms(context.Context) ([]string, error) { return nil, e.err }

func (e *fakeEtcd) Snapshot(_ context.Context, _ string, w interface{ Write([]byte) (int, error) }) (int64, error) {
	if e.err != nil {
		return 0, e.err
	}
	half := len(e.snapshot) / 2
	for _, p := range [][]byte{e.snapshot[:half], e.snapshot[half:]} {
		if _, err := w.Write(p); err != nil {
			return 0, err
		}
	}
	return int64(len(e.snapshot)), nil
}

func (e *fakeEtcd) Close() error { return nil }
