package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// fakePrograms writes a stand-in for each of a module's programs.
func fakePrograms(t *testing.T, g goModule) string {
	t.Helper()
	bin := t.TempDir()
	for name := range g.programs {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("program "+name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return bin
}

// The layout is upstream's: these paths are known to every installer.
func TestReleaseLayout(t *testing.T) {
	m := testMaker(t.TempDir())
	var got []string
	for _, r := range m.artifacts() {
		dir := t.TempDir()
		if err := writeRelease(t.Context(), r, fakePrograms(t, r.module), dir); err != nil {
			t.Fatal(err)
		}
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				got = append(got, "/"+r.folder+strings.TrimPrefix(path, dir))
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{
		"/v1.37.2/bin/linux/amd64/kubeadm", "/v1.37.2/bin/linux/amd64/kubelet", "/v1.37.2/bin/linux/amd64/kubectl.sha256",
		"/etcd-io/etcd/releases/download/v3.7.3/etcd-v3.7.3-linux-amd64.tar.gz", "/etcd-io/etcd/releases/download/v3.7.3/SHA256SUMS",
		"/containerd/containerd/releases/download/v2.4.2/containerd-2.4.2-linux-amd64.tar.gz",
		"/containerd/containerd/releases/download/v2.4.2/containerd-2.4.2-linux-amd64.tar.gz.sha256sum",
		"/opencontainers/runc/releases/download/v1.5.3/runc.amd64", "/opencontainers/runc/releases/download/v1.5.3/runc.sha256sum",
		"/containernetworking/plugins/releases/download/v1.10.0/cni-plugins-linux-amd64-v1.10.0.tgz.sha256",
		"/kubernetes-sigs/cri-tools/releases/download/v1.37.0/crictl-v1.37.0-linux-amd64.tar.gz",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("no %s among:\n%s", want, strings.Join(got, "\n"))
		}
	}
	for _, file := range got {
		isSum := strings.Contains(filepath.Base(file), "sha256") || strings.Contains(file, "SHA256")
		if !isSum && !slices.Contains(got, file+".sha256") {
			t.Errorf("%s has no .sha256", file)
		}
	}
}

func TestReleaseSums(t *testing.T) {
	for _, r := range []release{kubernetesRelease("v1.37.2"), etcdRelease("v3.7.3")} {
		dir := t.TempDir()
		if err := writeRelease(t.Context(), r, fakePrograms(t, r.module), dir); err != nil {
			t.Fatal(err)
		}
		for _, f := range r.files {
			digest, err := fileSHA256(filepath.Join(dir, f.name))
			if err != nil {
				t.Fatal(err)
			}
			want := digest
			if f.style == sumNamed {
				want = digest + "  " + filepath.Base(f.name) + "\n"
			}
			if got, _ := os.ReadFile(filepath.Join(dir, f.name+".sha256")); string(got) != want {
				t.Errorf("%s.sha256 = %q, want %q", f.name, got, want)
			}
		}
	}
}

func TestTarIsDeterministic(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "program")
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	entries := []entry{
		{name: "bin/b", mode: 0o755, from: file},
		{name: "bin/a", mode: 0o777, link: "b"},
		{name: "etc/passwd", mode: 0o644, data: []byte("root")},
	}
	var first, second bytes.Buffer
	if err := writeTar(&first, entries, true); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(entries)
	if err := os.Chtimes(file, time.Unix(1, 0), time.Unix(1, 0)); err != nil {
		t.Fatal(err)
	}
	if err := writeTar(&second, entries, true); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("order of entries or time of files changes the archive")
	}
	names, owners := listTar(t, &first)
	if want := "bin/ bin/a bin/b etc/ etc/passwd"; names != want {
		t.Errorf("members %q, want %q", names, want)
	}
	if owners != 0 {
		t.Errorf("%d members have an owner or a time", owners)
	}
	if err := writeTar(io.Discard, []entry{{name: "x"}, {name: "x"}}, false); err == nil {
		t.Error("two members of one name were accepted")
	}
}

func listTar(t *testing.T, r io.Reader) (names string, marked int) {
	t.Helper()
	var list []string
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return strings.Join(list, " "), marked
		}
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, h.Name)
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || h.ModTime.Unix() != 0 {
			marked++
		}
	}
}

func TestTarGzMembers(t *testing.T) {
	r := cniRelease("v1.10.0")
	dir := t.TempDir()
	if err := writeRelease(t.Context(), r, fakePrograms(t, r.module), dir); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, r.files[0].name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zr, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if names, _ := listTar(t, zr); names != "./bandwidth ./bridge ./host-local ./loopback ./portmap ./ptp" {
		t.Errorf("members %q", names)
	}
}

func TestMirror(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{
		"artifacts/v1.37.2/bin/linux/amd64/kubeadm": "kubeadm", "artifacts/.tmp-v1/x": "half", "stamps/s.json": "outside",
	} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	h := Mirror(&Set{Artifacts: filepath.Join(dir, "artifacts")})
	for _, tc := range []struct {
		method, path string
		status       int
	}{
		{"GET", "/v1.37.2/bin/linux/amd64/kubeadm", 200},
		{"HEAD", "/v1.37.2/bin/linux/amd64/kubeadm", 200},
		{"GET", "/v1.37.2/bin/linux/amd64/kubeadm.sha256", 404},
		{"GET", "/v1.37.2/bin/linux/amd64", 404},
		{"GET", "/", 404},
		{"GET", "/.tmp-v1/x", 404},
		{"GET", "/../stamps/s.json", 404},
		{"GET", "//stamps/s.json", 404},
		{"PUT", "/v1.37.2/bin/linux/amd64/kubeadm", 405},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(tc.method, "http://mirror/", http.NoBody)
		r.URL.Path = tc.path // as sent: the client would have cleaned it
		h.ServeHTTP(w, r)
		if w.Code != tc.status {
			t.Errorf("%s %s = %d, want %d", tc.method, tc.path, w.Code, tc.status)
		}
	}
}
