package image

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// testImages writes a folder with two small images and returns a set with it.
func testImages(t *testing.T) *Set {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("static"), 0o755); err != nil {
		t.Fatal(err)
	}
	base := []entry{{name: "etc/passwd", mode: 0o644, data: []byte("root:x:0:0::/:\n")}}
	ix := index{Images: map[string]indexImage{}}
	for _, ref := range []string{"registry.k8s.io/coredns/coredns:v1.14.6", "registry.k8s.io/pause:3.10.2"} {
		if err := ix.add(t.Context(), dir, "v1.37.2", programPicture(ref, base, program, "/program")); err != nil {
			t.Fatal(err)
		}
	}
	if err := ix.write(dir); err != nil {
		t.Fatal(err)
	}
	return &Set{Images: dir}
}

func TestImageArchive(t *testing.T) {
	set := testImages(t)
	img, err := tarball.ImageFromPath(filepath.Join(set.Images, "coredns-coredns-v1.14.6.tar"), nil)
	if err != nil {
		t.Fatal(err)
	}
	cf, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if cf.Architecture != "amd64" || cf.OS != "linux" || strings.Join(cf.Config.Entrypoint, " ") != "/program" {
		t.Errorf("config %+v", cf)
	}
	if len(cf.RootFS.DiffIDs) != 2 {
		t.Errorf("%d layers, want 2", len(cf.RootFS.DiffIDs))
	}
	left, err := filepath.Glob(filepath.Join(set.Images, ".layer*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func get(t *testing.T, h http.Handler, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, http.NoBody))
	return w
}

func sha(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Pulls an image the way a client does: tag, manifest, configuration, layers; every
// byte is checked against its digest.
func TestRegistryPull(t *testing.T) {
	h, err := Registry(testImages(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, repo := range []string{"coredns/coredns", "pause"} {
		tag := map[string]string{"coredns/coredns": "v1.14.6", "pause": "3.10.2"}[repo]
		w := get(t, h, "GET", "/v2/"+repo+"/manifests/"+tag)
		digest := w.Header().Get("Docker-Content-Digest")
		if w.Code != 200 || sha(w.Body.Bytes()) != digest {
			t.Fatalf("manifest of %s: status %d, digest %s, body %s", repo, w.Code, digest, w.Body)
		}
		type descriptor struct {
			Digest string
			Size   int64
		}
		var manifest struct {
			MediaType string
			Config    descriptor
			Layers    []descriptor
		}
		if err := json.Unmarshal(w.Body.Bytes(), &manifest); err != nil {
			t.Fatal(err)
		}
		if got := w.Header().Get("Content-Type"); got != manifest.MediaType {
			t.Errorf("content type %s, manifest says %s", got, manifest.MediaType)
		}
		if again := get(t, h, "HEAD", "/v2/"+repo+"/manifests/"+digest); again.Code != 200 || again.Body.Len() != 0 {
			t.Errorf("HEAD by digest: %d, %d bytes", again.Code, again.Body.Len())
		}
		for _, d := range append(manifest.Layers, manifest.Config) {
			blob := get(t, h, "GET", "/v2/"+repo+"/blobs/"+d.Digest)
			if blob.Code != 200 || int64(blob.Body.Len()) != d.Size || sha(blob.Body.Bytes()) != d.Digest {
				t.Errorf("blob %s of %s: status %d, %d bytes, want %d", d.Digest, repo, blob.Code, blob.Body.Len(), d.Size)
			}
		}
	}
}

func TestRegistryRefuses(t *testing.T) {
	h, err := Registry(testImages(t))
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		method, path string
		status       int
		body         string
	}{
		{"GET", "/v2/", 200, "{}"},
		{"GET", "/v2/pause/tags/list", 200, "3.10.2"},
		{"GET", "/v2/pause/manifests/9", 404, "MANIFEST_UNKNOWN"},
		{"GET", "/v2/etcd/manifests/3.7.3", 404, "NAME_UNKNOWN"},
		{"GET", "/v2/pause/blobs/sha256:00", 404, "BLOB_UNKNOWN"},
		{"POST", "/v2/pause/blobs/uploads/", 405, "UNSUPPORTED"},
		{"GET", "/v2/pause", 404, ""},
		{"GET", "/", 404, ""},
	} {
		if w := get(t, h, tc.method, tc.path); w.Code != tc.status || !strings.Contains(w.Body.String(), tc.body) {
			t.Errorf("%s %s = %d %s, want %d %s", tc.method, tc.path, w.Code, w.Body, tc.status, tc.body)
		}
	}
}

func TestFillContainerd(t *testing.T) {
	src := t.TempDir()
	files := map[string]bool{ // path -> is shared
		contentFolder + "sha256/aa":                          true,
		snapshotFolder + "1/fs/usr/bin/program":              true,
		metadataFile:                                         false,
		"io.containerd.snapshotter.v1.overlayfs/metadata.db": false,
	}
	for path := range files {
		path = filepath.Join(src, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("content"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	set := &Set{Roots: map[string]string{Stock: "/r", Snapshot: "/s"}, Containerd: map[string]string{Snapshot: src}}
	dst := filepath.Join(t.TempDir(), "containerd")
	if err := FillContainerd(set, Snapshot, dst); err != nil {
		t.Fatal(err)
	}
	for path, shared := range files {
		a, errA := os.Stat(filepath.Join(src, path))
		b, errB := os.Stat(filepath.Join(dst, path))
		if err := errors.Join(errA, errB); err != nil {
			t.Fatal(err)
		}
		if os.SameFile(a, b) != shared {
			t.Errorf("%s: shared %v, want %v", path, !shared, shared)
		}
	}
	if err := FillContainerd(set, Snapshot, dst); err == nil {
		t.Error("a folder that is not empty was filled")
	}
	empty := filepath.Join(t.TempDir(), "stock")
	if err := FillContainerd(set, Stock, empty); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(empty); err != nil || len(left) > 0 {
		t.Errorf("the stock image's storage holds %v, %v", left, err)
	}
	if err := FillContainerd(set, "no-such-image", filepath.Join(t.TempDir(), "x")); err == nil {
		t.Error("an unknown image was accepted")
	}
}

func TestCopyTreeKeepsAttributes(t *testing.T) {
	src, dst := t.TempDir(), filepath.Join(t.TempDir(), "copy")
	if err := os.Mkdir(filepath.Join(src, "sticky"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(src, "sticky"), 0o777|fs.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", filepath.Join(src, "sticky", "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(src, "setuid"), []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(src, "setuid"), 0o755|fs.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	if err := copyTree(src, dst, func(string) bool { return false }); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]fs.FileMode{"sticky": fs.ModeDir | fs.ModeSticky | 0o777, "setuid": fs.ModeSetuid | 0o755} {
		st, err := os.Stat(filepath.Join(dst, path))
		if err != nil || st.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", path, st.Mode(), err, want)
		}
	}
	if target, err := os.Readlink(filepath.Join(dst, "sticky/link")); err != nil || target != "nowhere" {
		t.Errorf("link: %q, %v", target, err)
	}
}
