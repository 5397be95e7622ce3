package spec

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLockFile(t *testing.T) {
	path := LockPath(filepath.Join(t.TempDir(), "demo.yaml"), "demo")
	if filepath.Base(path) != "demo.lock.yaml" {
		t.Errorf("lock file %s", path)
	}
	if _, err := LoadLock(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	l := &LockFile{
		Kubernetes: "v1.37.2", Resolved: time.Date(2026, 12, 1, 10, 0, 0, 0, time.UTC),
		Artifacts: map[string]Artifact{
			"etcd":    {Version: "v3.7.3", Path: "/e.tar.gz", SHA256: strings.Repeat("a", 64), Files: map[string]string{"etcd/etcd": strings.Repeat("b", 64)}},
			"kubelet": {Version: "v1.37.2", Path: "/k", SHA256: strings.Repeat("c", 64)},
		},
		Images: map[string]string{"pause": "registry.k8s.io/pause:3.10.2"},
	}
	if err := SaveLock(path, l); err != nil {
		t.Fatal(err)
	}
	back, err := LoadLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(l, back); d != "" {
		t.Error(d)
	}
	for name, text := range map[string]string{
		"no version": "kubernetes: latest\n",
		"unknown":    "kubernetes: v1.37.2\nwhat: 1\n",
		"no hash":    "kubernetes: v1.37.2\nartifacts: {etcd: {version: v1, path: /x, sha256: abc}}\n",
		"binary":     "\x00\x01",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		var ce *ConfigError
		if _, err := LoadLock(path); !errors.As(err, &ce) || ce.File != path || ce.Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}
