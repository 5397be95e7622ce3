package workers

import (
	"slices"
	"strings"
	"testing"

	"hk/remote"
	"hk/tasks"
	"hk/tasks/host"
	"hk/tasks/internal/fake"
	"hk/tasks/internal/golden"
	"hk/tasks/kubenode"
	"hk/tasks/pki"
	"hk/tasks/spec"
)

func TestGolden(t *testing.T) {
	in := configIn{
		Node: "demo-worker-1", MeshIP: "10.100.0.4", ProviderID: "hcloud://104", CgroupV2: true,
		Taints: []spec.Taint{{Key: "web", Value: "yes", Effect: "NoSchedule"}, {Key: "x", Effect: "NoExecute"}},
	}
	st := configState(in)
	golden.Check(t, "kubeadm.yaml.golden", st.Files[0].Content)
	golden.Check(t, "50-hk.conf.golden", st.Files[1].Content)
	ignored, err := withIgnored(st.Files[0].Content, []string{"Mem", "Port-10250"})
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "kubeadm-half-done.yaml.golden", ignored)
}

// worker is a host before it joined.
func worker(t *testing.T) (*fake.Vault, *fake.Host, *fake.Kube, joinIn, *tasks.Env) {
	t.Helper()
	v, h, k := fake.NewVault(), fake.NewHost("worker-1"), &fake.Kube{NodeMap: map[string]*remote.Node{}}
	e := fake.Env(v, h)
	e.Kube = func() (remote.Kube, error) { return k, nil }
	if _, err := v.CreateAuthority(clusterCA, "kubernetes"); err != nil {
		t.Fatal(err)
	}
	in := joinIn{Cluster: "demo", Host: "worker-1", Node: "demo-worker-1", ProviderID: "hcloud://104"}
	h.Put(kubenode.KubeadmConfig, string(configState(configIn{Node: in.Node, MeshIP: "10.100.0.4"}).Files[0].Content))
	// kubeadm and kubelet leave what a member has.
	h.OnJob = func(remote.Job) (*remote.JobResult, error) {
		p, err := v.Authorities[clusterCA].Issue(pki.Leaf{CN: "system:node:" + in.Node, Client: true}, fake.Now())
		if err != nil {
			return nil, err
		}
		h.Put(kubenode.ClientCurrent, string(p.CertPEM)+string(p.KeyPEM))
		for _, f := range joinState().Files {
			if f.Later {
				h.Put(f.Path, "x")
			}
		}
		return &remote.JobResult{}, nil
	}
	return v, h, k, in, e
}

func TestJoinWithAnHoursCredential(t *testing.T) {
	v, h, _, in, e := worker(t)
	finish := h.OnJob
	h.OnJob = func(j remote.Job) (*remote.JobResult, error) {
		k, err := pki.ParseKubeconfig(h.Files[discoveryFile].Content)
		if err != nil {
			t.Fatal(err)
		}
		c, err := pki.ParseCert(k.Cert)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(c.Subject.Organization, []string{bootstrapGroup}) || c.NotAfter.Sub(fake.Now()) != bootstrapLife {
			t.Errorf("it joins as %v until %s", c.Subject.Organization, c.NotAfter)
		}
		if err := v.Authorities[clusterCA].Check(c, pki.Leaf{}, fake.Now()); err != nil {
			t.Error(err)
		}
		if k.Server != "https://127.0.0.1:16443" {
			t.Errorf("it joins through %s", k.Server)
		}
		return finish(j)
	}
	if err := runJoin(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	if _, there := h.Files[discoveryFile]; there {
		t.Error("the hour's credential is still on the host")
	}
	if n := len(h.Called("start " + host.KubeletUnit)); n != 1 {
		t.Errorf("kubelet was started %d times", n)
	}
}

func TestMemberIsNeverJoinedAgain(t *testing.T) {
	_, h, _, in, e := worker(t)
	if err := runJoin(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	h.Called("")
	h.Units[host.KubeletUnit] = remote.UnitFact{Active: "inactive"} // drift
	if err := runJoin(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	calls := h.Called("")
	if !slices.Equal(calls, []string{"start " + host.KubeletUnit}) {
		t.Errorf("a member whose kubelet was stopped: %v", calls)
	}
}

func TestHalfDoneJoinIsRunAgainUnderTheSameName(t *testing.T) {
	_, h, _, in, e := worker(t)
	var argv [][]string
	finish := h.OnJob
	h.OnJob = func(j remote.Job) (*remote.JobResult, error) {
		argv = append(argv, j.Argv)
		if len(argv) == 1 {
			h.Put(kubenode.ClusterCA, "x")
			return &remote.JobResult{Code: 1, Stderr: []byte("killed")}, nil
		}
		if !strings.Contains(string(h.Files[joinFile].Content), "- FileAvailable--etc-kubernetes-pki-ca.crt") {
			t.Errorf("what the first run left is not ignored:\n%s", h.Files[joinFile].Content)
		}
		return finish(j)
	}
	if err := runJoin(t.Context(), in, e); err == nil {
		t.Fatal("a failed join was taken for a good one")
	}
	if _, there := h.Files[discoveryFile]; there {
		t.Error("the hour's credential is still on the host after a failure")
	}
	if err := runJoin(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(argv[0], argv[1]) {
		t.Errorf("%v and %v: a job still running would not be found", argv[0], argv[1])
	}
}

func TestExpiredMemberJoinsAgain(t *testing.T) {
	_, h, _, in, e := worker(t)
	if err := runJoin(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	old, err := pki.New("old", "kubernetes", fake.Now())
	if err != nil {
		t.Fatal(err)
	}
	p, _ := old.Issue(pki.Leaf{CN: "system:node:" + in.Node}, fake.Now())
	h.Put(kubenode.ClientCurrent, string(p.CertPEM))
	h.Called("")
	if err := runJoin(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	if n := len(h.Called("job")); n != 1 {
		t.Errorf("joined %d times with a credential of another authority", n)
	}
}

func TestDeletedNodeComesBack(t *testing.T) {
	_, h, k, in, e := worker(t)
	if err := runJoin(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	k.NodeMap[in.Node] = &remote.Node{Name: in.Node, ProviderID: in.ProviderID}
	h.Called("")
	if err := runJoin(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	if calls := h.Called("exec systemctl restart"); len(calls) != 0 {
		t.Errorf("kubelet of a standing Node: %v", calls)
	}
	delete(k.NodeMap, in.Node)
	if err := runJoin(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	if calls := h.Called("exec systemctl restart " + host.KubeletUnit); len(calls) != 1 {
		t.Errorf("a kubelet registers only when it starts; it was restarted %d times", len(calls))
	}
}
