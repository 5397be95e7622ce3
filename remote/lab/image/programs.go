package image

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Our own two programs travel as text, so that a released hk can build them.
var (
	//go:embed programs/pause/main.go
	pauseSource string
	//go:embed programs/hk-tools/main.go
	toolsSource string
)

// kubernetesPrograms are in cmd/ of Kubernetes' module.
func kubernetesPrograms() []string {
	return []string{"kubeadm", "kubelet", "kubectl", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy"}
}

// kubernetesModule builds one version of Kubernetes.
//
// Its main module uses what is below staging/ through replace directives with paths,
// which only count in the main module. Published, the same code is module k8s.io/X at
// v0.MINOR.PATCH: one replace with that version for each of them.
func kubernetesModule(version string) goModule {
	g := goModule{
		name: "kubernetes", version: version, requires: []string{"k8s.io/kubernetes@" + version},
		programs: map[string]string{}, complete: completeKubernetes,
	}
	for _, p := range kubernetesPrograms() {
		g.programs[p] = "k8s.io/kubernetes/cmd/" + p
	}
	return g
}

// completeKubernetes fills in what only the downloaded module tells.
func completeKubernetes(ctx context.Context, m *maker, g goModule) (goModule, error) {
	rest, ok := strings.CutPrefix(g.version, "v1.")
	minor, _, ok2 := strings.Cut(rest, ".")
	if !ok || !ok2 {
		return goModule{}, fmt.Errorf("%q is not a Kubernetes version like v1.37.2", g.version)
	}
	m.logf("%s: downloading the module", g.step().name)
	info, err := m.downloadModule(ctx, m.dir, g.requires[0])
	if err != nil {
		return goModule{}, err
	}
	staging, err := stagingModules(ctx, info.GoMod)
	if err != nil {
		return goModule{}, err
	}
	g.replaces = map[string]string{}
	for _, module := range staging {
		g.replaces[module] = "v0." + rest
	}
	built, err := commitTime(info.Info)
	if err != nil {
		return goModule{}, err
	}
	var x strings.Builder
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		fmt.Fprintf(&x, "-X %[1]s.gitVersion=%[2]s -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=%[3]s -X %[1]s.gitTreeState=clean "+
			"-X %[1]s.gitCommit=from-go-modules -X %[1]s.buildDate=%[4]s ", pkg, g.version, minor, built.UTC().Format(time.RFC3339))
	}
	g.ldflags = strings.TrimSpace(x.String())
	return g, nil
}

// stagingModules reads from a go.mod which modules it replaces by ./staging/.
func stagingModules(ctx context.Context, goMod string) ([]string, error) {
	goTool, err := findGo()
	if err != nil {
		return nil, err
	}
	text, err := output(ctx, goTool, "mod", "edit", "-json", goMod)
	if err != nil {
		return nil, err
	}
	var f struct {
		Replace []struct{ Old, New struct{ Path string } }
	}
	if err := json.Unmarshal([]byte(text), &f); err != nil {
		return nil, err
	}
	var modules []string
	for _, r := range f.Replace {
		if strings.HasPrefix(r.New.Path, "./staging/") {
			modules = append(modules, r.Old.Path)
		}
	}
	if len(modules) == 0 {
		return nil, fmt.Errorf("%s replaces nothing by ./staging/: Kubernetes' layout has changed", goMod)
	}
	return modules, nil
}

// commitTime reads a module's .info file; the time makes a build date that does not
// change from build to build.
func commitTime(infoFile string) (time.Time, error) {
	data, err := os.ReadFile(infoFile)
	if err != nil {
		return time.Time{}, err
	}
	var info struct{ Time time.Time }
	if err := json.Unmarshal(data, &info); err != nil {
		return time.Time{}, fmt.Errorf("reading %s: %w", infoFile, err)
	}
	return info.Time, nil
}

func etcdModule(version string) goModule {
	return goModule{
		name: "etcd", version: version,
		requires: []string{"go.etcd.io/etcd/server/v3@" + version, "go.etcd.io/etcd/etcdctl/v3@" + version, "go.etcd.io/etcd/etcdutl/v3@" + version},
		programs: map[string]string{
			"etcd": "go.etcd.io/etcd/server/v3", "etcdctl": "go.etcd.io/etcd/etcdctl/v3", "etcdutl": "go.etcd.io/etcd/etcdutl/v3",
		},
		ldflags: "-X go.etcd.io/etcd/api/v3/version.GitSHA=from-go-modules",
	}
}

func containerdModule(version string) goModule {
	const mod = "github.com/containerd/containerd/v2"
	return goModule{
		name: "containerd", version: version, requires: []string{mod + "@" + version},
		programs: map[string]string{
			"containerd": mod + "/cmd/containerd", "containerd-shim-runc-v2": mod + "/cmd/containerd-shim-runc-v2", "ctr": mod + "/cmd/ctr",
		},
		ldflags: "-X " + mod + "/version.Version=" + version,
	}
}

// runcModule needs cgo and libseccomp: without the tag every pod fails with
// "config provided but seccomp not supported".
func runcModule(version string) goModule {
	return goModule{
		name: "runc", version: version, requires: []string{"github.com/opencontainers/runc@" + version},
		programs: map[string]string{"runc": "github.com/opencontainers/runc"}, tags: "seccomp", cgo: true,
	}
}

// cniPrograms are the plugins that hk installs.
func cniPrograms() []string {
	return []string{"bandwidth", "bridge", "host-local", "loopback", "portmap", "ptp"}
}

func cniModule(version string) goModule {
	const mod = "github.com/containernetworking/plugins"
	group := map[string]string{
		"bridge": "main", "ptp": "main", "loopback": "main", "host-local": "ipam", "portmap": "meta", "bandwidth": "meta",
	}
	g := goModule{
		name: "cni", version: version, requires: []string{mod + "@" + version}, programs: map[string]string{},
		ldflags: "-X " + mod + "/pkg/utils/buildversion.BuildVersion=" + version,
	}
	for _, p := range cniPrograms() {
		g.programs[p] = mod + "/plugins/" + group[p] + "/" + p
	}
	return g
}

func crictlModule(version string) goModule {
	return goModule{
		name: "crictl", version: version, requires: []string{"sigs.k8s.io/cri-tools@" + version},
		programs: map[string]string{"crictl": "sigs.k8s.io/cri-tools/cmd/crictl"},
		ldflags:  "-X sigs.k8s.io/cri-tools/pkg/version.Version=" + version,
	}
}

// corednsPlugins are upstream's, without those that bring the client libraries of
// cloud providers, tracing services and databases: they are half of the packages and
// most of the build time, and no cluster of the lab can use them. The order in which
// plugins act is fixed in CoreDNS itself.
func corednsPlugins() []string {
	return []string{
		"acl", "any", "auto", "autopath", "bind", "bufsize", "cache", "cancel", "chaos", "debug", "dns64", "dnssec", "dnstap",
		"erratic", "errors", "file", "forward", "grpc", "header", "health", "hosts", "k8s_external", "kubernetes", "loadbalance",
		"local", "log", "loop", "metadata", "metrics", "minimal", "multisocket", "nsid", "pprof", "ready", "reload", "rewrite",
		"root", "secondary", "sign", "template", "timeouts", "tls", "transfer", "tsig", "view", "whoami",
	}
}

func corednsModule(version string) goModule {
	const mod = "github.com/coredns/coredns"
	var main strings.Builder
	fmt.Fprintf(&main, "package main\n\nimport (\n\t%q\n", mod+"/coremain")
	for _, p := range corednsPlugins() {
		fmt.Fprintf(&main, "\t_ %q\n", mod+"/plugin/"+p)
	}
	main.WriteString(")\n\nfunc main() { coremain.Run() }\n")
	return goModule{
		name: "coredns", version: version, requires: []string{mod + "@" + version},
		programs: map[string]string{"coredns": "hk.invalid/coredns"},
		sources:  map[string]string{"main.go": main.String()},
		ldflags:  "-X " + mod + "/coremain.GitCommit=from-go-modules",
	}
}

// ownModule builds the programs whose source is in this package.
func ownModule() goModule {
	return goModule{
		name: "own", version: "v1",
		programs: map[string]string{"pause": "hk.invalid/own/pause", "hk-tools": "hk.invalid/own/hk-tools"},
		sources:  map[string]string{filepath.Join("pause", "main.go"): pauseSource, filepath.Join("hk-tools", "main.go"): toolsSource},
	}
}
