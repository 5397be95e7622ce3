package machine

import (
	"bytes"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// rootfs is laid over every machine's root. It holds no setting a cluster tool
// would care for, only what makes a Debian root start fast as a lab machine.
//
//go:embed all:rootfs
var rootfs embed.FS

// masked units have nothing to do in a machine that is a guest of another
// system's kernel: they mount what is mounted, load modules that are not there,
// or wait. Each costs a process or two at every boot.
var masked = []string{
	"cloud-init-local.service", "cloud-config.service", "cloud-init-hotplugd.socket",
	"e2scrub_reap.service", "systemd-network-generator.service", "systemd-remount-fs.service",
	"modprobe@configfs.service", "modprobe@dm_mod.service", "modprobe@drm.service",
	"modprobe@efi_pstore.service", "modprobe@fuse.service", "modprobe@loop.service",
	"sys-kernel-debug.mount", "sys-kernel-tracing.mount", "dev-hugepages.mount",
	"sys-fs-fuse-connections.mount", "systemd-update-utmp-runlevel.service",
	"systemd-networkd-wait-online.service", "systemd-update-utmp.service",
}

// maskedGenerators look for disks, consoles, kernel arguments and old start scripts
// a lab machine does not have. cloud-init's asks which cloud this is; seed knows.
var maskedGenerators = []string{
	"cloud-init-generator", "systemd-cryptsetup-generator", "systemd-debug-generator",
	"systemd-fstab-generator", "systemd-getty-generator", "systemd-gpt-auto-generator",
	"systemd-hibernate-resume-generator", "systemd-integritysetup-generator",
	"systemd-rc-local-generator", "systemd-run-generator", "systemd-system-update-generator",
	"systemd-sysv-generator", "systemd-veritysetup-generator",
}

// seed writes into the mounted root what is the machine's own: identity, network,
// name servers and what cloud-init is to do.
func seed(root string, s Spec) error {
	if err := layRootfs(root); err != nil {
		return err
	}
	for _, u := range masked {
		if err := link("/dev/null", filepath.Join(root, "etc/systemd/system", u)); err != nil {
			return err
		}
	}
	for _, g := range maskedGenerators {
		if err := link("/dev/null", filepath.Join(root, "etc/systemd/system-generators", g)); err != nil {
			return err
		}
	}
	wants := filepath.Join(root, "etc/systemd/system/multi-user.target.wants/cloud-init.target")
	if err := link("/lib/systemd/system/cloud-init.target", wants); err != nil {
		return err
	}
	files := map[string]string{
		"etc/hostname":    s.Hostname + "\n",
		"etc/machine-id":  randomHex(16) + "\n", // not empty: an empty one means "first boot", which resets enabled units
		"etc/resolv.conf": "nameserver " + s.Resolver + "\noptions timeout:2 attempts:2\n",
		"etc/hosts":       fmt.Sprintf("127.0.0.1 localhost\n127.0.1.1 %s\n::1 localhost ip6-localhost ip6-loopback\n", s.Hostname),

		// Units that bring /etc and /var up to a new /usr have nothing to do.
		"etc/.updated": "", "var/.updated": "",

		"etc/cloud/cloud.cfg.d/96-lab-modules.cfg": "cloud_config_modules: [" + strings.Join(configModules(s.UserData), ", ") + "]\n",
		"var/lib/cloud/seed/nocloud/meta-data":     metaData(s),
		"var/lib/cloud/seed/nocloud/user-data":     userData(s.UserData),
		"var/lib/cloud/seed/nocloud/vendor-data":   "",
	}
	if s.Address != "" {
		files["etc/systemd/network/10-eth0.network"] = fmt.Sprintf(`# The real cloud's way: a /32 and a gateway outside of it.
[Match]
Name=eth0

[Network]
Address=%s/32
LinkLocalAddressing=ipv6
IPv6AcceptRA=no

[Route]
Gateway=%s
GatewayOnLink=yes
`, s.Address, s.Gateway)
	}
	if s.Packages != "" {
		files["etc/apt/apt.conf.d/90-lab"] = fmt.Sprintf("Acquire::http::Proxy %q;\nAcquire::https::Proxy %q;\n", s.Packages, s.Packages)
	}
	for path, text := range files {
		if err := write(filepath.Join(root, path), text, mode(path)); err != nil {
			return err
		}
	}
	return nil
}

func mode(path string) fs.FileMode {
	if strings.HasPrefix(path, "var/lib/cloud/seed/") {
		return 0o600 // may hold keys
	}
	return 0o644
}

// configModules are those of cloud-init's second stage. Two of them start programs
// for a third of a second before they see that there is nothing for them.
func configModules(userData string) []string {
	mods := []string{"ssh-import-id", "ntp", "timezone", "runcmd"}
	if strings.Contains(userData, "apt") {
		mods = append(mods, "apt-configure")
	}
	if strings.Contains(userData, "passw") || strings.Contains(userData, "pwauth") {
		mods = append(mods, "set-passwords")
	}
	return mods
}

// metaData is NoCloud's; JSON is YAML.
func metaData(s Spec) string {
	b, err := json.Marshal(map[string]any{
		"instance-id":    fmt.Sprint(s.ID),
		"local-hostname": s.Hostname,
		"public-keys":    append([]string{}, s.SSHKeys...),
	})
	if err != nil {
		panic("bug: meta-data: " + err.Error()) // strings only
	}
	return string(b) + "\n"
}

// userData: NoCloud wants the file there; an empty one is no cloud-config.
func userData(s string) string {
	if s == "" {
		return "#cloud-config\n{}\n"
	}
	return s
}

func layRootfs(root string) error {
	return fs.WalkDir(rootfs, "rootfs", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := rootfs.ReadFile(path)
		if err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if bytes.HasPrefix(b, []byte("#!")) {
			mode = 0o755
		}
		return write(filepath.Join(root, strings.TrimPrefix(path, "rootfs/")), string(b), mode)
	})
}

// write writes a file that is there or not, making folders as needed. What is in
// the way as a link is replaced, never followed: a link in a machine's root points
// into this computer when it is followed from here.
func write(path, text string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // a folder of a machine's system
		return err
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.WriteFile(path, []byte(text), mode)
}

func link(target, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // a folder of a machine's system
		return err
	}
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return os.Symlink(target, path)
}
