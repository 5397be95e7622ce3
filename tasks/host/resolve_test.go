package host

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"path"
	"strings"
	"testing"
	"time"
)

// upstream is a mirror in memory, by path.
type upstream map[string][]byte

func (u upstream) fetch(_ context.Context, url string) (io.ReadCloser, int64, error) {
	p := strings.TrimPrefix(url, "http://mirror")
	data, ok := u[p]
	if !ok {
		return nil, 0, fmt.Errorf("%s: 404", url)
	}
	return io.NopCloser(bytes.NewReader(data)), int64(len(data)), nil
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func archive(t *testing.T, prefix string, names []string) []byte {
	t.Helper()
	var b bytes.Buffer
	gz := gzip.NewWriter(&b)
	tw := tar.NewWriter(gz)
	for _, n := range append([]string{"README.md"}, names...) {
		body := []byte("program " + n)
		if err := tw.WriteHeader(&tar.Header{Name: prefix + n, Mode: 0o755, Size: int64(len(body)), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := tw.Write(body); err != nil {
			t.Fatal(err)
		}
	}
	if err := tw.Close(); err != nil {
		t.Fatal(err)
	}
	if err := gz.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// release puts every download of a version set into a mirror, with checksum
// files in each project's own form.
func release(t *testing.T, v Versions, arch string) upstream {
	t.Helper()
	u := upstream{}
	for _, d := range v.downloads(arch) {
		data := []byte("binary " + d.name)
		if d.members != nil {
			data = archive(t, "./x-"+d.name+"/", d.members)
		}
		u[d.path] = data
		text := sum(data)
		if !strings.HasSuffix(d.sum, ".sha256") || d.name == CNIPlugins {
			text = sum([]byte("other")) + "  other.txt\n" + text + "  " + path.Base(d.path) + "\n"
		}
		u[d.sum] = []byte(text)
	}
	return u
}

func TestResolveLock(t *testing.T) {
	v, err := VersionsFor("v1.37.2")
	if err != nil {
		t.Fatal(err)
	}
	u := release(t, v, "amd64")
	told := map[string]int64{}
	l, err := ResolveLock(t.Context(), Resolve{
		Versions: v, Arches: []string{"amd64"}, Mirror: "http://mirror", Fetch: u.fetch,
		Now:      time.Date(2026, 12, 1, 10, 0, 0, 5, time.UTC),
		Progress: func(name string, done, _ int64) { told[name] = done },
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Artifacts) != 8 || l.Artifacts[Kubelet].SHA256 != sum([]byte("binary kubelet")) {
		t.Errorf("artifacts %+v", l.Artifacts)
	}
	if got := l.Artifacts[Etcd].Files["./x-etcd/etcdctl"]; got != sum([]byte("program etcdctl")) {
		t.Errorf("member of etcd: %q", got)
	}
	if len(l.Artifacts[CNIPlugins].Files) != 6 {
		t.Errorf("plugins %v", l.Artifacts[CNIPlugins].Files)
	}
	if l.Images["coredns"] != "registry.k8s.io/coredns/coredns:v1.14.6" || l.Images["pause"] != "registry.k8s.io/pause:3.10.2" || len(l.Images) != 6 {
		t.Errorf("images %v", l.Images)
	}
	if want := int64(len(u[v.downloads("amd64")[3].path])); told[Etcd] != want {
		t.Errorf("progress of etcd ended at %d of %d", told[Etcd], want)
	}
	if !l.Resolved.Equal(time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC)) {
		t.Errorf("resolved %v", l.Resolved)
	}
}

func TestResolveLockRefuses(t *testing.T) {
	v, err := VersionsFor("v1.37.2")
	if err != nil {
		t.Fatal(err)
	}
	d := v.downloads("amd64")
	for name, c := range map[string]struct {
		spoil func(u upstream)
		want  string
	}{
		"another archive":  {func(u upstream) { u[d[3].path] = archive(t, "y/", d[3].members) }, "is published"},
		"a missing member": {func(u upstream) { u[d[3].path] = archive(t, "y/", d[3].members[:2]) }, "there is no etcdutl in it"},
		"no checksum":      {func(u upstream) { u[d[0].sum] = []byte("<html>") }, "holds no checksum of kubeadm"},
		"no file":          {func(u upstream) { delete(u, d[0].sum) }, "404"},
		"half an archive":  {func(u upstream) { u[d[3].path] = u[d[3].path][:60] }, "resolving etcd"},
	} {
		t.Run(name, func(t *testing.T) {
			u := release(t, v, "amd64")
			c.spoil(u)
			_, err := ResolveLock(t.Context(), Resolve{Versions: v, Arches: []string{"amd64"}, Mirror: "http://mirror", Fetch: u.fetch})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
	if _, err := VersionsFor("v1.30.0"); err == nil {
		t.Error("an unknown version of Kubernetes was taken")
	}
}
