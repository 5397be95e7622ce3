package etcd

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"hk/remote"
	"hk/tasks"
	"hk/tasks/internal/fake"
	"hk/tasks/internal/golden"
	"hk/tasks/pki"
)

func TestGolden(t *testing.T) {
	st := serviceState(serviceIn{Host: "master-1", MeshIP: "10.100.0.1"})
	golden.Check(t, "etcd.service.golden", st.Files[0].Content)
	golden.Check(t, "initial.env.golden", initialEnv("0123456789abcdef", "new", initialCluster(three())))
}

func TestUnitListsWhatItReadsOnce(t *testing.T) {
	st := serviceState(serviceIn{Host: "master-1", MeshIP: "10.100.0.1"})
	for _, f := range []string{"/usr/local/bin/etcd", "/etc/etcd/pki/ca.crt", "/etc/systemd/system/etcd.service"} {
		if !slices.Contains(st.Units[0].Files, f) {
			t.Errorf("a change of %s would not restart the member", f)
		}
	}
	if slices.Contains(st.Units[0].Files, serverCert) {
		t.Error("a new leaf certificate would restart the member, which reads it by itself")
	}
}

func certsOf(t *testing.T) (*fake.Vault, *fake.Host, certsIn, *tasks.Env) {
	t.Helper()
	v, h := fake.NewVault(), fake.NewHost("master-1")
	e := fake.Env(v, h)
	if err := runCA(t.Context(), caIn{Members: three()}, e); err != nil {
		t.Fatal(err)
	}
	out, err := verifyCA(t.Context(), caIn{}, e)
	if err != nil {
		t.Fatal(err)
	}
	return v, h, certsIn{Host: "master-1", Node: "demo-master-1", MeshIP: "10.100.0.1", CA: out["ca"]}, e
}

func TestCAIsMadeOnce(t *testing.T) {
	v, _, in, e := certsOf(t)
	client := string(v.Secrets[ClientCert])
	if err := runCA(t.Context(), caIn{Members: three()[:1]}, e); err != nil {
		t.Fatal(err)
	}
	if out, _ := verifyCA(t.Context(), caIn{}, e); out["ca"] != in.CA {
		t.Error("a second run made a second authority")
	}
	if f, _ := foundationOf(v); len(f.Members) != 3 {
		t.Errorf("the founding members became %v", f.Members)
	}
	if string(v.Secrets[ClientCert]) != client {
		t.Error("a client certificate that is good was replaced")
	}
}

func TestBornEtcdGetsNoNewKeys(t *testing.T) {
	e := fake.Env(fake.NewVault())
	e.EtcdBorn = true
	if err := runCA(t.Context(), caIn{Members: three()}, e); !errors.Is(err, remote.ErrNotFound) {
		t.Errorf("error %v, want that the authority is not found", err)
	}
}

func TestCertsVerifyAndRenewWithoutTouchingData(t *testing.T) {
	_, h, in, e := certsOf(t)
	for range 2 { // the second is a forced run
		if err := runCerts(t.Context(), in, e); err != nil {
			t.Fatal(err)
		}
		if _, err := verifyCerts(t.Context(), in, e); err != nil {
			t.Fatal(err)
		}
		for _, c := range h.Called("") {
			if strings.Contains(c, dataDir) && !strings.HasPrefix(c, "exec systemd-sysusers") || strings.HasPrefix(c, "start") {
				t.Errorf("certificates did %q", c)
			}
		}
	}
	other, err := pki.New("x", "x", fake.Now())
	if err != nil {
		t.Fatal(err)
	}
	p, _ := other.Issue(pki.Leaf{CN: "demo-master-1", Server: true}, fake.Now())
	h.Put(peerCert, string(p.CertPEM))
	if _, err := verifyCerts(t.Context(), in, e); err == nil {
		t.Error("a certificate of another authority was accepted")
	}
}

// born is three running members seen from the first one.
func born(t *testing.T) (*fake.Etcd, *fake.Host, serviceIn, *tasks.Env) {
	t.Helper()
	v := fake.NewVault()
	h := fake.NewHost("master-1")
	e := fake.Env(v, h)
	c := &fake.Etcd{List: listed(three()...), Says: map[string]*remote.EtcdStatus{}}
	for i, m := range three() {
		c.Says[m.Host] = &remote.EtcdStatus{Member: uint64(i + 1), Leader: 1, ClusterID: 7, RaftIndex: 10, Applied: 10}
	}
	e.Etcd = func() (remote.Etcd, error) { return c, nil }
	e.EtcdBorn = true
	return c, h, serviceIn{Host: "master-1", MeshIP: "10.100.0.1"}, e
}

func TestServiceBeforeBirthStartsAndAsksNobody(t *testing.T) {
	c, h, in, e := born(t)
	e.EtcdBorn = false
	for _, want := range []int{1, 0} { // run again after a kill: nothing happens
		if err := runService(t.Context(), in, e); err != nil {
			t.Fatal(err)
		}
		if _, err := verifyService(t.Context(), in, e); err != nil {
			t.Fatal(err)
		}
		calls := h.Called("")
		if n := count(calls, "start "+unitName) + count(calls, "exec systemctl restart"); n != want {
			t.Errorf("started %d times, want %d: %v", n, want, calls)
		}
	}
	if len(c.Calls) != 0 {
		t.Errorf("asked etcd before it lived: %v", c.Calls)
	}
}

func TestForcedServiceRestartsOnceAndProvesItself(t *testing.T) {
	c, h, in, e := born(t)
	if err := runService(t.Context(), in, e); err != nil { // was not running: started
		t.Fatal(err)
	}
	h.Called("")
	if err := runService(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	calls := h.Called("")
	if n := count(calls, "exec systemctl restart etcd.service"); n != 1 {
		t.Errorf("restarted %d times: %v", n, calls)
	}
	if _, err := verifyService(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(c.Calls, "proof master-1") {
		t.Errorf("not proven through the member itself: %v", c.Calls)
	}
}

func TestServiceIsNotTouchedWithoutTheOthers(t *testing.T) {
	c, h, in, e := born(t)
	if err := runService(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	h.Called("")
	delete(c.Says, "master-3")
	ctx, cancel := context.WithCancel(t.Context())
	e.Etcd = func() (remote.Etcd, error) { cancel(); return c, nil } // one look is enough
	err := runService(ctx, in, e)
	if err == nil || !strings.Contains(err.Error(), "1 of 3 members would be left, 2 are needed") {
		t.Errorf("error %v", err)
	}
	if calls := h.Called(""); count(calls, "exec")+count(calls, "start")+count(calls, "write") > 0 {
		t.Errorf("touched the member all the same: %v", calls)
	}
}

func TestStoppedMemberIsStartedWhateverTheOthersDo(t *testing.T) {
	c, h, in, e := born(t)
	c.Down = true
	if err := runService(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	if n := count(h.Called(""), "start "+unitName); n != 1 {
		t.Errorf("started %d times", n)
	}
}

func TestLearnerIsPromoted(t *testing.T) {
	c, _, in, e := born(t)
	c.Says["master-1"].Learner = true
	if _, err := verifyService(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(c.Calls, "promote 1") {
		t.Errorf("calls %v", c.Calls)
	}
}

func TestDataFoundsEntersAndKeeps(t *testing.T) {
	v, h, _, e := certsOf(t)
	f, err := foundationOf(v)
	if err != nil {
		t.Fatal(err)
	}
	in := dataIn{Host: "master-1", MeshIP: "10.100.0.1", Generation: f.Generation}
	env := func() string { b, _ := h.Get(t.Context(), initialFile); return string(b) }

	if err := runData(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	founded := env()
	if !strings.Contains(founded, "STATE=new") || !strings.Contains(founded, "master-3=https://10.100.0.3:2380") {
		t.Errorf("founding file: %s", founded)
	}

	h.Files[memberDir] = remote.File{Path: memberDir, Mode: 0o700 | 1<<31}
	e.EtcdBorn = true
	if err := runData(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	if env() != founded {
		t.Error("a file that is there was replaced beside data")
	}

	delete(h.Files, memberDir) // the disk was lost
	c := &fake.Etcd{List: listed(three()...)}
	e.Etcd = func() (remote.Etcd, error) { return c, nil }
	if err := runData(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	if want := []string{"remove 1", "add https://10.100.0.1:2380"}; !slices.Equal(c.Calls, want) {
		t.Errorf("did %v, want %v", c.Calls, want)
	}
	if !strings.Contains(env(), "STATE=existing") || !strings.Contains(env(), "master-1=https://10.100.0.1:2380") {
		t.Errorf("joining file: %s", env())
	}
}

func TestSameMembers(t *testing.T) {
	in := healthIn{Members: three()}
	if err := in.sameMembers(listed(three()...)); err != nil {
		t.Error(err)
	}
	for name, got := range map[string][]remote.Member{
		"etcd does not list master-3": listed(three()[:2]...),
		"that is not declared":        append(listed(three()...), listed(Member{"old", "10.100.0.9"})...),
	} {
		if err := in.sameMembers(got); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error %v, want %q", err, name)
		}
	}
}

func TestHealthMarksAndRefusesTwoClusters(t *testing.T) {
	v, h, _, e := certsOf(t)
	c, _, _, _ := born(t)
	e.Etcd = func() (remote.Etcd, error) { return c, nil }
	cloud := &fake.Cloud{Servers: map[int64]*remote.Server{}}
	for i, m := range three() {
		id := int64(i + 1)
		cloud.Servers[id] = &remote.Server{ID: id, Labels: map[string]string{"hk-uid": "uid-1"}}
		v.Hosts[m.Host] = tasks.HostRecord{Host: m.Host, ServerID: id, Seen: true}
	}
	e.Cloud = cloud
	in := healthIn{Members: three()}
	if err := runHealth(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	for _, s := range cloud.Servers {
		if s.Labels[remote.LabelEtcd] == "" || s.Labels["hk-uid"] != "uid-1" {
			t.Errorf("labels of server %d are %v", s.ID, s.Labels)
		}
	}
	if !slices.Contains(v.Puts, Born) || count(h.Called(""), "journal "+Born) != 1 {
		t.Error("the mark is not in the credential unit and the journal")
	}
	c.Says["master-2"].ClusterID = 8
	if err := proveHealth(t.Context(), in, e); err == nil || !strings.Contains(err.Error(), "2 clusters") {
		t.Errorf("error %v", err)
	}
}

func count(calls []string, prefix string) int {
	n := 0
	for _, c := range calls {
		if strings.HasPrefix(c, prefix) {
			n++
		}
	}
	return n
}
