package ssh

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"hk/remote"
)

func apply(t *testing.T, h remote.Host, s remote.HostState) *remote.Applied {
	t.Helper()
	a, err := h.Apply(ctxOf(t), s)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(a.Changed)
	return a
}

func TestApplyFiles(t *testing.T) {
	m, _, h := up(t, nil)
	m.write("/etc/gone", "x")
	m.write("/etc/kept", "old")
	m.write("/var/lib/old/deep/file", "x")
	s := remote.HostState{Files: []remote.File{
		{Path: "/etc/a/b.conf", Mode: 0o640, Content: []byte("one\x00two"), Secret: true},
		{Path: "/etc/empty", Mode: 0o644},
		{Path: "/etc/gone", Absent: true},
		{Path: "/var/lib/old", Absent: true},
		{Path: "/etc/kept", Mode: 0o644, Content: []byte("new"), Keep: true},
		{Path: "/etc/made", Mode: 0o600, Content: []byte("made"), Keep: true},
		{Path: "/var/lib/etcd", Mode: fs.ModeDir | 0o700},
		{Path: "/etc/link", Link: "a/b.conf"},
	}}
	want := []string{"/etc/a/b.conf", "/etc/empty", "/etc/gone", "/etc/link", "/etc/made", "/var/lib/etcd", "/var/lib/old"}
	if d := cmp.Diff(want, apply(t, h, s).Changed); d != "" {
		t.Error(d)
	}
	if m.read("/etc/a/b.conf") != "one\x00two" || m.read("/etc/kept") != "old" || m.read("/etc/link") != "one\x00two" {
		t.Error("contents differ")
	}
	if a := apply(t, h, s); len(a.Changed) != 0 {
		t.Errorf("a second apply touched %v", a.Changed)
	}
	if err := os.Chmod(filepath.Join(m.root, "etc/a/b.conf"), 0o666); err != nil {
		t.Fatal(err)
	}
	m.write("/etc/empty", "not any more")
	if d := cmp.Diff([]string{"/etc/a/b.conf", "/etc/empty"}, apply(t, h, s).Changed); d != "" {
		t.Error(d)
	}
	st, err := os.Stat(filepath.Join(m.root, "etc/a/b.conf"))
	if err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("%v, %v", st.Mode(), err)
	}
	left, err := filepath.Glob(filepath.Join(m.root, "etc/.*.hk-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestApplyRefuses(t *testing.T) {
	m, _, h := up(t, nil)
	m.write("/etc/dir/x", "x")
	for name, f := range map[string]remote.File{
		"relative":   {Path: "etc/x", Content: []byte("x")},
		"not clean":  {Path: "/etc/../x", Content: []byte("x")},
		"unfilled":   {Path: "/etc/x", Later: true},
		"a dir":      {Path: "/etc/dir", Content: []byte("x")},
		"no user":    {Path: "/etc/x", Owner: "nobody-of-this-name", Content: []byte("x")},
		"root":       {Path: "/etc", Absent: true},
		"no hash":    {Path: "/etc/x", Artifact: &remote.Artifact{Name: "x", URLs: []string{"http://127.0.0.1:1/"}}},
		"dir's link": {Path: "/etc/dir", Link: "x"},
	} {
		if _, err := h.Apply(ctxOf(t), remote.HostState{Files: []remote.File{f}}); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	if m.read("/etc/dir/x") != "x" {
		t.Error("a refused file did harm")
	}
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func tgz(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	w := tar.NewWriter(z)
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for n := range files {
			if !yield(n) {
				return
			}
		}
	}) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(files[name])), Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(files[name])); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// mirror serves artifacts and counts.
type mirror struct {
	*httptest.Server
	files map[string][]byte
	gets  atomic.Int64
	fail  atomic.Int64 // answer so many requests with 503 first
}

func newMirror(t *testing.T, files map[string][]byte) *mirror {
	t.Helper()
	m := &mirror{files: files}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.gets.Add(1)
		if m.fail.Add(-1) >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		b, ok := m.files[r.URL.Path]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		_, _ = w.Write(b)
	}))
	t.Cleanup(m.Close)
	return m
}

func TestApplyArtifacts(t *testing.T) {
	m, _, h := up(t, nil)
	archive := tgz(t, map[string]string{"./etcd-v3/etcd": "etcd bytes", "etcd-v3/etcdctl": "ctl bytes", "other": "x"})
	plain := []byte(strings.Repeat("program ", 200000))
	w := newMirror(t, map[string][]byte{"/etcd.tar.gz": archive, "/kubelet": plain, "/bad": []byte("evil")})
	member := func(path, name, hash string) remote.File {
		return remote.File{Path: path, Mode: 0o755, Artifact: &remote.Artifact{
			Name: "etcd", URLs: []string{w.URL + "/none", w.URL + "/etcd.tar.gz"}, SHA256: sum(archive), Member: name, FileSHA256: hash,
		}}
	}
	s := remote.HostState{Files: []remote.File{
		member("/usr/local/bin/etcd", "etcd-v3/etcd", sum([]byte("etcd bytes"))),
		member("/usr/local/bin/etcdctl", "etcd-v3/etcdctl", ""),
		{Path: "/usr/local/bin/kubelet", Mode: 0o755, Artifact: &remote.Artifact{
			Name: "kubelet", URLs: []string{w.URL + "/bad", w.URL + "/kubelet"}, SHA256: sum(plain),
		}},
	}}
	want := []string{"/usr/local/bin/etcd", "/usr/local/bin/etcdctl", "/usr/local/bin/kubelet"}
	if d := cmp.Diff(want, apply(t, h, s).Changed); d != "" {
		t.Error(d)
	}
	if n := w.gets.Load(); n != 4 {
		t.Errorf("%d requests; one archive for two members, and one program, each with a bad URL first, are 4", n)
	}
	if m.read("/usr/local/bin/etcdctl") != "ctl bytes" || m.read("/usr/local/bin/etcd") != "etcd bytes" || m.read("/usr/local/bin/kubelet") != string(plain) {
		t.Error("contents differ")
	}
	w.gets.Store(0)
	if a := apply(t, h, s); len(a.Changed) != 0 || w.gets.Load() != 0 {
		t.Errorf("a second apply touched %v with %d requests", a.Changed, w.gets.Load())
	}
	m.write("/usr/local/bin/etcdctl", "tampered")
	if d := cmp.Diff([]string{"/usr/local/bin/etcdctl"}, apply(t, h, s).Changed); d != "" {
		t.Error(d)
	}
	left, err := os.ReadDir(filepath.Join(m.root, "var/lib/hk/artifacts"))
	if err != nil || len(left) != 0 {
		t.Errorf("downloads left behind: %v, %v", left, err)
	}
}

func TestApplyArtifactFails(t *testing.T) {
	m, _, h := up(t, nil)
	m.write("/usr/local/bin/x", "old")
	w := newMirror(t, map[string][]byte{"/bad": []byte("evil"), "/good": []byte("good")})
	file := func(url string) remote.HostState {
		return remote.HostState{Files: []remote.File{{Path: "/usr/local/bin/x", Mode: 0o755, Artifact: &remote.Artifact{
			Name: "x", URLs: []string{url}, SHA256: sum([]byte("good")),
		}}}}
	}
	_, err := h.Apply(ctxOf(t), file(w.URL+"/bad"))
	var he *remote.HostError
	if !errors.As(err, &he) || he.Again || !strings.Contains(err.Error(), "its hash is "+sum([]byte("evil"))) {
		t.Errorf("wrong bytes: %v", err)
	}
	if w.gets.Load() != 1 {
		t.Errorf("wrong bytes were asked for %d times", w.gets.Load())
	}
	if m.read("/usr/local/bin/x") != "old" {
		t.Error("a bad download replaced the program")
	}
	w.fail.Store(1)
	if a := apply(t, h, file(w.URL+"/good")); len(a.Changed) != 1 || m.read("/usr/local/bin/x") != "good" {
		t.Errorf("no second try after 503: %v", a.Changed)
	}
}

func TestApplySystem(t *testing.T) {
	m, _, h := up(t, nil)
	m.write("/proc/sys/net/ipv4/ip_forward", "0\n")
	m.write("/var/lib/cloud/instance/boot-finished", "")
	s := remote.HostState{
		Packages: []string{"haproxy", "socat"}, Images: []string{"registry.k8s.io/pause:3.10.2"},
		Sysctls: map[string]string{"net.ipv4.ip_forward": "1"}, Modules: []string{"overlay"},
	}
	apply(t, h, s)
	if got := m.calls("apt-get"); len(got) != 2 || !strings.HasSuffix(got[0], " update") || !strings.HasSuffix(got[1], "install --no-install-recommends haproxy socat") {
		t.Errorf("apt: %q", got)
	}
	if v := strings.TrimSpace(m.read("/proc/sys/net/ipv4/ip_forward")); v != "1" {
		t.Errorf("sysctl is %q", v)
	}
	apply(t, h, s)
	for _, c := range m.calls("") {
		if strings.HasPrefix(c, "apt-get") || strings.HasPrefix(c, "crictl") || strings.HasPrefix(c, "modprobe") {
			t.Errorf("a second apply ran %s", c)
		}
	}
	_, err := h.Apply(ctxOf(t), remote.HostState{Sysctls: map[string]string{"no.such": "1"}, Modules: []string{"nothing"}})
	if err == nil || !strings.Contains(err.Error(), "kernel module nothing") || !strings.Contains(err.Error(), "sysctl no.such = 1: No such file") {
		t.Errorf("missing module and sysctl: %v", err)
	}
}

func TestApplyUnits(t *testing.T) {
	m, _, h := up(t, nil)
	m.setUnit("hkd.service", fakeUnit{Helper: []string{"/etc/hkd.conf", "/usr/bin/hkd"}})
	state := func(conf, program string) remote.HostState {
		return remote.HostState{
			Files: []remote.File{
				{Path: "/etc/hkd.conf", Content: []byte(conf)},
				{Path: "/usr/bin/hkd", Mode: 0o755, Content: []byte(program)},
				{Path: "/etc/debian.conf", Content: []byte(conf)},
			},
			Units: []remote.Unit{
				{Name: "hkd.service", Enabled: true, Active: true, Files: []string{"/etc/hkd.conf", "/usr/bin/hkd"}, Reload: true},
				{Name: "debian.service", Enabled: true, Active: true, Files: []string{"/etc/debian.conf"}},
				{Name: "apt-daily.timer", Masked: true},
			},
		}
	}
	big := strings.Repeat("p", 1<<20+1)
	if d := cmp.Diff([]string{"hkd.service", "debian.service"}, apply(t, h, state("one", big)).Restarted); d != "" {
		t.Error(d)
	}
	got := m.calls("systemctl --no-pager")
	want := []string{
		"systemctl --no-pager --no-ask-password --no-reload enable hkd.service debian.service",
		"systemctl --no-pager --no-ask-password --no-reload mask apt-daily.timer",
		"systemctl --no-pager --no-ask-password restart hkd.service debian.service",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	facts := func() map[string]remote.UnitFact {
		t.Helper()
		f, err := h.Facts(ctxOf(t), remote.FactsQuery{Units: []string{"hkd.service", "debian.service", "apt-daily.timer"}})
		if err != nil {
			t.Fatal(err)
		}
		return f.Units
	}
	f := facts()
	for _, n := range []string{"hkd.service", "debian.service"} {
		if u := f[n]; u.Active != "active" || u.Enabled != "enabled" || len(u.Started) != 64 || u.Started != u.Disk {
			t.Errorf("%s: %+v", n, u)
		}
	}
	if f["apt-daily.timer"].Enabled != "masked" {
		t.Errorf("%+v", f["apt-daily.timer"])
	}
	m.calls("")
	if a := apply(t, h, state("one", big)); len(a.Restarted) != 0 || len(m.calls("systemctl --no-pager")) != 0 {
		t.Errorf("a second apply restarted %v", a.Restarted)
	}
	// Other bytes on disk than the unit was started with are drift ...
	m.write("/etc/hkd.conf", "two")
	if u := facts()["hkd.service"]; u.Started == u.Disk {
		t.Error("other bytes on disk go unnoticed")
	}
	// ... and a changed configuration reloads, a changed program restarts.
	m.calls("")
	apply(t, h, state("three", big))
	if d := cmp.Diff([]string{"systemctl --no-pager --no-ask-password restart debian.service", "systemctl --no-pager --no-ask-password reload-or-restart hkd.service"}, m.calls("systemctl --no-pager")); d != "" {
		t.Error(d)
	}
	apply(t, h, state("three", "p"))
	if d := cmp.Diff([]string{"systemctl --no-pager --no-ask-password restart hkd.service"}, m.calls("systemctl --no-pager")); d != "" {
		t.Error(d)
	}
}

// A unit that somebody else started, after its files were last touched, was
// started with them: no reason to restart it.
func TestApplyUnitAdopted(t *testing.T) {
	m, _, h := up(t, nil)
	s := remote.HostState{
		Files: []remote.File{{Path: "/etc/x.conf", Content: []byte("x")}},
		Units: []remote.Unit{{Name: "x.service", Enabled: true, Active: true, Files: []string{"/etc/x.conf"}}},
	}
	apply(t, h, remote.HostState{Files: s.Files})
	m.setUnit("x.service", fakeUnit{Active: "active", Enabled: "enabled", Invocation: "boot", Since: int64(1) << 60})
	if a := apply(t, h, s); len(a.Restarted) != 0 {
		t.Errorf("restarted %v", a.Restarted)
	}
	m.setUnit("x.service", fakeUnit{Active: "active", Enabled: "enabled", Invocation: "again", Since: 1})
	if a := apply(t, h, s); len(a.Restarted) != 1 {
		t.Error("started before its files were written, and not restarted")
	}
}

func TestApplyUnitFails(t *testing.T) {
	m, _, h := up(t, nil)
	m.setUnit("bad.service", fakeUnit{Fails: true})
	a, err := h.Apply(ctxOf(t), remote.HostState{
		Files: []remote.File{{Path: "/etc/x", Content: []byte("x")}},
		Units: []remote.Unit{{Name: "bad.service", Enabled: true, Active: true}},
	})
	var he *remote.HostError
	if !errors.As(err, &he) || !strings.Contains(err.Error(), "restart bad.service") {
		t.Errorf("%v", err)
	}
	if len(a.Changed) != 1 {
		t.Errorf("what was touched before the error is not told: %+v", a)
	}
}

func TestJournal(t *testing.T) {
	m, _, h := up(t, nil)
	entries := map[string][]byte{"etcd-setup.certs/master-1": []byte("a\x00b"), ".hidden": []byte("x"), "empty": {}}
	if err := h.Journal(ctxOf(t), entries); err != nil {
		t.Fatal(err)
	}
	if err := h.Journal(ctxOf(t), map[string][]byte{"etcd-setup.certs/master-1": []byte("c"), ".hidden": nil}); err != nil {
		t.Fatal(err)
	}
	f, err := h.Facts(ctxOf(t), remote.FactsQuery{Journal: true})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string][]byte{"etcd-setup.certs/master-1": []byte("c"), "empty": {}}, f.Journal); d != "" {
		t.Error(d)
	}
	st, err := os.Stat(filepath.Join(m.root, "var/lib/hk/journal"))
	if err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", st, err)
	}
}

// The host refuses who writes with an older lease than it has seen.
func TestLease(t *testing.T) {
	var lease atomic.Uint64
	lease.Store(5)
	m, _, h := up(t, func(o *Options) { o.Generation = lease.Load })
	m.write("/etc/hk/host.json", `{"uid":"u","lease":5}`)
	one := remote.HostState{Files: []remote.File{{Path: "/etc/x", Content: []byte("x")}}}
	apply(t, h, one)
	lease.Store(7)
	apply(t, h, one)
	if !strings.Contains(m.read("/etc/hk/host.json"), `"lease":7`) {
		t.Errorf("not raised: %s", m.read("/etc/hk/host.json"))
	}
	lease.Store(6)
	two := remote.HostState{Files: []remote.File{{Path: "/etc/x", Content: []byte("y")}}}
	for what, err := range map[string]error{
		"apply":   second(h.Apply(ctxOf(t), two)),
		"journal": h.Journal(ctxOf(t), map[string][]byte{"a": []byte("b")}),
		"run":     second(h.Run(ctxOf(t), remote.Job{Unit: "hk-a", Task: "t", Argv: []string{"true"}})),
	} {
		if !errors.Is(err, remote.ErrStaleGeneration) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if m.read("/etc/x") != "x" || len(m.calls("systemd-run")) != 0 {
		t.Error("a refused write was done")
	}
}

func second[T any](_ T, err error) error { return err }

// Many writers of one lease go on side by side.
func TestApplyConcurrent(t *testing.T) {
	m, _, h := up(t, nil)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctxOf(t))
	defer cancel()
	for i := range 8 {
		wg.Go(func() {
			p := fmt.Sprintf("/etc/f%d", i)
			if _, err := h.Apply(ctx, remote.HostState{Files: []remote.File{{Path: p, Content: []byte(p)}}}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for i := range 8 {
		if p := fmt.Sprintf("/etc/f%d", i); m.read(p) != p {
			t.Errorf("%s is %q", p, m.read(p))
		}
	}
	if m.authed.Load() != 1 {
		t.Errorf("%d connections", m.authed.Load())
	}
}
