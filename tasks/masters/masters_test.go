package masters

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"hk/cache/fp"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/etcd"
	"hk/tasks/host"
	"hk/tasks/internal/fake"
	"hk/tasks/internal/golden"
	"hk/tasks/kubenode"
	"hk/tasks/pki"
	"hk/tasks/spec"
)

func config(n string) configIn {
	return configIn{
		Cluster: "demo", Host: "master-" + n, Node: "demo-master-" + n, MeshIP: "10.100.0." + n, ProviderID: "hcloud://10" + n,
		Version: "v1.37.2", Pods: "10.128.0.0/10", Services: "10.200.0.0/16", External: "198.18.0.9",
		Etcd: []string{"https://10.100.0.1:2379", "https://10.100.0.2:2379", "https://10.100.0.3:2379"}, CgroupV2: true,
	}
}

func TestKubeadmGolden(t *testing.T) {
	plain, err := config("1").kubeadmYAML()
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "kubeadm.yaml.golden", plain)
	in := config("1")
	in.Kubeadm = map[string]any{
		"apiServer": map[string]any{"extraArgs": []any{map[string]any{"name": "audit-log-maxage", "value": "7"}}},
		"dns":       map[string]any{"disabled": false},
	}
	more, err := in.kubeadmYAML()
	if err != nil {
		t.Fatal(err)
	}
	golden.Check(t, "kubeadm-passed-through.yaml.golden", more)
	golden.Check(t, "encryption.yaml.golden", encryptionConfig("c2VjcmV0"))
}

func TestClusterConfigurationIsTheSameOnAllMasters(t *testing.T) {
	var first string
	for _, n := range []string{"1", "2", "3"} {
		text, err := config(n).kubeadmYAML()
		if err != nil {
			t.Fatal(err)
		}
		_, shared, _ := strings.Cut(string(text), separator)
		if first == "" {
			first = shared
		}
		if shared != first {
			t.Errorf("master-%s has other shared documents:\n%s", n, shared)
		}
	}
}

// TestPassedThroughIsLaidOverTheSameBase: with and without a pass-through the
// same settings are there.
func TestPassedThroughIsLaidOverTheSameBase(t *testing.T) {
	read := func(in configIn) object {
		text, err := in.kubeadmYAML()
		if err != nil {
			t.Fatal(err)
		}
		var o object
		if err := yaml.Unmarshal([]byte(strings.Split(string(text), separator)[1]), &o); err != nil {
			t.Fatal(err)
		}
		return o
	}
	in := config("1")
	base := read(in)
	in.Kubeadm = object{"imageRepository": "registry.example.org"}
	over := read(in)
	if over["imageRepository"] != "registry.example.org" {
		t.Error("what was passed through is not there")
	}
	delete(over, "imageRepository")
	if d := cmp.Diff(base, over); d != "" {
		t.Error(d)
	}
}

func TestOwnedFieldsAreRefused(t *testing.T) {
	in := config("1")
	in.Kubeadm = map[string]any{"etcd": map[string]any{}}
	if _, err := in.kubeadmYAML(); err == nil || !strings.Contains(err.Error(), "kubernetes.kubeadm.etcd") {
		t.Errorf("error %v", err)
	}
}

func TestWithInitChangesOneDocument(t *testing.T) {
	text, err := config("1").kubeadmYAML()
	if err != nil {
		t.Fatal(err)
	}
	got, err := withInit(text, func(o object) { o["nodeRegistration"].(object)["ignorePreflightErrors"] = []string{"Mem"} })
	if err != nil {
		t.Fatal(err)
	}
	if strings.Count(string(got), "\n---\n") != 3 || !strings.Contains(string(got), "ignorePreflightErrors:\n  - Mem") {
		t.Errorf("got\n%s", got)
	}
	_, a, _ := strings.Cut(string(text), "\n---\n")
	_, b, _ := strings.Cut(string(got), "\n---\n")
	if a != b {
		t.Error("another document changed")
	}
}

// master is one master's world with key material made.
func master(t *testing.T) (*fake.Vault, *fake.Host, certsIn, *tasks.Env) {
	t.Helper()
	v, h := fake.NewVault(), fake.NewHost("master-1")
	e := fake.Env(v, h)
	if err := runCA(t.Context(), caIn{}, e); err != nil {
		t.Fatal(err)
	}
	ec, err := v.CreateAuthority(etcd.Authority, "etcd-ca")
	if err != nil {
		t.Fatal(err)
	}
	out, err := verifyCA(t.Context(), caIn{}, e)
	if err != nil {
		t.Fatal(err)
	}
	in, err := certsInputs(&tasks.View{
		Spec: &spec.Cluster{Name: "demo", Network: spec.Network{Services: "10.200.0.0/16"}, Endpoint: spec.Endpoint{External: "load-balancer"}},
		Host: &spec.Host{Name: "master-1", Node: "demo-master-1", MeshIP: "10.100.0.1"},
		Out: fake.Out(map[string]fp.Output{
			kubenode.ServerKind: {"id": "101", "ipv4": "198.18.0.1", "private": "10.99.0.2"}, CAKind: out,
			kubenode.EtcdCAKind: {"ca": ec.Fingerprint()}, kubenode.LoadBalancerKind: {"ipv4": "198.18.0.9"},
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	return v, h, in, e
}

func TestCAIsMadeOnceAndNeverOnALivingCluster(t *testing.T) {
	_, _, in, e := master(t)
	if err := runCA(t.Context(), caIn{}, e); err != nil {
		t.Fatal(err)
	}
	if out, _ := verifyCA(t.Context(), caIn{}, e); out["ca"] != in.CA || out["sa"] != in.ServiceKey || out["encryption"] != in.Encryption {
		t.Error("a second run made other keys")
	}
	e = fake.Env(fake.NewVault())
	e.Established = true
	if err := runCA(t.Context(), caIn{}, e); !errors.Is(err, remote.ErrNotFound) {
		t.Errorf("error %v, want that there is none", err)
	}
}

// TestCertsAreWhatKubeadmWouldMake checks by kubeadm's own rules: signed by the
// authority beside it, and holding every name of its configuration.
func TestCertsAreWhatKubeadmWouldMake(t *testing.T) {
	v, h, in, e := master(t)
	if err := runCerts(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	if _, err := verifyCerts(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	api, err := pki.ParseCert(h.Files[kubenode.PKIDir+"/apiserver.crt"].Content)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		"demo-master-1", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		"10.200.0.1", "10.100.0.1", "127.0.0.1", "198.18.0.9", "198.18.0.1", "10.99.0.2",
	} {
		if err := api.VerifyHostname(name); err != nil {
			t.Errorf("API server: %v", err)
		}
	}
	for path, want := range map[string][2]string{
		adminFile:      {"https://127.0.0.1:16443", "kubernetes-admin"},
		controllerFile: {"https://10.100.0.1:6443", "system:kube-controller-manager"},
		schedulerFile:  {"https://10.100.0.1:6443", "system:kube-scheduler"},
	} {
		k, err := pki.ParseKubeconfig(h.Files[path].Content)
		if err != nil {
			t.Fatal(err)
		}
		c, err := pki.ParseCert(k.Cert)
		if err != nil {
			t.Fatal(err)
		}
		if k.Server != want[0] || c.Subject.CommonName != want[1] {
			t.Errorf("%s: %s as %s", path, k.Server, c.Subject.CommonName)
		}
	}
	admin, _ := pki.ParseKubeconfig(h.Files[adminFile].Content)
	if c, _ := pki.ParseCert(admin.Cert); !slices.Equal(c.Subject.Organization, []string{"kubeadm:cluster-admins"}) {
		t.Errorf("the administrator is in %v", c.Subject.Organization)
	}
	for _, p := range []string{"ca.key", "sa.key", "front-proxy-ca.key", "etcd/ca.key", "apiserver.key", "encryption.yaml"} {
		if f := h.Files[kubenode.PKIDir+"/"+p]; f.Mode.Perm() != 0o600 || !f.Secret {
			t.Errorf("%s has mode %o, secret %t", p, f.Mode.Perm(), f.Secret)
		}
	}
	if !bytes.Equal(h.Files[kubenode.PKIDir+"/ca.key"].Content, v.Authorities[ClusterCA].KeyPEM) {
		t.Error("the authority's key on the host is not the credential unit's")
	}
}

func TestRotatedKubeletCertificateIsLeftAlone(t *testing.T) {
	v, h, in, e := master(t)
	if err := runCerts(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	p, err := v.Authorities[ClusterCA].Issue(in.kubeletClient(), fake.Now())
	if err != nil {
		t.Fatal(err)
	}
	const own = kubenode.KubeletPKI + "/kubelet-client-2026-12-01-12-00-00.pem"
	h.Put(own, string(p.CertPEM)+string(p.KeyPEM))
	h.Files[kubenode.ClientCurrent] = remote.File{Path: kubenode.ClientCurrent, Link: own}
	if err := runCerts(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	if got := h.Files[kubenode.ClientCurrent].Link; got != own {
		t.Errorf("kubelet's own certificate was replaced by %s", got)
	}
	h.Put(own, "rubbish")
	if err := runCerts(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	if got := h.Files[kubenode.ClientCurrent].Link; got != kubeletFirst {
		t.Errorf("a certificate that cannot be read was kept: %s", got)
	}
}

func TestReadersOfChangedKubeconfigsAreRestarted(t *testing.T) {
	_, h, in, e := master(t)
	h.OnExec = func(argv []string) (int, string) {
		if argv[1] == "ps" {
			return 0, "id-of-" + argv[len(argv)-1][len("io.kubernetes.container.name="):] + "\n"
		}
		return 0, ""
	}
	if err := runCerts(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	calls := h.Called("exec crictl stop")
	want := []string{"exec crictl stop --timeout 10 id-of-kube-controller-manager", "exec crictl stop --timeout 10 id-of-kube-scheduler"}
	if !slices.Equal(calls, want) {
		t.Errorf("stopped %v", calls)
	}
}

func controlPlane(h *fake.Host) controlPlaneIn {
	text, err := config("1").kubeadmYAML()
	if err != nil {
		panic(err)
	}
	h.Put(kubenode.KubeadmConfig, string(text))
	return controlPlaneIn{Cluster: "demo", Host: "master-1", Node: "demo-master-1", MeshIP: "10.100.0.1", ProviderID: "hcloud://101"}
}

func TestInitRemovesTheSuperAdministrator(t *testing.T) {
	for _, fail := range []bool{false, true} {
		_, h, _, e := master(t)
		in := controlPlane(h)
		var seen bool
		h.OnJob = func(remote.Job) (*remote.JobResult, error) {
			_, seen = h.Files[superFile]
			if fail {
				return &remote.JobResult{Code: 1, Stderr: []byte("it timed out")}, nil
			}
			return &remote.JobResult{}, nil
		}
		err := runControlPlane(t.Context(), in, e)
		if (err != nil) != fail {
			t.Fatalf("error %v", err)
		}
		if !seen {
			t.Error("kubeadm found no super-admin.conf")
		}
		if _, there := h.Files[superFile]; there {
			t.Errorf("super-admin.conf is still there (failed: %t)", fail)
		}
	}
}

// TestInitIsOneJobWhateverIsLeft: the job's name comes from its argv, so a job
// still running is found only if that is the same.
func TestInitIsOneJobWhateverIsLeft(t *testing.T) {
	_, h, _, e := master(t)
	in := controlPlane(h)
	if err := runControlPlane(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	first := h.Called("job")
	if strings.Contains(string(h.Files[initFile].Content), "FileAvailable") {
		t.Error("an untouched host ignores checks")
	}
	for _, m := range kubenode.Manifests() {
		h.Put(m, "x")
	}
	if err := runControlPlane(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	if again := h.Called("job"); !slices.Equal(first, again) {
		t.Errorf("jobs %v and %v", first, again)
	}
	if !strings.Contains(string(h.Files[initFile].Content), "FileAvailable--etc-kubernetes-manifests-kube-apiserver.yaml") {
		t.Error("what the first run left is not ignored")
	}
}

// standing is a master of an established cluster; rendered is what kubeadm
// would write now.
func standing(t *testing.T, rendered string) (*fake.Host, controlPlaneIn, *tasks.Env) {
	t.Helper()
	_, h, _, e := master(t)
	in := controlPlane(h)
	e.Established = true
	k := &fake.Kube{NodeMap: map[string]*remote.Node{in.Node: {Name: in.Node, ProviderID: in.ProviderID}}}
	e.Kube = func() (remote.Kube, error) { return k, nil }
	for _, f := range controlPlaneState().Files {
		if f.Later {
			h.Files[f.Path] = remote.File{Path: f.Path, Mode: f.Mode, Content: []byte("as it is")}
		}
	}
	if _, err := h.Apply(t.Context(), remote.HostState{Units: []remote.Unit{kubenode.Unit()}}); err != nil {
		t.Fatal(err)
	}
	asks := 0
	h.OnExec = func(argv []string) (int, string) {
		if argv[0] == "env" {
			for _, f := range controlPlaneState().Files {
				content := "as it is"
				if strings.HasSuffix(f.Path, rendered) {
					content = "new"
				}
				h.Put(renderDir+f.Path[strings.LastIndex(f.Path, "/"):], content)
			}
		}
		if argv[0] == "crictl" {
			asks++
			return 0, []string{"", "old", "old", "new"}[min(asks, 3)]
		}
		return 0, ""
	}
	h.Called("")
	return h, in, e
}

func TestForcedAgainNothingIsRestarted(t *testing.T) {
	h, in, e := standing(t, "nothing")
	if err := runControlPlane(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	for _, c := range h.Called("") {
		if strings.HasPrefix(c, "job") || strings.HasPrefix(c, "write") || strings.HasPrefix(c, "start") || strings.Contains(c, "restart") {
			t.Errorf("did %q though nothing differs", c)
		}
	}
}

func TestChangedManifestWaitsForTheNewContainer(t *testing.T) {
	h, in, e := standing(t, "kube-apiserver.yaml")
	if err := runControlPlane(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	calls := h.Called("")
	if n := count(calls, "write "); n != 1 {
		t.Errorf("wrote %d files: %v", n, calls)
	}
	if n := count(calls, "exec crictl ps"); n != 3 {
		t.Errorf("asked for the container %d times, want before, still old, new", n)
	}
}

func TestChangedKubeletConfigRestartsKubelet(t *testing.T) {
	h, in, e := standing(t, "config.yaml")
	if err := runControlPlane(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	if n := count(h.Called(""), "exec systemctl restart "+host.KubeletUnit); n != 1 {
		t.Errorf("kubelet was restarted %d times", n)
	}
}

func TestStoppedKubeletIsStartedOnly(t *testing.T) {
	h, in, e := standing(t, "nothing")
	h.Units[host.KubeletUnit] = remote.UnitFact{Active: "inactive"}
	if err := runControlPlane(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	calls := h.Called("")
	if count(calls, "start "+host.KubeletUnit) != 1 || count(calls, "job") != 0 {
		t.Errorf("did %v", calls)
	}
}

func TestBootstrapMarksAndForgetsItsToken(t *testing.T) { synctest.Test(t, testBootstrap) }

func testBootstrap(t *testing.T) {
	v, h, _, e := master(t)
	controlPlane(h)
	v.Hosts["master-1"] = tasks.HostRecord{Host: "master-1", ServerID: 101, Seen: true}
	cloud := &fake.Cloud{Servers: map[int64]*remote.Server{101: {ID: 101, Labels: map[string]string{remote.LabelEtcd: "1"}}}}
	k := &fake.Kube{}
	e.Cloud, e.Kube = cloud, func() (remote.Kube, error) { return k, nil }
	h.OnJob = func(remote.Job) (*remote.JobResult, error) {
		if !strings.Contains(string(h.Files[onceFile].Content), "token: "+tokenID(e.UID)+".") {
			t.Error("kubeadm would draw a token of its own")
		}
		return &remote.JobResult{}, nil
	}
	in := bootstrapIn{Masters: []string{"master-1"}, Shared: "first"}
	k.NotUp = map[string]bool{"master-1": true}
	if err := runBootstrap(t.Context(), in, e); err == nil || len(cloud.Servers[101].Labels) != 1 || len(h.Called("job")) > 0 {
		t.Fatalf("born with a master that never answered: %v", err)
	}
	k.NotUp = nil
	if err := runBootstrap(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	if _, there := h.Files[onceFile]; there {
		t.Error("the token is still on the host")
	}
	if !slices.Contains(k.Calls, "delete secrets bootstrap-token-"+tokenID(e.UID)) {
		t.Errorf("the token is still in the cluster: %v", k.Calls)
	}
	l := cloud.Servers[101].Labels
	if l[remote.LabelBorn] == "" || l[remote.LabelEtcd] == "" || !slices.Contains(v.Puts, Born) {
		t.Errorf("labels %v, unit %v", l, v.Puts)
	}
	h.Called("")
	e.Established = true
	if err := runBootstrap(t.Context(), in, e); err != nil {
		t.Fatal(err)
	}
	if calls := h.Called("job"); len(calls) > 0 {
		t.Errorf("bootstrapped an established cluster: %v", calls)
	}

	h.OnJob = func(j remote.Job) (*remote.JobResult, error) {
		if skip := j.Argv[len(j.Argv)-1]; !strings.Contains(skip, "bootstrap-token") || strings.Contains(skip, "addon") || strings.Contains(skip, "upload-config") {
			t.Errorf("a changed configuration runs with %s", skip)
		}
		return &remote.JobResult{}, nil
	}
	in.Shared = "second"
	for _, want := range []int{1, 0} {
		if err := runBootstrap(t.Context(), in, e); err != nil {
			t.Fatal(err)
		}
		if calls := h.Called("job"); len(calls) != want {
			t.Errorf("a changed configuration ran %v, want %d", calls, want)
		}
	}
}

// A master that is down still says what it last ran; it must not decide what
// the cluster's own copy of the configuration is.
func TestBootstrapUploadsWhatMostMastersRun(t *testing.T) {
	for _, c := range []struct{ runs, want string }{{"onn", "n"}, {"non", "n"}, {"nno", "n"}, {"n", "n"}, {"-nn", "n"}} {
		v := &tasks.View{OutOf: func(_, h string) (fp.Output, bool) {
			s := c.runs[h[len(h)-1]-'1':][:1]
			return fp.Output{"shared": s}, s != "-"
		}}
		for i := range c.runs {
			v.Hosts = append(v.Hosts, spec.Host{Name: fmt.Sprintf("master-%d", i+1), Roles: []string{spec.Master}})
		}
		if in, err := bootstrapInputs(v); err != nil || in.Shared != c.want || len(in.Masters) != len(c.runs) {
			t.Errorf("%s: %+v, %v", c.runs, in, err)
		}
	}
}

func TestAdminNamesTheAddressForPeople(t *testing.T) {
	v, _, _, e := master(t)
	view := func(external string) *tasks.View {
		hosts := []spec.Host{{Name: "master-1", Roles: []string{spec.Master}}, {Name: "master-2", Roles: []string{spec.Master}}}
		return &tasks.View{
			Spec: &spec.Cluster{Name: "demo", Endpoint: spec.Endpoint{External: external}}, Hosts: hosts,
			Out:   fake.Out(map[string]fp.Output{kubenode.LoadBalancerKind: {"ipv4": "198.18.0.9"}, CAKind: {"ca": "x"}}),
			OutOf: func(_, h string) (fp.Output, bool) { return fp.Output{"ipv4": "198.18.0." + h[len(h)-1:]}, true },
		}
	}
	for external, want := range map[string]string{
		"load-balancer": "https://198.18.0.9:6443", "dns api.example.org": "https://api.example.org:6443", "master": "https://198.18.0.1:6443",
	} {
		in, err := adminInputs(view(external))
		if err != nil {
			t.Fatal(err)
		}
		if in.Server != want {
			t.Errorf("%s: %s, want %s", external, in.Server, want)
		}
		if err := runAdmin(t.Context(), in, e); err != nil {
			t.Fatal(err)
		}
		if _, err := verifyAdmin(t.Context(), in, e); err != nil {
			t.Error(err)
		}
		k, err := pki.ParseKubeconfig(v.Secrets[AdminConf])
		if err != nil || k.Context != "demo" {
			t.Errorf("context %q (%v)", k.Context, err)
		}
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
