package provision

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hk/cache/fp"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/host"
	"hk/tasks/spec"
)

var update = flag.Bool("update", false, "rewrite golden files")

// golden compares a declared state with a checked-in file.
func golden(t *testing.T, name string, st remote.HostState) {
	t.Helper()
	got := show(st)
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (-want +got; -update writes it):\n%s", path, d)
	}
}

// show writes a declared state as text.
func show(st remote.HostState) string {
	var b strings.Builder
	for _, f := range st.Files {
		switch {
		case f.Absent:
			fmt.Fprintf(&b, "== %s absent\n", f.Path)
		case f.Link != "":
			fmt.Fprintf(&b, "== %s -> %s\n", f.Path, f.Link)
		case f.Mode&fs.ModeDir != 0:
			fmt.Fprintf(&b, "== %s directory %04o\n", f.Path, f.Mode.Perm())
		case f.Artifact != nil:
			fmt.Fprintf(&b, "== %s %04o %s %s %s\n", f.Path, f.Mode, f.Artifact.Name, strings.Join(f.Artifact.URLs, " "), f.Artifact.Member)
		default:
			fmt.Fprintf(&b, "== %s %04o\n%s", f.Path, f.Mode, f.Content)
		}
	}
	for _, u := range st.Units {
		fmt.Fprintf(&b, "unit %s enabled=%t active=%t masked=%t reload=%t %v\n", u.Name, u.Enabled, u.Active, u.Masked, u.Reload, u.Files)
	}
	for _, k := range sorted(st.Sysctls) {
		fmt.Fprintf(&b, "sysctl %s=%s\n", k, st.Sysctls[k])
	}
	fmt.Fprintf(&b, "modules %v\npackages %v\nimages %v\n", st.Modules, st.Packages, st.Images)
	return b.String()
}

func sorted(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

// testLock pins everything to made-up hashes.
func testLock() *spec.LockFile {
	l := &spec.LockFile{Kubernetes: "v1.37.2", Artifacts: map[string]spec.Artifact{}, Images: map[string]string{
		"pause": "registry.k8s.io/pause:3.10.2", "coredns": "registry.k8s.io/coredns/coredns:v1.14.6",
	}}
	for _, n := range append([]string{"kube-proxy"}, controlPlaneImages...) {
		l.Images[n] = "registry.k8s.io/" + n + ":v1.37.2"
	}
	for name, members := range map[string][]string{
		host.Kubeadm: nil, host.Kubelet: nil, host.Kubectl: nil, host.Runc: nil,
		host.Containerd: {"bin/containerd", "bin/containerd-shim-runc-v2", "bin/ctr"},
		host.CNIPlugins: {"./bandwidth", "./bridge", "./host-local", "./loopback", "./portmap", "./ptp"},
		host.Crictl:     {"crictl"},
	} {
		a := spec.Artifact{Version: "v1", Path: "/o/" + name, SHA256: digest(name)}
		for _, m := range members {
			if a.Files == nil {
				a.Files = map[string]string{}
			}
			a.Files[m] = digest(m)
		}
		l.Artifacts[name] = a
	}
	return l
}

// view is what a kind on one host of a 3 + 2 cluster sees.
func view(t *testing.T, text, hostName string, out map[string]fp.Output) *tasks.View {
	t.Helper()
	c, _, err := spec.Parse([]byte(text), "/configs/demo.yaml")
	if err != nil {
		t.Fatal(err)
	}
	v := &tasks.View{
		Spec: c, UID: "uid", Lock: testLock(), Hosts: spec.Expand(c, spec.Allocate(nil, spec.Names(c))),
		KeyID: func(n string) string { return "id of " + n },
		Out:   func(kind string) fp.Output { return out[kind] },
	}
	for i := range v.Hosts {
		if v.Hosts[i].Name == hostName {
			v.Host = &v.Hosts[i]
		}
	}
	return v
}

func facts(kv ...string) map[string]fp.Output {
	o := fp.Output{"arch": "amd64", "cgroup": "v2", "wg": "kernel", "kernel": OwnKernel, "restricted": "false", "mtu": "1500"}
	for i := 0; i < len(kv); i += 2 {
		o[kv[i]] = kv[i+1]
	}
	return map[string]fp.Output{SSHKind: o}
}

func TestRuntimeState(t *testing.T) {
	const mirrors = "name: demo\nmirrors: {artifacts: \"http://198.18.0.1:80/\", registry: \"http://198.18.0.1:5000/\"}\n"
	for name, c := range map[string]struct {
		text string
		out  map[string]fp.Output
	}{
		"runtime-cgroup-v2":         {"name: demo\n", facts()},
		"runtime-cgroup-v1":         {"name: demo\n", facts("cgroup", "v1")},
		"runtime-restricted-mirror": {mirrors, facts("cgroup", "v1", "restricted", "true", "kernel", SharedKernel)},
	} {
		t.Run(name, func(t *testing.T) {
			in, err := runtimeInputs(view(t, c.text, "worker-1", c.out))
			if err != nil {
				t.Fatal(err)
			}
			golden(t, name, runtimeState(in))
		})
	}
}

func TestRuntimeNeedsTheLockFile(t *testing.T) {
	v := view(t, "name: demo\n", "worker-1", facts("arch", "arm64"))
	if _, err := runtimeInputs(v); err == nil || !strings.Contains(err.Error(), "containerd-arm64") {
		t.Errorf("an architecture that was not resolved: %v", err)
	}
	v.Lock = nil
	if _, err := runtimeInputs(v); err == nil {
		t.Error("no lock file: no error")
	}
}

func TestPrepareState(t *testing.T) {
	for name, in := range map[string]prepareIn{
		"prepare-own-kernel":    {MeshPort: 51820, Kernel: OwnKernel, WG: "kernel"},
		"prepare-shared-kernel": {MeshPort: 51820, Kernel: SharedKernel, WG: "user"},
	} {
		t.Run(name, func(t *testing.T) { golden(t, name, prepareState(in)) })
	}
}

func TestKubeletState(t *testing.T) {
	p := host.Pin{Name: "x", Path: "/x", SHA256: digest("x"), File: digest("x")}
	golden(t, "kubelet", kubeletState(kubeletIn{Version: "v1.37.2", Kubeadm: p, Kubelet: p, Kubectl: p}))
}

func TestUserDataHoldsTheThrowawayKeyOnly(t *testing.T) {
	rec, err := newHostRecord("master-1", 1)
	if err != nil {
		t.Fatal(err)
	}
	text := userData(rec)
	if !strings.HasPrefix(text, "#cloud-config\n") || !strings.Contains(text, "  ed25519_public: "+rec.Throwaway+"\n") {
		t.Errorf("user data:\n%s", text)
	}
	for line := range strings.Lines(strings.TrimSpace(rec.ThrowawayPEM)) {
		if !strings.Contains(text, "    "+strings.TrimSpace(line)+"\n") {
			t.Errorf("user data lacks %q", line)
		}
	}
	for _, secret := range []string{strings.Split(rec.HostKeyPEM, "\n")[2], rec.HostKey, rec.Installation} {
		if strings.Contains(text, secret) {
			t.Errorf("user data holds %q", secret)
		}
	}
}

func TestGroups(t *testing.T) {
	c, _, err := spec.Parse([]byte("name: demo\nworkers: [{pool: w, count: 497, type: cx23}]\n"), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	hosts := spec.Expand(c, spec.Allocate(nil, spec.Names(c)))
	members := map[string]int{}
	for i := range hosts {
		members[Group(c, &hosts[i])]++
	}
	if members[""] != 7 || len(members) != maxGroups+1 {
		t.Errorf("%d groups, %d hosts without one", len(members)-1, members[""])
	}
	for _, g := range groups(c) {
		if members[g] == 0 {
			t.Errorf("group %s is made for nobody", g)
		}
	}
	for g, n := range members {
		if n > groupSize && g != "" {
			t.Errorf("group %s has %d members", g, n)
		}
	}
	// A new host moves nobody.
	more, _, err := spec.Parse([]byte("name: demo\nworkers: [{pool: w, count: 498, type: cx23}]\n"), "x.yaml")
	if err != nil {
		t.Fatal(err)
	}
	grown := spec.Expand(more, spec.Allocate(nil, spec.Names(more)))
	for i := range hosts {
		if a, b := Group(c, &hosts[i]), Group(more, &grown[i]); a != b {
			t.Errorf("%s moved from %q to %q", hosts[i].Name, a, b)
		}
	}
}

func TestFirewallRules(t *testing.T) {
	in := firewallIn{Name: "demo", MeshPort: 51820, SSHPort: 22, Endpoint: spec.EndpointLoadBalancer}
	if fw := in.firewalls(); len(fw) != 1 || len(fw[0].Rules) != 3 {
		t.Errorf("behind a load balancer 6443 stays closed: %+v", fw)
	}
	in.Endpoint = spec.EndpointMaster
	fw := in.firewalls()
	if len(fw) != 2 || fw[1].Name != "demo-masters" || fw[1].Rules[0].Port != "6443" {
		t.Errorf("without one the masters answer: %+v", fw)
	}
	if got, want := rulesText(fw), "demo [icmp, tcp 22, udp 51820] demo-masters [tcp 6443]"; got != want {
		t.Errorf("people read %q, want %q", got, want)
	}
	// What the API gives back in another order is the same; another rule is not.
	mixed := fw[0]
	mixed.Rules = []remote.Rule{fw[0].Rules[2], fw[0].Rules[0], fw[0].Rules[1]}
	mixed.Rules[1].Sources = []string{"::/0", "0.0.0.0/0"}
	if rulesText([]remote.Firewall{mixed}) != rulesText(fw[:1]) {
		t.Error("order of rules counts")
	}
	mixed.Rules = mixed.Rules[1:]
	if rulesText([]remote.Firewall{mixed}) == rulesText(fw[:1]) {
		t.Error("a missing rule does not count")
	}
}

func TestLabelValue(t *testing.T) {
	for in, want := range map[string]string{
		"v0.1.0": "v0.1.0", "v0.1.0+dirty": "v0.1.0-dirty", "(devel)": "devel", strings.Repeat("a", 70): strings.Repeat("a", 63),
	} {
		if got := labelValue(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
