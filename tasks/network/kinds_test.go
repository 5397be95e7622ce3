package network

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hk/cache/fp"
	"hk/graph"
	"hk/graph/run"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/host"
	"hk/tasks/provision"
	"hk/tasks/spec"
)

var update = flag.Bool("update", false, "rewrite golden files")

// cluster is both phases' graph over a config's hosts, with the kinds that the
// config asks for.
type cluster struct {
	g     *graph.Graph
	kinds []tasks.Kind
	view  tasks.View
}

func newCluster(tb testing.TB, text string) cluster {
	tb.Helper()
	c, _, err := spec.Parse([]byte(text), "/configs/demo.yaml")
	if err != nil {
		tb.Fatal(err)
	}
	var kinds []tasks.Kind
	var gk []graph.Kind
	for _, k := range append(provision.Kinds(), Kinds()...) {
		if k.When(c) {
			kinds, gk = append(kinds, k), append(gk, k.Kind)
		}
	}
	for i := range gk { // as the registry does with what a config does not ask for
		gk[i].Needs = slices.DeleteFunc(slices.Clone(gk[i].Needs), func(n graph.Need) bool {
			return !slices.ContainsFunc(gk, func(k graph.Kind) bool { return k.ID() == n.Kind })
		})
	}
	kg, err := graph.New(gk)
	if err != nil {
		tb.Fatal(err)
	}
	hosts := spec.Expand(c, spec.Allocate(nil, spec.Names(c)))
	var gh []graph.Host
	for _, h := range hosts {
		gh = append(gh, graph.Host{Name: h.Name, Roles: h.Roles})
	}
	g, err := kg.Expand(gh)
	if err != nil {
		tb.Fatal(err)
	}
	return cluster{g: g, kinds: kinds, view: tasks.View{
		Spec: c, UID: "uid", Hosts: hosts, Lock: lock(), KeyID: func(n string) string { return "id of " + n },
	}}
}

func lock() *spec.LockFile {
	sum := strings.Repeat("0", 64)
	plugins := host.CNIPluginNames()
	l := &spec.LockFile{Kubernetes: "v1.37.2", Artifacts: map[string]spec.Artifact{}, Images: map[string]string{}}
	for _, n := range []string{"pause", "coredns", "kube-proxy", "kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		l.Images[n] = "registry.k8s.io/" + n + ":1"
	}
	for n, members := range map[string][]string{
		host.Kubeadm: nil, host.Kubelet: nil, host.Kubectl: nil, host.Runc: nil, host.Crictl: {"crictl"},
		host.Containerd: {"containerd", "containerd-shim-runc-v2", "ctr"}, host.CNIPlugins: plugins[:],
	} {
		a := spec.Artifact{Version: "v1", Path: "/o/" + n, SHA256: sum, Files: map[string]string{}}
		for _, m := range members {
			a.Files[m] = sum
		}
		l.Artifacts[n] = a
	}
	return l
}

// output is what each task would hand over.
func (c *cluster) output(t graph.Task) (fp.Output, bool) {
	h := c.g.HostName(t)
	switch id := c.g.Kind(t).ID(); id {
	case provision.NetworkKind, provision.SSHKeyKind:
		return fp.Output{"id": "7"}, true
	case provision.FirewallKind:
		return fp.Output{"id": "8", "masters_id": "9"}, true
	case provision.LoadBalancerKind:
		return fp.Output{"id": "10", "ipv4": "198.18.0.200"}, true
	case provision.ServerKind:
		n, _ := c.g.HostIndex(h)
		return fp.Output{"id": fmt.Sprint(100 + n), "ipv4": fmt.Sprintf("198.18.0.%d", 10+n), "installation": "i" + h}, true
	case provision.SSHKind:
		return fp.Output{"arch": "amd64", "cgroup": "v1", "wg": "user", "kernel": "shared", "restricted": "true", "mtu": "1500"}, true
	case KeysKind:
		return fp.Output{"public": "key of " + h}, true
	case PeersKind:
		return fp.Output{"set": strings.Repeat("ab", 32)}, true
	case MeshKind:
		return fp.Output{"mtu": "1420"}, true
	}
	return nil, true
}

// fingerprints are those of all tasks, computed by a binding of their own.
func (c *cluster) fingerprints(t *testing.T) map[string]fp.Fingerprint {
	t.Helper()
	w, err := tasks.NewWork(tasks.Binding{Graph: c.g, Kinds: c.kinds, View: c.view})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]fp.Fingerprint{}
	for task := range graph.Task(c.g.Len()) {
		in, err := w.Input(task, run.Upstream(c.output))
		if err != nil {
			t.Fatalf("%s: %v", c.g.Name(task), err)
		}
		out[c.g.Name(task)] = in.Parts.Fingerprint()
	}
	return out
}

var topologies = map[string]string{
	"1+0":       "name: demo\nmasters: {count: 1}\nworkers: []\n",
	"3+2":       "name: demo\n",
	"etcd pool": "name: demo\nmasters: {count: 2}\netcd: {count: 3}\n",
	"dns":       "name: demo\nendpoint: {external: dns api.example.com}\n",
}

// TestInputsArePure: the same config, allocation and outputs give the same
// fingerprints, and each path and unit has one owner.
func TestInputsArePure(t *testing.T) {
	for name, text := range topologies {
		t.Run(name, func(t *testing.T) {
			a, b := newCluster(t, text), newCluster(t, text)
			if d := cmp.Diff(a.fingerprints(t), b.fingerprints(t)); d != "" {
				t.Error(d)
			}
		})
	}
}

// stale are the tasks whose own inputs differ between two configs, among those
// that both have.
func stale(t *testing.T, was, is string) string {
	t.Helper()
	a, b := newCluster(t, was), newCluster(t, is)
	fa, fb := a.fingerprints(t), b.fingerprints(t)
	var out []string
	for task := range graph.Task(b.g.Len()) {
		n := b.g.Name(task)
		if old, ok := fa[n]; ok && old != fb[n] {
			out = append(out, n)
		}
	}
	return strings.Join(out, " ")
}

func TestOnlyWhatAFieldConcernsIsStale(t *testing.T) {
	const base = "name: demo\nworkers: [{pool: worker, count: 2}]\n"
	for name, c := range map[string]struct{ is, want string }{
		"a worker more": {strings.Replace(base, "count: 2", "count: 3", 1), "network-setup.peers"},
		"a label":       {strings.Replace(base, "count: 2", "count: 2, labels: {a: b}", 1), ""},
		"a type":        {strings.Replace(base, "count: 2", "count: 2, type: cx33", 1), "provision-nodes.server/worker-1 provision-nodes.server/worker-2"},
		"addresses":     {base + "network: {private: 10.98.0.0/16}\n", "provision-nodes.network"},
		"the endpoint's name": {
			base + "endpoint: {external: dns b.example.com}\n",
			"provision-nodes.firewall provision-nodes.server/master-1 provision-nodes.server/master-2 provision-nodes.server/master-3",
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := stale(t, base, c.is); got != c.want {
				t.Errorf("stale: %s\nwant:  %s", got, c.want)
			}
		})
	}
}

// TestEdgesBetweenHostsHaveAReason: needless chains cannot hide.
func TestEdgesBetweenHostsHaveAReason(t *testing.T) {
	for _, k := range append(provision.Kinds(), Kinds()...) {
		if k.Title == "" {
			t.Errorf("%s has no title", k.ID())
		}
		for _, n := range k.Needs {
			if n.Via != graph.Same && n.Why == "" {
				t.Errorf("%s needs %s on other hosts and does not say why", k.ID(), n.Kind)
			}
		}
	}
}

// TestFilesAreNamedAsParts: grep works both ways.
func TestFilesAreNamedAsParts(t *testing.T) {
	for dir, kinds := range map[string][]tasks.Kind{".": Kinds(), filepath.Join("..", "provision"): provision.Kinds()} {
		for _, k := range kinds {
			if _, err := os.Stat(filepath.Join(dir, k.Part+".go")); err != nil {
				t.Errorf("kind %s: %v", k.ID(), err)
			}
		}
	}
}

func peers() []Peer {
	return []Peer{
		{Host: "master-1", Public: "KEY1=", Endpoint: "198.18.0.11:51820", MeshIP: "10.100.0.1", PodCIDR: "10.128.1.0/24"},
		{Host: "etcd-1", Public: "KEY2=", Endpoint: "198.18.0.12:51820", MeshIP: "10.100.0.2"},
		{Host: "worker-1", Public: "KEY3=", Endpoint: "198.18.0.13:51820", MeshIP: "10.100.0.3", PodCIDR: "10.128.3.0/24"},
	}
}

func in() meshIn {
	return meshIn{Host: "master-1", Address: "10.100.0.1/16", Port: 51820, Pods: "10.128.0.0/10", MTU: 1420, Public: "KEY1="}
}

func TestMeshFiles(t *testing.T) {
	var b strings.Builder
	for _, f := range in().state(in().conf(peers())).Files {
		fmt.Fprintf(&b, "== %s %04o\n%s", f.Path, f.Mode, f.Content)
	}
	path := filepath.Join("testdata", "mesh.golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("%s (-want +got; -update writes it):\n%s", path, d)
	}
}

// TestPeersAreNoPartOfTheFingerprint: the rendered file lists every host; only
// the set's digest counts.
func TestPeersAreNoPartOfTheFingerprint(t *testing.T) {
	st := in().state(nil)
	if f := st.Files[0]; !f.Later || f.Content != nil || f.Path != confFile {
		t.Errorf("%+v", f)
	}
}

func facts(change func(*remote.WGFact)) *remote.Facts {
	wg := remote.WGFact{PublicKey: "KEY1=", Port: 51820, Peers: map[string]remote.WGPeer{
		"KEY2=": {AllowedIPs: []string{"10.100.0.2/32"}, Endpoint: "198.18.9.9:1"},
		"KEY3=": {AllowedIPs: []string{"10.128.3.0/24", "10.100.0.3/32"}},
	}}
	if change != nil {
		change(&wg)
	}
	return &remote.Facts{WireGuard: map[string]remote.WGFact{Interface: wg}}
}

func TestMeshCheckOfOwnSide(t *testing.T) {
	if err := in().check(facts(nil), peers()); err != nil {
		t.Errorf("an interface as declared, a peer roamed: %v", err)
	}
	for want, change := range map[string]func(*remote.WGFact){
		"another key":                    func(w *remote.WGFact) { w.PublicKey = "X" },
		"listens on port 1":              func(w *remote.WGFact) { w.Port = 1 },
		"does not know peer etcd-1":      func(w *remote.WGFact) { delete(w.Peers, "KEY2=") },
		"knows a peer X that is not":     func(w *remote.WGFact) { w.Peers["X"] = remote.WGPeer{} },
		"allowed addresses of a peer of": func(w *remote.WGFact) { w.Peers["KEY2="] = remote.WGPeer{AllowedIPs: []string{"0.0.0.0/0"}} },
	} {
		if err := in().check(facts(change), peers()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	if err := in().check(&remote.Facts{}, peers()); err == nil {
		t.Error("no interface: no error")
	}
	if got := seenDigest(&remote.Facts{}); got != interfaceDown {
		t.Errorf("no interface is watched as %q", got)
	}
}

func TestPublicKey(t *testing.T) {
	// The pair of RFC 7748, section 6.1 (Alice).
	const private = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo="
	const public = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
	if got, err := publicKey(private + "\n"); err != nil || got != public {
		t.Errorf("%q %v", got, err)
	}
	for _, bad := range []string{"", "short", private[:20]} {
		if _, err := publicKey(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

// TestDriftIsSeenBeforeInputsAreAskedFor: a plan looks first. An interface that
// lost a peer is drift of its mesh task then too, and so is a removed rule.
func TestDriftIsSeenBeforeInputsAreAskedFor(t *testing.T) {
	c := newCluster(t, topologies["1+0"])
	record := func(task graph.Task) *fp.Record {
		out, _ := c.output(task)
		return &fp.Record{Status: fp.Done, Output: out, Observed: map[string]string{}}
	}
	w, err := tasks.NewWork(tasks.Binding{
		Graph: c.g, Kinds: c.kinds, View: c.view, Records: record, Inventory: &remote.Inventory{},
		Facts: map[string]*remote.Facts{"master-1": {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]struct{ key, was, drift string }{
		MeshKind + "/master-1":             {"wg:hk0", "1234", "wg:hk0 is down, was 1234"},
		provision.FirewallKind:             {"cloud:firewall", "1234", "cloud:firewall is demo missing, was 1234"},
		provision.ServerKind + "/master-1": {"cloud:server", "7", "cloud:server is missing, was 7"},
	} {
		task, ok := c.g.Lookup(name)
		if !ok {
			t.Fatalf("no task %s", name)
		}
		rec := record(task)
		rec.Observed[want.key] = want.was
		look, err := w.Look(t.Context(), task, rec)
		if err != nil || look.Drift != want.drift {
			t.Errorf("%s: %+v %v, want drift %q", name, look, err, want.drift)
		}
	}
}
