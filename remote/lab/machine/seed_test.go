package machine

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSeed(t *testing.T) {
	root := t.TempDir()
	outside := filepath.Join(t.TempDir(), "resolv.conf")
	for path, target := range map[string]string{"etc/resolv.conf": outside, "etc/hostname": "/etc/hostname-of-this-computer"} {
		if err := link(target, filepath.Join(root, path)); err != nil {
			t.Fatal(err)
		}
	}
	s := Spec{
		ID: 12, Hostname: "demo-master-1", Address: "198.18.0.10", Gateway: "172.31.1.1", Resolver: "198.18.0.1",
		SSHKeys: []string{"ssh-ed25519 AAAA a\"b"}, UserData: "#cloud-config\nruncmd: [true]\n",
	}
	for range 2 { // a killed build repeats it
		if err := seed(root, s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(outside); err == nil {
		t.Error("a link in the machine's root was followed out of it")
	}
	read := func(path string) string {
		b, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	for path, want := range map[string]string{
		"etc/hostname": "demo-master-1\n", "etc/resolv.conf": "nameserver 198.18.0.1\n",
		"etc/systemd/network/10-eth0.network":                 "Address=198.18.0.10/32\n",
		"var/lib/cloud/seed/nocloud/user-data":                "runcmd: [true]",
		"usr/local/lib/lab/cloud-init-once":                   "READY=1",
		"etc/systemd/system/cloud-init.service.d/10-lab.conf": "cloud-init-once",
	} {
		if got := read(path); !strings.Contains(got, want) {
			t.Errorf("%s: %q does not hold %q", path, got, want)
		}
	}
	var meta map[string]any
	if err := json.Unmarshal([]byte(read("var/lib/cloud/seed/nocloud/meta-data")), &meta); err != nil {
		t.Fatal(err)
	}
	if meta["instance-id"] != "12" || meta["public-keys"].([]any)[0] != s.SSHKeys[0] {
		t.Errorf("meta-data: %v", meta)
	}
	if id := strings.TrimSpace(read("etc/machine-id")); len(id) != 32 {
		t.Errorf("machine ID %q", id)
	}
	if st, err := os.Stat(filepath.Join(root, "var/lib/cloud/seed/nocloud/user-data")); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("user data can be read by others: %v %v", st.Mode(), err)
	}
	for _, u := range masked {
		if to, err := os.Readlink(filepath.Join(root, "etc/systemd/system", u)); err != nil || to != "/dev/null" {
			t.Errorf("%s is not masked: %v", u, err)
		}
	}
}

func TestControllers(t *testing.T) {
	for options, want := range map[string]string{
		"rw,relatime,memory":             "memory",
		"rw,nosuid,nodev,cpu,cpuacct":    "cpu,cpuacct",
		"rw,relatime,xattr,name=systemd": "name=systemd",
	} {
		if got := v1Controllers(options); got != want {
			t.Errorf("%s: %s, want %s", options, got, want)
		}
	}
}
