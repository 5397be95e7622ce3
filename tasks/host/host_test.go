package host

import (
	"strings"
	"testing"

	"hk/tasks/spec"
)

func TestFill(t *testing.T) {
	got := Fill("a @X@ wg-quick@hk0 b@c @Y@.", "X", "1", "Y", "2@3")
	if want := "a 1 wg-quick@hk0 b@c 2@3."; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	defer func() {
		if p := recover(); p == nil || !strings.Contains(p.(string), "@Z@") {
			t.Errorf("a placeholder without a value: %v", p)
		}
	}()
	Fill("@Z@")
}

func TestURL(t *testing.T) {
	for _, c := range []struct{ mirror, path, want string }{
		{"", "/v1.37.2/bin/linux/amd64/kubelet", "https://dl.k8s.io/v1.37.2/bin/linux/amd64/kubelet"},
		{"", "/etcd-io/etcd/releases/download/v3.7.3/x.tar.gz", "https://github.com/etcd-io/etcd/releases/download/v3.7.3/x.tar.gz"},
		{"", "/vendor/x", "https://github.com/vendor/x"},
		{"http://198.18.0.1:8080/", "/v1.37.2/bin/linux/amd64/kubelet", "http://198.18.0.1:8080/v1.37.2/bin/linux/amd64/kubelet"},
		{"http://m/sub", "/a/b", "http://m/sub/a/b"},
	} {
		if got := URL(c.mirror, c.path); got != c.want {
			t.Errorf("URL(%q, %q) = %q, want %q", c.mirror, c.path, got, c.want)
		}
	}
}

func TestPinOf(t *testing.T) {
	sum, member := strings.Repeat("a", 64), strings.Repeat("b", 64)
	l := &spec.LockFile{Artifacts: map[string]spec.Artifact{
		"runc":       {Version: "v1.5.3", Path: "/runc.amd64", SHA256: sum},
		"etcd":       {Version: "v3.7.3", Path: "/etcd.tgz", SHA256: sum, Files: map[string]string{"etcd-v3/etcd": member, "etcd-v3/docs/etcd": sum}},
		"runc-arm64": {Version: "v1.5.3", Path: "/runc.arm64", SHA256: member},
	}}
	p, err := PinOf(l, Runc, "amd64", "")
	if err != nil || p.File != sum || p.Member != "" {
		t.Errorf("plain: %+v %v", p, err)
	}
	if p, err = PinOf(l, Runc, "arm64", ""); err != nil || p.Path != "/runc.arm64" {
		t.Errorf("arm64: %+v %v", p, err)
	}
	if p, err = PinOf(l, Etcd, "amd64", "etcd"); err != nil || p.Member != "etcd-v3/etcd" || p.File != member {
		t.Errorf("member: %+v %v", p, err)
	}
	f := p.At("/usr/local/bin/etcd", "http://m")
	if f.Mode != 0o755 || f.Artifact.URLs[0] != "http://m/etcd.tgz" || f.Artifact.FileSHA256 != member || f.Artifact.SHA256 != sum {
		t.Errorf("file: %+v %+v", f, f.Artifact)
	}
	for _, c := range []struct{ name, arch, member string }{{Kubelet, "amd64", ""}, {Etcd, "arm64", "etcd"}, {Etcd, "amd64", "etcdctl"}} {
		if _, err := PinOf(l, c.name, c.arch, c.member); err == nil {
			t.Errorf("%v: no error", c)
		}
	}
	if _, err := PinOf(nil, Runc, "amd64", ""); err == nil {
		t.Error("no lock file: no error")
	}
}

func TestKeyLabel(t *testing.T) {
	const key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOMqqnkVzrm0SdG6UOoqKLsabgH5C9okWi0dh2l9GKJl comment"
	got, err := KeyLabel(key)
	if err != nil || len(got) != 52 || strings.ToLower(got) != got {
		t.Errorf("%q %v", got, err)
	}
	again, _ := KeyLabel(strings.TrimSuffix(key, " comment"))
	if again != got {
		t.Error("the comment is part of the label")
	}
	for _, bad := range []string{"", "ssh-ed25519", "ssh-ed25519 !!"} {
		if _, err := KeyLabel(bad); err == nil {
			t.Errorf("%q: no error", bad)
		}
	}
}

func TestArches(t *testing.T) {
	c := &spec.Cluster{
		Cloud: "hetzner", Masters: spec.MasterPool{Type: "cx23"}, Etcd: spec.EtcdPool{Type: "cax11"},
		Workers: []spec.WorkerPool{{Type: "cax21"}, {Type: "cax31"}},
	}
	if got := strings.Join(Arches(c), " "); got != "amd64 arm64" {
		t.Errorf("arches %q", got)
	}
	c.Cloud = "lab"
	if got := strings.Join(Arches(c), " "); got != "amd64" {
		t.Errorf("arches of a lab %q", got)
	}
}
