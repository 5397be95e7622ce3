package ssh

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hk/remote"
)

const emptySHA = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

func TestFacts(t *testing.T) {
	m, _, h := up(t, nil)
	m.write("/etc/empty", "")
	m.write("/proc/sys/net/ipv4/ip_local_port_range", "1024\t65000\n")
	m.write("/etc/hk/host.json", `{"uid":"u","cluster":"demo","host":"master-1","index":1,"installation":"i","generation":3,"lease":7}`)
	m.write("/var/lib/hk/journal/etcd-setup=2Ecerts=2Fmaster-1", "entry")
	m.setUnit("x.service", fakeUnit{Active: "active", Enabled: "enabled", Invocation: "inv"})
	if err := os.MkdirAll(filepath.Join(m.root, "sys/module/br_netfilter"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/empty", filepath.Join(m.root, "etc/link")); err != nil {
		t.Fatal(err)
	}
	f, err := h.Facts(ctxOf(t), remote.FactsQuery{
		Paths: []string{"/etc/empty", "/etc/link", "/etc/hk", "/nothing", "/etc/empty/below"}, Units: []string{"x.service", "y.service"},
		Sysctls: []string{"net.ipv4.ip_local_port_range", "no.such"}, Modules: []string{"br_netfilter", "overlay", "dm_nothing"},
		WireGuard: []string{"hk0"}, Journal: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"/etc/empty": emptySHA + " 0600 root:root", "/etc/link": "link /etc/empty", "/etc/hk": "dir 0755 root:root",
		"/nothing": "absent", "/etc/empty/below": "absent",
	}
	if os.Geteuid() == 0 {
		if d := cmp.Diff(want, f.Files); d != "" {
			t.Error(d)
		}
	}
	if d := cmp.Diff(remote.HostIdentity{UID: "u", Cluster: "demo", Host: "master-1", Index: 1, Installation: "i", Generation: 3, Lease: 7}, f.Host); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]remote.UnitFact{"x.service": {Active: "active", Enabled: "enabled", Invocation: "inv"}, "y.service": {Active: "inactive"}}, f.Units); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]string{"net.ipv4.ip_local_port_range": "1024 65000"}, f.Sysctls); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]bool{"br_netfilter": true, "overlay": true, "dm_nothing": false}, f.Modules); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string][]byte{"etcd-setup.certs/master-1": []byte("entry")}, f.Journal); d != "" {
		t.Error(d)
	}
	wg := map[string]remote.WGFact{"hk0": {PublicKey: "public", Port: 51820, Peers: map[string]remote.WGPeer{
		"peer1": {Endpoint: "198.18.0.2:51820", AllowedIPs: []string{"10.100.0.2/32", "10.128.2.0/24"}, LastHandshake: time.Unix(1700000000, 0)},
	}}}
	if d := cmp.Diff(wg, f.WireGuard); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(map[string]remote.Link{"host0": {MAC: "02:00:00:00:00:01", MTU: 1500, Index: 2, Up: true, Addrs: []string{"198.18.0.1/16"}}}, f.Links); d != "" {
		t.Error(d)
	}
	if f.BootID != "b00t" || f.Capabilities != 0x1ffffffffff || f.Uptime != 12500*time.Millisecond || f.Swap || f.Now.IsZero() {
		t.Errorf("fixed facts: %+v", f)
	}
	if _, err := os.Stat(filepath.Join(m.root, "usr/local/lib/hk")); !errors.Is(err, os.ErrNotExist) {
		t.Error("looking left something on the host")
	}
	if n := m.authed.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// A large file's hash is remembered, and asked anew with Full or when the file
// was touched.
func TestFactsLargeFile(t *testing.T) {
	m, _, h := up(t, nil)
	big := strings.Repeat("a", 2<<20)
	m.write("/usr/bin/big", big)
	ask := func(full bool) string {
		t.Helper()
		f, err := h.Facts(ctxOf(t), remote.FactsQuery{Paths: []string{"/usr/bin/big"}, Full: full})
		if err != nil {
			t.Fatal(err)
		}
		return strings.Fields(f.Files["/usr/bin/big"])[0]
	}
	first := ask(false)
	cache := m.read("/var/lib/hk/hashes.json")
	if !strings.Contains(cache, first) {
		t.Fatalf("hash is not kept: %s", cache)
	}
	p, err := os.Stat(filepath.Join(m.root, "usr/bin/big"))
	if err != nil {
		t.Fatal(err)
	}
	// Same size, same mtime, other bytes: the change of the inode's own time tells.
	m.write("/usr/bin/big", strings.Repeat("b", 2<<20))
	if err := os.Chtimes(filepath.Join(m.root, "usr/bin/big"), p.ModTime(), p.ModTime()); err != nil {
		t.Fatal(err)
	}
	if now := ask(false); now == first {
		t.Error("a file changed under its old times went unnoticed")
	}
	if ask(true) != ask(false) {
		t.Error("full and quick disagree")
	}
}

func TestGetExec(t *testing.T) {
	m, _, h := up(t, nil)
	m.write("/etc/x", "bytes\x00\xff")
	b, err := h.Get(ctxOf(t), "/etc/x")
	if err != nil || string(b) != "bytes\x00\xff" {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := h.Get(ctxOf(t), "/etc/y"); !errors.Is(err, remote.ErrNotFound) {
		t.Errorf("missing file: %v", err)
	}
	r, err := h.Exec(ctxOf(t), remote.Command{Argv: []string{"/bin/sh", "-c", `cat; echo "$0" >&2; exit 3`, "a'b $HOME *"}, Stdin: []byte("in")})
	if err != nil {
		t.Fatal(err)
	}
	if r.Code != 3 || string(r.Stdout) != "in" || string(r.Stderr) != "a'b $HOME *\n" {
		t.Errorf("%+v", r)
	}
	if r, err := h.Exec(ctxOf(t), remote.Command{Argv: []string{"no-such-program"}}); err != nil || r.Code != 127 {
		t.Errorf("%+v, %v", r, err)
	}
	_, err = h.Exec(ctxOf(t), remote.Command{Argv: []string{"/bin/sleep", "1000"}, Timeout: 50 * time.Millisecond})
	var he *remote.HostError
	if !errors.As(err, &he) || !he.Again || !strings.Contains(err.Error(), "no end within") {
		t.Errorf("a command without end: %v", err)
	}
}
