package kubenode

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"hk/remote"
	"hk/tasks"
	"hk/tasks/internal/fake"
	"hk/tasks/internal/golden"
	"hk/tasks/spec"
)

func TestIgnoredPreflightErrors(t *testing.T) {
	exists := func(paths ...string) map[string]bool {
		m := map[string]bool{}
		for _, p := range paths {
			m[p] = true
		}
		return m
	}
	for _, c := range []struct {
		name       string
		seen       Seen
		init, join string
	}{
		{"an ordinary machine, untouched", Seen{}, "", ""},
		{"container-like", Seen{Restricted: true, CgroupV1: true}, "Mem NumCPU SystemVerification", "Mem NumCPU SystemVerification"},
		{"cgroup v1 alone", Seen{CgroupV1: true}, "SystemVerification", "SystemVerification"},
		{
			"init stopped after the first manifest",
			Seen{Exists: exists(Manifests()[0])},
			"FileAvailable--etc-kubernetes-manifests-kube-apiserver.yaml Port-6443", "",
		},
		{
			"init stopped late",
			Seen{Exists: exists(Manifests()...), Kubelet: true},
			"FileAvailable--etc-kubernetes-manifests-kube-apiserver.yaml FileAvailable--etc-kubernetes-manifests-kube-controller-manager.yaml " +
				"FileAvailable--etc-kubernetes-manifests-kube-scheduler.yaml Port-10250 Port-10257 Port-10259 Port-6443", "Port-10250",
		},
		{
			"join stopped before the certificate came",
			Seen{Exists: exists(BootstrapConf, ClusterCA), Kubelet: true},
			"Port-10250", "FileAvailable--etc-kubernetes-bootstrap-kubelet.conf FileAvailable--etc-kubernetes-pki-ca.crt Port-10250",
		},
		{
			"join stopped after the certificate came",
			Seen{Exists: exists(KubeletConf, ClusterCA)},
			"", "FileAvailable--etc-kubernetes-kubelet.conf FileAvailable--etc-kubernetes-pki-ca.crt",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := strings.Join(IgnoreInit(c.seen), " "); got != c.init {
				t.Errorf("init ignores %q, want %q", got, c.init)
			}
			if got := strings.Join(IgnoreJoin(c.seen), " "); got != c.join {
				t.Errorf("join ignores %q, want %q", got, c.join)
			}
		})
	}
}

func TestKubeletDropIn(t *testing.T) {
	for name, k := range map[string]Kubelet{
		"master-v2.golden": {ProviderID: "hcloud://42", CgroupV2: true, Master: true},
		"worker-v1.golden": {ProviderID: "hcloud://43"},
		"worker-extra.golden": {ProviderID: "hcloud://44", Extra: map[string]any{
			"maxPods": 50, "evictionHard": map[string]any{"memory.available": "1Gi"}, "enforceNodeAllocatable": []any{"pods", "kube-reserved"},
		}},
	} {
		b, err := k.Render()
		if err != nil {
			t.Fatal(err)
		}
		golden.Check(t, name, b)
	}
}

// TestExtraIsLaidOverTheSameBase: with and without a pass-through the same
// settings are there.
func TestExtraIsLaidOverTheSameBase(t *testing.T) {
	read := func(k Kubelet) map[string]any {
		b, err := k.Render()
		if err != nil {
			t.Fatal(err)
		}
		var m map[string]any
		if err := yaml.Unmarshal(b, &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	base := read(Kubelet{ProviderID: "p"})
	over := read(Kubelet{ProviderID: "p", Extra: map[string]any{"maxPods": 50}})
	for k := range base {
		if over[k] == nil {
			t.Errorf("%s got lost", k)
		}
	}
	if over["maxPods"] == nil {
		t.Error("maxPods is not there")
	}
	if _, err := (Kubelet{Extra: map[string]any{"providerID": "x"}}).Render(); err == nil {
		t.Error("a field that hk must own was passed through")
	}
}

func TestMerge(t *testing.T) {
	base := map[string]any{
		"apiServer": map[string]any{
			"certSANs":  []any{"127.0.0.1"},
			"extraArgs": []any{map[string]any{"name": "a", "value": "1"}, map[string]any{"name": "b", "value": "2"}},
		},
		"x": "y",
	}
	got, err := Merge(base, map[string]any{
		"apiServer": map[string]any{
			"certSANs":  []any{"127.0.0.1", "api.example.org"},
			"extraArgs": []any{map[string]any{"name": "b", "value": "3"}, map[string]any{"name": "c", "value": "4"}},
		},
		"x": "z",
	}, "p")
	if err != nil {
		t.Fatal(err)
	}
	b, err := yaml.Marshal(got)
	if err != nil {
		t.Fatal(err)
	}
	want := `apiServer:
  certSANs:
  - 127.0.0.1
  - api.example.org
  extraArgs:
  - name: a
    value: "1"
  - name: b
    value: "3"
  - name: c
    value: "4"
x: z
`
	if string(b) != want {
		t.Errorf("got\n%s", b)
	}
	if base["x"] != "y" || len(base["apiServer"].(map[string]any)["extraArgs"].([]any)) != 2 {
		t.Error("merging changed its input")
	}
}

func node(name string) *remote.Node {
	return &remote.Node{Name: name, ProviderID: "hcloud://7", Labels: map[string]string{}, Annotations: map[string]string{}, Ready: true}
}

func TestNodeSetsAndTakesAwayItsOwnOnly(t *testing.T) {
	n := node("demo-worker-1")
	n.Labels["theirs"] = "stays"
	n.Taints = []remote.Taint{{Key: "theirs", Effect: "NoSchedule"}}
	k := &fake.Kube{NodeMap: map[string]*remote.Node{n.Name: n}}
	e := fake.Env(fake.NewVault())
	e.Kube = func() (remote.Kube, error) { return k, nil }
	in := NodeIn{
		Host: "worker-1", Node: n.Name, Index: 4, Pool: "worker", PodCIDR: "10.128.4.0/24", ProviderID: "hcloud://7",
		Location: "fsn1", Type: "cx23", Labels: map[string]string{"tier": "web", "disk": "fast"},
		Taints: []spec.Taint{{Key: "web", Value: "yes", Effect: "NoExecute"}},
	}
	set := func() {
		t.Helper()
		if err := runNode(t.Context(), in, e); err != nil {
			t.Fatal(err)
		}
		if _, err := verifyNode(t.Context(), in, e); err != nil {
			t.Fatal(err)
		}
	}
	set()
	for k, v := range map[string]string{
		"tier": "web", "disk": "fast", "hk-uid": "uid-1", "topology.kubernetes.io/region": "fsn1",
		"node.kubernetes.io/instance-type": "cx23", "theirs": "stays",
	} {
		if n.Labels[k] != v {
			t.Errorf("label %s is %q, want %q", k, n.Labels[k], v)
		}
	}
	in.Labels, in.Taints = map[string]string{"tier": "db"}, nil
	set()
	if _, ok := n.Labels["disk"]; ok || n.Labels["tier"] != "db" || n.Labels["theirs"] != "stays" {
		t.Errorf("labels are %v", n.Labels)
	}
	if want := []remote.Taint{{Key: "theirs", Effect: "NoSchedule"}}; !slices.Equal(n.Taints, want) {
		t.Errorf("taints are %v", n.Taints)
	}
}

func TestMasterTaintFollowsWorkers(t *testing.T) {
	n := node("demo-master-1")
	n.Taints = []remote.Taint{{Key: controlPlaneTaint, Effect: "NoSchedule"}}
	k := &fake.Kube{NodeMap: map[string]*remote.Node{n.Name: n}}
	e := fake.Env(fake.NewVault())
	e.Kube = func() (remote.Kube, error) { return k, nil }
	in := NodeIn{Host: "master-1", Node: n.Name, ProviderID: "hcloud://7", Master: true}
	for _, workers := range []bool{false, true, false} {
		in.Unscheduled = workers
		if err := runNode(t.Context(), in, e); err != nil {
			t.Fatal(err)
		}
		if got := len(n.Taints) == 1; got != workers {
			t.Errorf("workers %t: taints %v", workers, n.Taints)
		}
	}
}

func TestNodeOfAnotherServerIsNotPatched(t *testing.T) {
	k := &fake.Kube{NodeMap: map[string]*remote.Node{"n": node("n")}}
	e := fake.Env(fake.NewVault())
	e.Kube = func() (remote.Kube, error) { return k, nil }
	if _, err := verifyNode(t.Context(), NodeIn{Node: "n", ProviderID: "hcloud://8"}, e); err == nil {
		t.Error("a Node of another server was taken for ours")
	}
}

func TestDropStale(t *testing.T) {
	k := &fake.Kube{NodeMap: map[string]*remote.Node{"n": node("n")}}
	e := fake.Env(fake.NewVault())
	e.Kube = func() (remote.Kube, error) { return k, nil }
	e.Cloud = &fake.Cloud{Servers: map[int64]*remote.Server{7: {ID: 7}}}
	if err := DropStale(t.Context(), e, "n", "hcloud://8"); err == nil || k.NodeMap["n"] == nil {
		t.Error("the Node of a server that exists was deleted")
	}
	e.Cloud = &fake.Cloud{}
	if err := DropStale(t.Context(), e, "n", "hcloud://7"); err != nil || k.NodeMap["n"] == nil {
		t.Errorf("the server's own Node was deleted (%v)", err)
	}
	if err := DropStale(t.Context(), e, "n", "hcloud://8"); err != nil || k.NodeMap["n"] != nil {
		t.Errorf("the Node of a server that is gone is still there (%v)", err)
	}
}

func TestRegisteredWithoutNetworkIsEnough(t *testing.T) {
	n := node("n")
	n.Ready, n.NotReadyReason, n.NotReadyMessage = false, "KubeletNotReady", "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:..."
	k := &fake.Kube{NodeMap: map[string]*remote.Node{"n": n}}
	e := fake.Env(fake.NewVault())
	e.Kube = func() (remote.Kube, error) { return k, nil }
	if err := Registered(t.Context(), e, "n", "hcloud://7"); err != nil {
		t.Error(err)
	}
}

var _ tasks.Vault = (*fake.Vault)(nil)
