package provision

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"hk/remote"
	"hk/tasks"
	"hk/tasks/host"
)

// fakeCloud is a project in memory. Only what a server needs is there; the rest
// panics through the nil interface.
type fakeCloud struct {
	remote.Cloud
	inv     remote.Inventory
	next    int64
	creates int
	// lost answers the next create with a transport error after it was done;
	// refuse answers it with this error and does nothing.
	lost   bool
	refuse error
	looks  int
	before func() // called when a create arrives
}

func (c *fakeCloud) Inventory(context.Context) (*remote.Inventory, error) {
	c.looks++
	inv := c.inv
	return &inv, nil
}

func (c *fakeCloud) CreateServer(_ context.Context, s remote.ServerSpec) (*remote.Server, error) {
	if c.before != nil {
		c.before()
	}
	if c.refuse != nil {
		return nil, c.refuse
	}
	for i := range c.inv.Servers {
		if c.inv.Servers[i].Name == s.Name {
			return nil, &remote.CloudError{Op: "create server " + s.Name, Code: uniquenessError, Message: "name is used"}
		}
	}
	c.creates++
	c.next++
	n := remote.Server{
		ID: c.next, Name: s.Name, Status: "running", Labels: s.Labels, IPv4: fmt.Sprintf("198.18.0.%d", c.next),
		Firewalls: s.Firewalls, Private: map[int64]string{}, Placement: s.Placement,
	}
	for _, net := range s.Networks {
		n.Private[net] = "10.99.0.2"
	}
	c.inv.Servers = append(c.inv.Servers, n)
	if c.lost {
		return nil, &remote.CloudError{Op: "create server " + s.Name, Message: "connection reset", Again: true}
	}
	return &n, nil
}

func (c *fakeCloud) server(id int64) *remote.Server {
	for i := range c.inv.Servers {
		if c.inv.Servers[i].ID == id {
			return &c.inv.Servers[i]
		}
	}
	return nil
}

func (c *fakeCloud) Server(_ context.Context, id int64) (*remote.Server, error) {
	if s := c.server(id); s != nil {
		n := *s
		return &n, nil
	}
	return nil, remote.ErrNotFound
}

func (c *fakeCloud) PowerOn(_ context.Context, id int64) error {
	c.server(id).Status = "running"
	return nil
}

func (c *fakeCloud) ApplyFirewall(_ context.Context, id int64, servers []int64) error {
	for _, s := range servers {
		c.server(s).Firewalls = append(c.server(s).Firewalls, id)
	}
	return nil
}

func (c *fakeCloud) AttachNetwork(_ context.Context, server, network int64) error {
	c.server(server).Private[network] = "10.99.0.3"
	return nil
}

// fakeVault keeps host records only.
type fakeVault struct {
	tasks.Vault
	hosts map[string]tasks.HostRecord
}

func (v *fakeVault) Host(name string) (tasks.HostRecord, bool) {
	r, ok := v.hosts[name]
	return r, ok
}

func (v *fakeVault) SaveHost(r tasks.HostRecord) error {
	v.hosts[r.Host] = r
	return nil
}

// stage is a cluster's cloud and unit around the server task of master-1.
type stage struct {
	cloud *fakeCloud
	vault *fakeVault
	env   *tasks.Env
	in    serverIn
}

func newStage() *stage {
	s := &stage{cloud: &fakeCloud{}, vault: &fakeVault{hosts: map[string]tasks.HostRecord{}}}
	ours := map[string]string{remote.LabelUID: "uid"}
	s.cloud.inv.PlacementGroups = []remote.PlacementGroup{{ID: 50, Name: "demo-master-1", Labels: ours}}
	s.env = &tasks.Env{
		Cluster: "demo", UID: "uid", Version: "v1", Cloud: s.cloud, Vault: s.vault, Log: func(string) {}, Note: func(string, string) {},
		Found: func() *remote.Inventory { inv := s.cloud.inv; return &inv },
	}
	s.in = serverIn{
		Cluster: "demo", Host: "master-1", Node: "demo-master-1", Index: 4, Role: "master", Pool: "master", Type: "cx23",
		Image: "debian-12", Location: "fsn1", Network: 7, Firewalls: []int64{8}, Group: "demo-master-1", Key: 9,
	}
	return s
}

func (s *stage) build(t *testing.T) error {
	t.Helper()
	if err := runServer(t.Context(), s.in, s.env); err != nil {
		return err
	}
	out, err := verifyServer(t.Context(), s.in, s.env)
	if err != nil {
		return err
	}
	rec := s.vault.hosts["master-1"]
	if out["id"] != fmt.Sprint(rec.ServerID) || out["installation"] != rec.Installation || out["ipv4"] != rec.Addr {
		t.Errorf("output %v does not fit record %+v", out, rec)
	}
	return nil
}

func TestServerIntentComesFirst(t *testing.T) {
	s := newStage()
	seen := false
	s.cloud.before = func() {
		rec, ok := s.vault.hosts["master-1"]
		seen = ok && rec.ServerID == 0 && rec.ThrowawayPEM != "" && rec.HostKeyPEM != "" && rec.Index == 4
	}
	if err := s.build(t); err != nil {
		t.Fatal(err)
	}
	if !seen {
		t.Error("the create was sent before its intent was kept")
	}
	l := s.cloud.inv.Servers[0].Labels
	key, err := host.KeyLabel(s.vault.hosts["master-1"].HostKey)
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range map[string]string{
		remote.LabelCluster: "demo", remote.LabelUID: "uid", remote.LabelHost: "master-1", remote.LabelIndex: "4",
		remote.LabelRole: "master", remote.LabelPool: "master", remote.LabelHostKey: key, remote.LabelVersion: "v1",
	} {
		if l[k] != want {
			t.Errorf("label %s is %q, want %q", k, l[k], want)
		}
	}
	if s.cloud.inv.Servers[0].Placement != 50 {
		t.Errorf("placement group %d", s.cloud.inv.Servers[0].Placement)
	}
	if s.cloud.looks != 0 {
		t.Errorf("%d list calls where the answers were at hand", s.cloud.looks)
	}
}

func TestServerOnceMore(t *testing.T) {
	s := newStage()
	for range 2 {
		if err := s.build(t); err != nil {
			t.Fatal(err)
		}
	}
	if s.cloud.creates != 1 {
		t.Errorf("%d servers", s.cloud.creates)
	}
}

// TestServerLostAnswer: the server is there, its create looked like a failure.
func TestServerLostAnswer(t *testing.T) {
	s := newStage()
	s.cloud.lost = true
	if err := s.build(t); err != nil {
		t.Fatal(err)
	}
	if s.cloud.creates != 1 || s.vault.hosts["master-1"].ServerID != 1 {
		t.Errorf("%d servers, record %+v", s.cloud.creates, s.vault.hosts["master-1"])
	}
}

// TestServerKilledBetween: hk died after the create was done and before its ID
// was kept; the next run takes the server by its labels and the same keys.
func TestServerKilledBetween(t *testing.T) {
	s := newStage()
	if err := s.build(t); err != nil {
		t.Fatal(err)
	}
	rec := s.vault.hosts["master-1"]
	key := rec.HostKey
	rec.ServerID, rec.Addr = 0, ""
	s.vault.hosts["master-1"] = rec
	if err := s.build(t); err != nil {
		t.Fatal(err)
	}
	if got := s.vault.hosts["master-1"]; s.cloud.creates != 1 || got.ServerID != 1 || got.HostKey != key {
		t.Errorf("%d servers, record %+v", s.cloud.creates, got)
	}
}

// TestServerKilledBefore: hk died between intent and create; the keys of the
// intent are used.
func TestServerKilledBefore(t *testing.T) {
	s := newStage()
	s.cloud.refuse = errors.New("killed")
	if err := s.build(t); err == nil {
		t.Fatal("no error")
	}
	key := s.vault.hosts["master-1"].HostKey
	s.cloud.refuse = nil
	if err := s.build(t); err != nil {
		t.Fatal(err)
	}
	if s.vault.hosts["master-1"].HostKey != key {
		t.Error("new keys for an intent that was kept")
	}
}

func TestServerRefuses(t *testing.T) {
	foreign := func(s *stage, labels map[string]string) {
		s.cloud.inv.Servers = append(s.cloud.inv.Servers, remote.Server{ID: 99, Name: "demo-master-1", Status: "running", Labels: labels})
	}
	for name, c := range map[string]struct {
		set  func(s *stage)
		want string
	}{
		"a server of this name without labels": {func(s *stage) { foreign(s, nil) }, "does not carry this cluster's UID"},
		"of another cluster of this name": {func(s *stage) {
			foreign(s, map[string]string{remote.LabelUID: "other", remote.LabelHost: "master-1", remote.LabelCluster: "demo"})
		}, "does not carry this cluster's UID"},
		"ours, announced with another host key": {func(s *stage) {
			rec, err := newHostRecord("master-1", 4)
			if err != nil {
				panic(err)
			}
			s.vault.hosts["master-1"] = rec
			foreign(s, map[string]string{remote.LabelUID: "uid", remote.LabelHost: "master-1", remote.LabelHostKey: "x"})
		}, "announced with another host key"},
		"ours, nothing kept of it": {func(s *stage) {
			foreign(s, map[string]string{remote.LabelUID: "uid", remote.LabelHost: "master-1"})
		}, "knows no host key"},
		"gone from an established cluster": {func(s *stage) {
			rec, err := newHostRecord("master-1", 4)
			if err != nil {
				panic(err)
			}
			rec.ServerID = 42
			s.vault.hosts["master-1"] = rec
			s.env.Established = true
		}, "hk node replace demo/master-1"},
		"no capacity": {func(s *stage) {
			s.cloud.refuse = &remote.CloudError{Op: "create server", Code: "resource_unavailable", Message: "no room"}
		}, "resource_unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage()
			c.set(s)
			had := len(s.cloud.inv.Servers)
			err := s.build(t)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if len(s.cloud.inv.Servers) != had {
				t.Error("a server was made all the same")
			}
		})
	}
}

// TestServerGoneWhileNotEstablished: what was lost before the cluster lived is
// made again, with new keys.
func TestServerGoneWhileNotEstablished(t *testing.T) {
	s := newStage()
	if err := s.build(t); err != nil {
		t.Fatal(err)
	}
	old := s.vault.hosts["master-1"]
	s.cloud.inv.Servers = nil
	if err := s.build(t); err != nil {
		t.Fatal(err)
	}
	if n := s.vault.hosts["master-1"]; n.HostKey == old.HostKey || n.Installation == old.Installation || n.ServerID == old.ServerID {
		t.Errorf("the new server goes by the old one's record: %+v", n)
	}
}

// TestServerRepairs: firewall taken off, detached, switched off.
func TestServerRepairs(t *testing.T) {
	s := newStage()
	if err := s.build(t); err != nil {
		t.Fatal(err)
	}
	sv := &s.cloud.inv.Servers[0]
	sv.Firewalls, sv.Private, sv.Status = nil, map[int64]string{}, "off"
	w := &tasks.World{UID: "uid", Inventory: &s.cloud.inv}
	if got := watchObject(w, "cloud:server", s.in.pick("uid"), s.in.value)["cloud:server"]; got != "1 without firewall 8" {
		t.Errorf("watched as %q", got)
	}
	if err := s.build(t); err != nil {
		t.Fatal(err)
	}
	if sv = &s.cloud.inv.Servers[0]; sv.Status != "running" || len(sv.Firewalls) != 1 || sv.Private[7] == "" {
		t.Errorf("%+v", sv)
	}
}

// fakeHosts is first contact: it answers with an identity or an error.
type fakeHosts struct {
	remote.Hosts
	found   func(want remote.HostIdentity) remote.HostIdentity
	err     error
	contact remote.Contact
	pem     string
}

func (h *fakeHosts) Install(_ context.Context, c remote.Contact, pem []byte, id remote.HostIdentity) (remote.HostIdentity, error) {
	h.contact, h.pem = c, string(pem)
	if h.err != nil {
		return remote.HostIdentity{}, h.err
	}
	if h.found != nil {
		id = h.found(id)
	}
	return id, nil
}

func TestFirstContactDropsThePrivateKeys(t *testing.T) {
	s := newStage()
	if err := s.build(t); err != nil {
		t.Fatal(err)
	}
	rec := s.vault.hosts["master-1"]
	h := &fakeHosts{}
	s.env.Hosts = h
	in := sshIn{Cluster: "demo", Host: "master-1", Index: 4, User: "root", Port: 22, IPv4: rec.Addr, Installation: rec.Installation}
	h.err = errors.New("no route")
	if err := runSSH(t.Context(), in, s.env); err == nil {
		t.Fatal("no error")
	}
	if got := s.vault.hosts["master-1"]; got.Seen || got.HostKeyPEM == "" {
		t.Errorf("after a failed contact: %+v", got)
	}
	h.err = nil
	if err := runSSH(t.Context(), in, s.env); err != nil {
		t.Fatal(err)
	}
	if h.contact.Throwaway != rec.Throwaway || h.contact.HostKey != rec.HostKey || h.contact.Seen || h.pem != rec.HostKeyPEM {
		t.Errorf("contact %+v", h.contact)
	}
	got := s.vault.hosts["master-1"]
	if !got.Seen || got.HostKeyPEM != "" || got.ThrowawayPEM != "" || got.Throwaway == "" || got.HostKey != rec.HostKey {
		t.Errorf("record %+v", got)
	}
}

func TestFirstContactRefusesAnotherMachine(t *testing.T) {
	for want, change := range map[string]func(id *remote.HostIdentity){
		"belongs to the cluster with UID other": func(id *remote.HostIdentity) { id.UID = "other" },
		"says it is worker-9":                   func(id *remote.HostIdentity) { id.Host = "worker-9" },
		"host was rebuilt":                      func(id *remote.HostIdentity) { id.Installation = "another" },
	} {
		s := newStage()
		if err := s.build(t); err != nil {
			t.Fatal(err)
		}
		rec := s.vault.hosts["master-1"]
		s.env.Hosts = &fakeHosts{found: func(id remote.HostIdentity) remote.HostIdentity { change(&id); return id }}
		in := sshIn{Cluster: "demo", Host: "master-1", Index: 4, User: "root", Port: 22, IPv4: rec.Addr, Installation: rec.Installation}
		err := runSSH(t.Context(), in, s.env)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
		if s.vault.hosts["master-1"].Seen {
			t.Errorf("%s: the key counts as seen", want)
		}
	}
}
