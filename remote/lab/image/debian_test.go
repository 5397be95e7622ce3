package image

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDebianSources(t *testing.T) {
	for name, tc := range map[string]struct {
		files map[string]string
		want  []string // lines of the result; nil means an error
	}{
		"one-line": {
			files: map[string]string{"sources.list": `
# deb http://commented.example/debian bookworm main
deb [signed-by=/k.gpg arch=amd64] http://mirror.example/debian bookworm main contrib # why
deb-src http://mirror.example/debian bookworm main
deb http://mirror.example/debian bookworm-updates main
deb http://mirror.example/security bookworm-security main
`},
			want: []string{
				"deb http://mirror.example/debian bookworm main",
				"deb http://mirror.example/debian bookworm-updates main",
				"deb http://mirror.example/security bookworm-security main",
			},
		},
		"deb822": {
			files: map[string]string{"sources.list.d/debian.sources": `Types: deb deb-src
# a comment in a stanza
URIs: http://mirror.example/debian
Suites: bookworm-updates
 bookworm
Components: main
Signed-By: /usr/share/keyrings/k.gpg

Types: deb
URIs: http://mirror.example/security
Suites: bookworm-security
Components: main non-free

Types: deb
URIs: http://off.example/debian
Suites: bookworm
Components: main
Enabled: no
`},
			want: []string{
				"deb http://mirror.example/debian bookworm main",
				"deb http://mirror.example/debian bookworm-updates main",
				"deb http://mirror.example/security bookworm-security main",
			},
		},
		"third parties do not count": {
			files: map[string]string{
				"sources.list":                 "deb http://mirror.example/debian bookworm main\n",
				"sources.list.d/vendor.list":   "deb http://vendor.example nodistro main\n",
				"sources.list.d/vendor.list.x": "deb http://wrong.example/debian bookworm main\n",
				"sources.list.d/again.list":    "deb http://mirror.example/debian bookworm main\n",
			},
			want: []string{"deb http://mirror.example/debian bookworm main"},
		},
		"other release": {files: map[string]string{"sources.list": "deb http://mirror.example/debian trixie main\n"}},
		"nothing":       {},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range tc.files {
				path := filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := debianSources(dir)
			if (err != nil) != (tc.want == nil) {
				t.Fatalf("err = %v", err)
			}
			var lines []string
			for _, s := range got {
				lines = append(lines, s.line())
			}
			if g, w := strings.Join(lines, "\n"), strings.Join(tc.want, "\n"); g != w {
				t.Errorf("got:\n%s\nwant:\n%s", g, w)
			}
		})
	}
}

func TestRenderKubeletDropIn(t *testing.T) {
	for _, v1 := range []bool{true, false} {
		m := testMaker(t.TempDir())
		m.facts.CgroupV1 = v1
		root := t.TempDir()
		if err := m.writeRootfs("rootfs/stock", root); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(root, "etc/kubernetes/kubelet.conf.d/90-lab.conf"))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(string(data), "cgroupDriver: cgroupfs"); got != v1 {
			t.Errorf("cgroup v1 %v: driver set %v", v1, got)
		}
		st, err := os.Stat(filepath.Join(root, "usr/local/lib/lab/mounts.sh"))
		if err != nil || st.Mode().Perm()&0o111 == 0 {
			t.Errorf("mounts.sh: %v, %v: not executable", st, err)
		}
	}
}
