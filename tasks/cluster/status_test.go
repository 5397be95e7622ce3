package cluster

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"hk/remote"
	"hk/tasks/pki"
)

// The JSON of status is a contract: every field is there, absent values null.
func TestStatusFields(t *testing.T) {
	g := newStage(t)
	s := g.load()
	st, err := s.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"v", "cluster", "uid", "established", "ready", "nodes", "hosts", "etcd", "phases", "credentials", "certificates",
		"versions", "lock", "last_run", "api_budget", "warnings",
	}
	for _, k := range want {
		if _, ok := got[k]; !ok {
			t.Errorf("no field %s", k)
		}
		delete(got, k)
	}
	if len(got) != 0 {
		t.Errorf("more fields: %v", got)
	}
	for _, k := range []string{`"uid":null`, `"ready":null`, `"nodes":null`, `"etcd":null`, `"lock":null`, `"last_run":null`, `"credentials":{"source":null}`, `"established":false`} {
		if !bytes.Contains(raw, []byte(k)) {
			t.Errorf("no %s in %s", k, raw)
		}
	}
}

func (g *stage) nodes() {
	for _, h := range []string{"master-1", "master-2", "master-3", "worker-1", "worker-2"} {
		g.kube.nodes = append(g.kube.nodes, remote.Node{Name: "demo-" + h, Ready: true, KubeletVersion: "v1.37.2"})
	}
	g.etcd.status = map[string]*remote.EtcdStatus{}
	for i, h := range []string{"master-1", "master-2", "master-3"} {
		g.etcd.status[h] = &remote.EtcdStatus{Member: uint64(i + 1), Leader: 2, Version: "3.7.3", DBSize: 4096, Applied: 77}
		g.etcd.members = append(g.etcd.members, remote.Member{ID: uint64(i + 1), Name: h})
	}
}

func TestStatusOfAHealthyCluster(t *testing.T) {
	g := newStage(t)
	g.up()
	g.nodes()
	g.store.Step = func(what string) error { t.Errorf("status wrote: %s", what); return nil }
	calls := len(g.cloud.calls)
	g.cfg = nil
	st, err := g.load().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if st.Ready == nil || !*st.Ready || len(st.Nodes) != 5 || len(st.Hosts) != 5 || !*st.Established {
		t.Errorf("status %+v", st)
	}
	if h := st.Hosts[0]; h.Host != "master-1" || h.State != "running" || *h.Price != 4.5 || *h.ServerID == 0 {
		t.Errorf("host %+v", h)
	}
	if st.Etcd == nil || !st.Etcd.Healthy || len(st.Etcd.Members) != 3 || !st.Etcd.Members[1].Leader {
		t.Errorf("etcd %+v", st.Etcd)
	}
	if len(st.Warnings) != 0 {
		t.Errorf("warnings %v", st.Warnings)
	}
	if !slices.ContainsFunc(st.Certificates, func(c Certificate) bool { return c.Name == "ca.crt" && !c.Expiring }) {
		t.Errorf("certificates %+v", st.Certificates)
	}
	if len(g.cloud.calls) != calls {
		t.Error("status wrote to the cloud")
	}
}

// Whatever hangs, status is an answer within three seconds.
func TestStatusIsNeverSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newStage(t)
		g.up()
		g.nodes()
		g.kube.hang = true
		g.hosts.hosts["master-2"].hang = true
		g.cloud.inv.Servers[4].Status = "off"
		delete(g.etcd.status, "master-2")
		start := time.Now()
		st, err := g.load().Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("took %s", took)
		}
		if st.Ready != nil || st.Nodes != nil {
			t.Errorf("ready %v, nodes %v", st.Ready, st.Nodes)
		}
		if st.Hosts[1].State != "unreachable" || st.Hosts[4].State != "off" || st.Hosts[0].State != "running" {
			t.Errorf("hosts %+v", st.Hosts)
		}
		if m := st.Etcd.Members[1]; m.Problem == nil || st.Etcd.Members[0].Problem != nil {
			t.Errorf("etcd %+v", st.Etcd)
		}
		if !slices.ContainsFunc(st.Warnings, func(w string) bool { return strings.HasPrefix(w, "the Kubernetes API does not answer") }) {
			t.Errorf("warnings %v", st.Warnings)
		}
	})
}

// Without the cloud status still says what the unit and the hosts know.
func TestStatusWithoutTheCloud(t *testing.T) {
	g := newStage(t)
	g.up()
	g.nodes()
	g.cloud.down = errors.New("502")
	st, err := g.load().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if st.Ready == nil || !*st.Ready || *st.UID == "" || !*st.Established || st.Hosts[0].ServerID == nil || st.Hosts[0].State != "unknown" {
		t.Errorf("status %+v, hosts %+v", st, st.Hosts)
	}
}

func TestCertsCheck(t *testing.T) {
	g := newStage(t)
	g.up()
	s := g.load()
	ca, err := s.Unit().Authority(KubernetesCA)
	if err != nil {
		t.Fatal(err)
	}
	g.kube.ca = ca.Fingerprint()
	leaf := func(life time.Duration) []byte {
		p, err := ca.Issue(pki.Leaf{CN: "x", Server: true, Life: life}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return p.CertPEM
	}
	other, err := pki.New("ca", "kubernetes", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	f := map[string][]byte{
		"/etc/kubernetes/pki/ca.crt":                       ca.CertPEM,
		"/etc/kubernetes/pki/apiserver.crt":                leaf(365 * 24 * time.Hour),
		"/etc/kubernetes/pki/front-proxy-client.crt":       leaf(61 * 24 * time.Hour),
		"/etc/kubernetes/pki/apiserver-etcd-client.crt":    []byte("nonsense"),
		"/var/lib/kubelet/pki/kubelet-client-current.pem":  leaf(300 * 24 * time.Hour),
		"/etc/kubernetes/pki/apiserver-kubelet-client.crt": leaf(59 * 24 * time.Hour),
	}
	if g.hosts.hosts["master-1"].files == nil {
		g.hosts.hosts["master-1"].files = map[string][]byte{}
	}
	maps.Copy(g.hosts.hosts["master-1"].files, f)
	g.hosts.hosts["master-2"].files["/etc/kubernetes/pki/ca.crt"] = other.CertPEM
	g.hosts.hosts["worker-1"].err = remote.ErrUnreachable
	r, err := s.CheckCerts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]Certificate{}
	for _, c := range r.Certificates {
		by[c.Name] = c
	}
	if c := by["master-1:/etc/kubernetes/pki/apiserver.crt"]; c.Expires == nil || c.Expiring {
		t.Errorf("apiserver %+v", c)
	}
	if c := by["master-1:/etc/kubernetes/pki/apiserver-etcd-client.crt"]; c.Problem == nil {
		t.Errorf("nonsense %+v", c)
	}
	if by["ca.crt"].Expires == nil || r.Expiring() != 0 {
		t.Errorf("%d expiring: %v", r.Expiring(), r.Warnings)
	}
	all := strings.Join(r.Warnings, "\n")
	for _, w := range []string{"master-2:/etc/kubernetes/pki/ca.crt is another authority", "worker-1: its certificates could not be read"} {
		if !strings.Contains(all, w) {
			t.Errorf("no %q in:\n%s", w, all)
		}
	}
	g.kube.ca = strings.Repeat("0", 64)
	r, err = s.CheckCerts(t.Context())
	if err != nil || !strings.Contains(strings.Join(r.Warnings, "\n"), "master-1: its API server presents authority 0000000000000000") {
		t.Errorf("warnings %v, %v", r.Warnings, err)
	}
}

func TestCertificateIsPointedOut(t *testing.T) {
	day := 24 * time.Hour
	now := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
	tests := []struct {
		name   string
		age    time.Duration
		life   time.Duration
		renews bool
		want   bool
	}{
		{"a year, new", 0, 365 * day, false, false},
		{"a year, 61 days left", 304 * day, 365 * day, false, false},
		{"a year, 59 days left", 306 * day, 365 * day, false, true},
		{"over", 366 * day, 365 * day, false, true},
		{"renews itself, 59 days left", 306 * day, 365 * day, true, false},
		{"renews itself, a tenth left", 340 * day, 365 * day, true, true},
		{"short-lived, new", 0, day, false, false},
		{"short-lived, nearly over", 23 * time.Hour, day, false, true},
	}
	for _, tt := range tests {
		from := now.Add(-tt.age)
		if c := certificate("x", from, from.Add(tt.life), "", now, tt.renews); c.Expiring != tt.want {
			t.Errorf("%s: %t", tt.name, c.Expiring)
		}
	}
}

// database looks like an etcd snapshot: pages, then the hash of them.
func database(pages int) []byte {
	db := bytes.Repeat([]byte{7}, pages*512)
	binary.LittleEndian.PutUint32(db[boltMagicAt:], boltMagic)
	sum := sha256.Sum256(db)
	return append(db, sum[:]...)
}

func TestSnapshot(t *testing.T) {
	g := newStage(t)
	g.up()
	g.nodes()
	delete(g.etcd.status, "master-3")
	g.etcd.snapshot = database(9)
	s := g.load()
	path := filepath.Join(t.TempDir(), "snapshots", "demo.db")
	snap, err := s.SaveSnapshot(t.Context(), path, "")
	if err != nil {
		t.Fatal(err)
	}
	if snap.Member != "master-1" || snap.RaftIndex != 77 || snap.Size != 9*512+32 || len(snap.SHA256) != 64 {
		t.Errorf("snapshot %+v", snap)
	}
	if len(snap.Warnings) != 1 || !strings.Contains(snap.Warnings[0], "master-3 does not answer") {
		t.Errorf("warnings %v", snap.Warnings)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, g.etcd.snapshot) || sumOf(got) != snap.SHA256 {
		t.Errorf("file differs: %v", err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	_, err = s.SaveSnapshot(t.Context(), path, "")
	refusal(t, err, ExitUsage)
	_, err = s.SaveSnapshot(t.Context(), path+"2", "worker-1")
	refusal(t, err, ExitUsage)
	if snap, err = s.SaveSnapshot(t.Context(), path+"2", "master-2"); err != nil || snap.Member != "master-2" {
		t.Errorf("from the leader: %+v, %v", snap, err)
	}
}

// A snapshot that is not whole leaves no file.
func TestSnapshotThatIsNotWhole(t *testing.T) {
	whole := database(4)
	flipped := slices.Clone(whole)
	flipped[700] ^= 1
	noDB := bytes.Repeat([]byte{1}, 512)
	sum := sha256.Sum256(noDB)
	for name, data := range map[string][]byte{
		"empty": {}, "torn": whole[:len(whole)-100], "no hash": whole[:4*512], "flipped": flipped, "no database": append(noDB, sum[:]...),
	} {
		t.Run(name, func(t *testing.T) {
			g := newStage(t)
			g.up()
			g.nodes()
			g.etcd.snapshot = data
			dir := t.TempDir()
			_, err := g.load().SaveSnapshot(t.Context(), filepath.Join(dir, "x.db"), "")
			if err == nil || !strings.Contains(err.Error(), "not whole") {
				t.Errorf("error %v", err)
			}
			if es, _ := os.ReadDir(dir); len(es) != 0 {
				t.Errorf("left %v", es)
			}
		})
	}
}

func TestPreflight(t *testing.T) {
	tests := []struct {
		name string
		do   func(g *stage)
		exit int    // 0: no gate fails
		says string // in the error or in a warning
	}{
		{"all right", func(*stage) {}, 0, ""},
		{"unknown type", func(g *stage) { g.cfg.Masters.Type = "cx99" }, ExitConfig, "no server type cx99 (master-1)"},
		{"type not to be had", func(g *stage) { g.cloud.cat.ServerTypes["cx23"].Available["fsn1"] = false }, ExitConfig, "cannot be had in fsn1"},
		{"type phased out", func(g *stage) { g.cfg.Masters.Type = "cx21" }, 0, "being phased out"},
		{"unknown location", func(g *stage) { g.cfg.Location = "mars1" }, ExitConfig, "no location mars1"},
		{"pool in another zone", func(g *stage) { g.cfg.Workers[0].Location = "ash" }, ExitConfig, "in zone us-east"},
		{"unknown image", func(g *stage) { g.cfg.Image = "debian-99" }, ExitConfig, "no image debian-99"},
		{"foreign name", func(g *stage) { g.cloud.inv.Networks = []remote.Network{{ID: 1, Name: "demo"}} }, ExitCloud, "network demo (1)"},
		{"overlapping network elsewhere", func(g *stage) {
			g.cloud.inv.Networks = []remote.Network{{ID: 1, Name: "vpn", Range: "10.99.128.0/17"}}
		}, 0, "overlaps network vpn"},
		{"own ranges overlap", func(g *stage) { g.cfg.Network.Private = "10.200.0.0/24" }, ExitConfig, "network.private (10.200.0.0/24) and network.services"},
		{"refused token", func(g *stage) {
			g.cloud.down = &remote.CloudError{Op: "list servers", Status: 401, Code: "unauthorized", Message: "no"}
		}, ExitCloud, "unauthorized"},
		{"clock", func(g *stage) { g.cloud.now = func() time.Time { return time.Now().Add(-5 * time.Minute) } }, ExitConfig, "5m"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newStage(t)
			tt.do(g)
			s, _ := g.look(Look{})
			p, err := s.Preflight(t.Context(), PreflightOptions{Live: true, SSH: func() error { return nil }})
			if err != nil {
				t.Fatal(err)
			}
			if len(g.cloud.calls) != 0 {
				t.Errorf("preflight wrote: %v", g.cloud.calls)
			}
			if tt.exit != 0 {
				if r := refusal(t, p.Err(), tt.exit); !strings.Contains(r.Message, tt.says) {
					t.Errorf("message %q", r.Message)
				}
				return
			}
			if err := p.Err(); err != nil {
				t.Fatal(err)
			}
			var all []string
			for _, gt := range p.Gates {
				if gt.Warning {
					all = append(all, gt.Message)
				} else if !gt.OK {
					t.Errorf("gate %+v", gt)
				}
			}
			if !strings.Contains(strings.Join(all, "\n"), tt.says) || tt.says == "" && len(all) > 0 {
				t.Errorf("warnings %v", all)
			}
			if tt.says == "" && (*p.Cost.Before != 0 || *p.Cost.After != 5*4.5+6 || p.Cost.Currency != "EUR") {
				t.Errorf("cost %v -> %v", *p.Cost.Before, *p.Cost.After)
			}
		})
	}
	g := newStage(t)
	s, _ := g.look(Look{})
	p, err := s.Preflight(t.Context(), PreflightOptions{SSH: func() error { return errors.New("it has a passphrase") }})
	if err != nil {
		t.Fatal(err)
	}
	refusal(t, p.Err(), ExitConfig)
}

// Only what is to be created is looked at: a type that went out of stock does
// not stop the repair of servers that have it.
func TestPreflightLooksAtWhatIsCreated(t *testing.T) {
	g := newStage(t)
	g.up()
	g.cloud.cat.ServerTypes["cx23"].Available["fsn1"] = false
	s, _ := g.look(Look{})
	p, err := s.Preflight(t.Context(), PreflightOptions{})
	if err != nil || p.Err() != nil {
		t.Fatal(err, p.Err())
	}
	if *p.Cost.Before != *p.Cost.After || *p.Cost.Before != 28.5 {
		t.Errorf("cost %v -> %v", *p.Cost.Before, *p.Cost.After)
	}
}
