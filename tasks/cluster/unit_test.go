package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"hk/remote"
	"hk/tasks"
)

func unitOptions(keys *[]KeyCreated) UnitOptions {
	return UnitOptions{Version: "1.2.0", Now: func() time.Time { return time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC) }, Created: func(k KeyCreated) {
		if keys != nil {
			*keys = append(*keys, k)
		}
	}}
}

var fresh = NewUnit{UID: "00aa", Alloc: map[string]int{"master-1": 1}, Lock: []byte("lock"), Applied: []byte("name: demo\n"), SSHKey: "ssh-ed25519 AAAA me"}

// scratch is a directory in memory where there is one: these tests sync hundreds
// of files, and a busy disk takes its time for each.
func scratch(t *testing.T) string {
	t.Helper()
	const shm = "/dev/shm"
	if _, err := os.Stat(shm); err != nil {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(shm, "hk-unit-") //nolint:usetesting // not where t.TempDir is
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

func TestUnitOnDisk(t *testing.T) {
	home := scratch(t)
	d := NewDir(home)
	var keys []KeyCreated
	u, err := CreateUnit(d, "demo", fresh, unitOptions(&keys))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := u.CreateAuthority(KubernetesCA, "kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.CreateSecret("sa.key", func() ([]byte, error) { return []byte("0123"), nil }); err != nil {
		t.Fatal(err)
	}
	if err := u.SaveHost(tasks.HostRecord{Host: "master-1", Index: 1, ServerID: 7, Addr: "192.0.2.1", HostKey: "ssh-ed25519 K", Seen: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateUnit(d, "demo", fresh, unitOptions(nil)); !errors.Is(err, fs.ErrExist) {
		t.Fatalf("a second unit: %v", err)
	}

	again, err := OpenUnit(d, "demo", unitOptions(&keys))
	if err != nil {
		t.Fatal(err)
	}
	got, err := again.Authority("ca") // the name masters use
	if err != nil || !got.Cert.Equal(ca.Cert) {
		t.Fatalf("authority after opening again: %v", err)
	}
	if id := again.KeyID("ca"); id == "" || id != again.KeyID(KubernetesCA) || id != u.KeyID("kubernetes-ca") {
		t.Errorf("key ID of the authority: %q", id)
	}
	if r, ok := again.Host("master-1"); !ok || r.ServerID != 7 {
		t.Errorf("host record: %+v", r)
	}
	if !bytes.Equal(u.HMAC([]byte("x")), again.HMAC([]byte("x"))) {
		t.Error("another HMAC after opening again")
	}
	names := []string{}
	for _, k := range keys {
		names = append(names, k.Name)
		if k.KeyID == "" {
			t.Errorf("%s has no key ID", k.Name)
		}
	}
	if want := []string{"hmac.key", "kubernetes-ca", "sa.key"}; !slices.Equal(names, want) {
		t.Errorf("keys told %v, want %v", names, want)
	}
	for name, want := range map[string]fs.FileMode{
		"": 0o700, "ca.key": 0o600, "ca.crt": 0o600, "manifest.json": 0o600, "hosts.json": 0o600, "known_hosts": 0o600,
	} {
		fi, err := os.Stat(filepath.Join(home, "clusters", "demo", name))
		if err != nil || fi.Mode().Perm() != want {
			t.Errorf("%q has mode %v, want %v (%v)", name, fi.Mode().Perm(), want, err)
		}
	}
	kh, err := os.ReadFile(filepath.Join(home, "clusters", "demo", "known_hosts"))
	if err != nil || string(kh) != "demo-master-1,192.0.2.1 ssh-ed25519 K\n" {
		t.Errorf("known_hosts %q, %v", kh, err)
	}
}

func TestUnitMakesNothingForALivingCluster(t *testing.T) {
	u, err := CreateUnit(NewMem(), "demo", fresh, unitOptions(nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Put("etcd-born", nil); err != nil {
		t.Fatal(err)
	}
	_, err = u.CreateAuthority(EtcdCA, "etcd-ca")
	refusal(t, err, ExitCredentials)
	ca, err := u.CreateAuthority("ca", "kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	if err := u.Put("born", nil); err != nil {
		t.Fatal(err)
	}
	again, err := u.CreateAuthority("ca", "kubernetes")
	if err != nil || !again.Cert.Equal(ca.Cert) {
		t.Fatalf("the authority that is there: %v", err)
	}
	_, err = u.CreateAuthority(FrontProxyCA, "x")
	refusal(t, err, ExitCredentials)
	_, err = u.CreateSecret("sa.key", func() ([]byte, error) { t.Error("made"); return nil, nil })
	refusal(t, err, ExitCredentials)
	if _, err := u.Secret("sa.key"); !errors.Is(err, remote.ErrNotFound) {
		t.Errorf("a secret that is not there: %v", err)
	}
}

// A change that many ask for at once is made once, and told once.
func TestUnitIsSharedSafely(t *testing.T) {
	var keys []KeyCreated
	var mu sync.Mutex
	o := unitOptions(nil)
	o.Created = func(k KeyCreated) { mu.Lock(); keys = append(keys, k); mu.Unlock() }
	d := NewDir(scratch(t))
	writes := 0
	d.step = func(what string) error {
		if strings.HasPrefix(what, "replace ") {
			writes++
		}
		return nil
	}
	u, err := CreateUnit(d, "demo", fresh, o)
	if err != nil {
		t.Fatal(err)
	}
	const n = 40
	var wg sync.WaitGroup
	made := 0
	for i := range n {
		wg.Go(func() {
			if err := u.SaveHost(tasks.HostRecord{Host: fmt.Sprintf("worker-%d", i), Index: i}); err != nil {
				t.Error(err)
			}
			if _, err := u.CreateAuthority("ca", "kubernetes"); err != nil {
				t.Error(err)
			}
			if _, err := u.CreateSecret("sa.key", func() ([]byte, error) { made++; return []byte("s"), nil }); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if made != 1 || len(keys) != 3 {
		t.Errorf("the secret was made %d times, keys told: %v", made, keys)
	}
	again, err := OpenUnit(d, "demo", unitOptions(nil))
	if err != nil {
		t.Fatal(err)
	}
	if got := len(again.Hosts()); got != n {
		t.Errorf("%d hosts on disk, want %d", got, n)
	}
	if writes >= 3*(n+2) {
		t.Errorf("%d file writes for %d changes: none were written together", writes, n+2)
	}
}

var errCrash = errors.New("crash")

// crashed runs f on a unit on disk that dies at the n-th step; false if f got to
// its end.
func crashed(t *testing.T, home string, n int, f func(*Unit) error) bool {
	t.Helper()
	d := NewDir(home)
	dead := false
	d.step = func(string) error {
		if n--; n < 0 {
			dead = true // and stays dead
			return errCrash
		}
		return nil
	}
	u, err := OpenUnit(d, "demo", unitOptions(nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := f(u); err != nil && !errors.Is(err, errCrash) {
		t.Fatal(err)
	}
	return dead
}

// A crash at any step of any change leaves a unit that opens, with each value
// either as it was or as it was to become, and no key known to nobody.
func TestUnitSurvivesACrashAtEachStep(t *testing.T) {
	changes := map[string]func(*Unit) error{
		"host": func(u *Unit) error {
			return u.SaveHost(tasks.HostRecord{Host: "master-1", Addr: "192.0.2.2", HostKey: "k", Seen: true})
		},
		"authority": func(u *Unit) error { _, err := u.CreateAuthority(EtcdCA, "etcd-ca"); return err },
		"secret": func(u *Unit) error {
			_, err := u.CreateSecret("sa.key", func() ([]byte, error) { return []byte("new"), nil })
			return err
		},
		"put":  func(u *Unit) error { return u.Put("admin.conf", []byte("new")) },
		"born": func(u *Unit) error { return u.MarkBorn() },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			for n := 0; ; n++ {
				home := scratch(t)
				u, err := CreateUnit(NewDir(home), "demo", fresh, unitOptions(nil))
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(
					u.SaveHost(tasks.HostRecord{Host: "master-1", Addr: "192.0.2.1", HostKey: "k", Seen: true}),
					u.Put("admin.conf", []byte("old"))); err != nil {
					t.Fatal(err)
				}
				key := u.KeyID("hmac.key")
				dead := crashed(t, home, n, change)

				var told []KeyCreated
				after, err := OpenUnit(NewDir(home), "demo", unitOptions(&told))
				if err != nil {
					t.Fatalf("step %d: the unit does not open: %v", n, err)
				}
				checkOldOrNew(t, n, after)
				if after.KeyID("hmac.key") != key {
					t.Errorf("step %d: another HMAC key", n)
				}
				// The change made again succeeds, and leaves a whole unit.
				if err := change(after); err != nil {
					t.Fatalf("step %d: again: %v", n, err)
				}
				end, err := OpenUnit(NewDir(home), "demo", unitOptions(nil))
				if err != nil || len(end.Warnings()) > 0 {
					t.Fatalf("step %d: after the change was made again: %v %v", n, end.Warnings(), err)
				}
				if name == "authority" {
					if _, err := end.Authority(EtcdCA); err != nil {
						t.Errorf("step %d: %v", n, err)
					}
				}
				if !dead {
					if n < 2 {
						t.Errorf("only %d steps: the test sees none", n)
					}
					return
				}
			}
		})
	}
}

func checkOldOrNew(t *testing.T, n int, u *Unit) {
	t.Helper()
	if r, ok := u.Host("master-1"); !ok || r.Addr != "192.0.2.1" && r.Addr != "192.0.2.2" {
		t.Errorf("step %d: host record %+v", n, r)
	}
	if b, err := u.File("admin.conf"); err != nil || string(b) != "old" && string(b) != "new" {
		t.Errorf("step %d: admin.conf %q %v", n, b, err)
	}
	if a, err := u.Authority(EtcdCA); err != nil && !errors.Is(err, remote.ErrNotFound) {
		t.Errorf("step %d: half an authority: %v %v", n, a, err)
	}
}

// A key is told of exactly once, whichever step of its making died.
func TestKeyCreatedIsToldOnceAcrossCrashes(t *testing.T) {
	for n := 0; ; n++ {
		home := scratch(t)
		if _, err := CreateUnit(NewDir(home), "demo", fresh, unitOptions(nil)); err != nil {
			t.Fatal(err)
		}
		var told []KeyCreated
		d := NewDir(home)
		left, dead := n, false
		d.step = func(string) error {
			if left--; left < 0 {
				dead = true
				return errCrash
			}
			return nil
		}
		u, err := OpenUnit(d, "demo", unitOptions(&told))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := u.CreateAuthority("ca", "kubernetes"); err != nil && !errors.Is(err, errCrash) {
			t.Fatal(err)
		}
		for range 2 {
			u, err := OpenUnit(NewDir(home), "demo", unitOptions(&told))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := u.CreateAuthority("ca", "kubernetes"); err != nil {
				t.Fatal(err)
			}
			if err := u.SaveHost(tasks.HostRecord{Host: "x"}); err != nil {
				t.Fatal(err)
			}
		}
		u, err = OpenUnit(NewDir(home), "demo", unitOptions(nil))
		if err != nil {
			t.Fatal(err)
		}
		// The very last step is the one after which the file is whole and the
		// telling is all that is missing; there the event is lost with the process.
		if len(told) > 1 || len(told) == 1 && told[0].KeyID != u.KeyID("ca") {
			t.Errorf("step %d: told %v, the key is %s", n, told, u.KeyID("ca"))
		}
		if len(told) == 0 && left+1 != 0 {
			t.Errorf("step %d: nobody was told", n)
		}
		if !dead {
			return
		}
	}
}

// A failed write leaves memory as it was, and the next write succeeds.
func TestUnitRecoversFromAFullDisk(t *testing.T) {
	for n := range 12 {
		s := NewMem()
		u, err := CreateUnit(s, "demo", fresh, unitOptions(nil))
		if err != nil {
			t.Fatal(err)
		}
		left := n
		s.Step = func(string) error {
			if left--; left == -1 {
				return stateError("writing", "x", syscall.ENOSPC)
			}
			return nil
		}
		err1 := u.SaveHost(tasks.HostRecord{Host: "master-1", Addr: "192.0.2.1", HostKey: "k", Seen: true})
		if err1 != nil {
			r := refusal(t, err1, ExitState)
			if !strings.Contains(r.Message, "no space") {
				t.Errorf("message %q", r.Message)
			}
			if _, ok := u.Host("master-1"); ok {
				t.Errorf("write %d failed and is seen", n)
			}
		}
		if err := u.SaveHost(tasks.HostRecord{Host: "master-1", Addr: "192.0.2.2", HostKey: "k", Seen: true}); err1 != nil && err != nil {
			t.Fatalf("after a failed write %d: %v", n, err)
		}
		again, err := OpenUnit(s, "demo", unitOptions(nil))
		if err != nil {
			t.Fatalf("after a failed write %d: %v", n, err)
		}
		if r, _ := again.Host("master-1"); err1 != nil && r.Addr != "192.0.2.2" {
			t.Errorf("write %d: %+v", n, r)
		}
	}
}

func TestUnitCreationIsAllOrNothing(t *testing.T) {
	for n := 0; ; n++ {
		home := scratch(t)
		d := NewDir(home)
		left, dead := n, false
		d.step = func(string) error {
			if left--; left < 0 {
				dead = true
				return errCrash
			}
			return nil
		}
		_, err := CreateUnit(d, "demo", fresh, unitOptions(nil))
		if dead != (err != nil) {
			t.Fatalf("step %d: %v", n, err)
		}
		list, lerr := NewDir(home).List()
		if lerr != nil {
			t.Fatal(lerr)
		}
		_, oerr := OpenUnit(NewDir(home), "demo", unitOptions(nil))
		if dead && (len(list) > 0 || !errors.Is(oerr, remote.ErrNotFound)) || !dead && oerr != nil {
			t.Fatalf("step %d: units %v, %v", n, list, oerr)
		}
		if dead {
			if _, err := CreateUnit(NewDir(home), "demo", fresh, unitOptions(nil)); err != nil {
				t.Fatalf("step %d: again: %v", n, err)
			}
			es, err := os.ReadDir(filepath.Join(home, "clusters"))
			if err != nil || len(es) != 1 {
				t.Fatalf("step %d: rests of the first try are left: %v %v", n, es, err)
			}
			continue
		}
		return
	}
}

func TestUnitThatIsNotAsItsManifestSays(t *testing.T) {
	tests := []struct {
		name string
		file string
		text string // "" removes the file
		exit int    // 0: it opens, with a warning
		says string
	}{
		{"key changed", "ca.key", "x", ExitState, "ca.key is not the file"},
		{"key gone", "ca.key", "", ExitState, "ca.key is missing"},
		{"hosts changed", "hosts.json", "[]", ExitState, "hosts.json"},
		{"admin.conf edited", "admin.conf", "mine", 0, "changed by hand"},
		{"admin.conf gone", "admin.conf", "", 0, "is gone"},
		{"no manifest", "manifest.json", "", ExitState, "has no manifest.json"},
		{"manifest torn", "manifest.json", `{"v":1,`, ExitState, "cannot be read"},
		{"other program's", "manifest.json", `{"x":1}`, ExitState, "names no cluster"},
		{"newer hk's", "manifest.json", `{"v":99,"uid":"1","name":"demo","hk_version":"9.0.0"}`, ExitConfig, "newer hk (9.0.0"},
		{"stray file", "notes.txt", "mine", 0, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			home := scratch(t)
			u, err := CreateUnit(NewDir(home), "demo", fresh, unitOptions(nil))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := u.CreateAuthority("ca", "kubernetes"); err != nil {
				t.Fatal(err)
			}
			if err := u.Put("admin.conf", []byte("conf")); err != nil {
				t.Fatal(err)
			}
			if path := filepath.Join(home, "clusters", "demo", tt.file); tt.text != "" {
				put(t, path, tt.text)
			} else if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			u, err = OpenUnit(NewDir(home), "demo", unitOptions(nil))
			if tt.exit != 0 {
				if r := refusal(t, err, tt.exit); !strings.Contains(r.Message, tt.says) {
					t.Errorf("message %q, want %q", r.Message, tt.says)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if w := strings.Join(u.Warnings(), "\n"); !strings.Contains(w, tt.says) {
				t.Errorf("warnings %q, want %q", w, tt.says)
			}
		})
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestUnitInAForeignPlace(t *testing.T) {
	home := filepath.Join(scratch(t), "file")
	put(t, home, "x")
	_, err := OpenUnit(NewDir(home), "demo", unitOptions(nil))
	refusal(t, err, ExitState)
	_, err = CreateUnit(NewDir(home), "demo", fresh, unitOptions(nil))
	refusal(t, err, ExitState)
	for err, says := range map[error]string{
		syscall.ENOSPC: "no space", syscall.EROFS: "read-only", syscall.EACCES: "permission denied", syscall.EDQUOT: "no space",
	} {
		if r := refusal(t, stateError("writing", "/x", &fs.PathError{Op: "write", Path: "/x", Err: err}), ExitState); !strings.Contains(r.Message, says) {
			t.Errorf("%v: %q", err, r.Message)
		}
	}
}

func TestTarIsTheUnit(t *testing.T) {
	u, err := CreateUnit(NewMem(), "demo", fresh, unitOptions(nil))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.CreateAuthority("ca", "kubernetes"); err != nil {
		t.Fatal(err)
	}
	text := u.Tar()
	if !bytes.Equal(text, u.Tar()) {
		t.Error("two archives of one unit differ")
	}
	files, err := Untar(text)
	if err != nil {
		t.Fatal(err)
	}
	v, err := ImportUnit(NewMem(), "demo", files, unitOptions(nil))
	if err != nil {
		t.Fatal(err)
	}
	if v.KeyID("ca") != u.KeyID("ca") || v.UID() != u.UID() || !bytes.Equal(v.Tar(), text) {
		t.Error("the imported unit is another one")
	}
	files["ca.key"] = []byte("other")
	_, err = ImportUnit(NewMem(), "demo", files, unitOptions(nil))
	refusal(t, err, ExitState)
}
