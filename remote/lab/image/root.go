package image

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// rootfs holds the files that the lab adds to a Debian root, below one folder per
// image. A .tmpl file is a text/template over the computer's facts.
//
//go:embed all:rootfs
var rootfs embed.FS

// stockPackages is what a stock Debian 12 cloud server has, as far as it matters
// here. Kubernetes' and hk's needs are deliberately not in it: hk must bring them.
func stockPackages() []string {
	return []string{
		"systemd", "systemd-sysv", "systemd-timesyncd", "dbus", "udev", "cloud-init", "openssh-server", "ca-certificates",
		"iproute2", "iptables", "nftables", "iputils-ping", "netbase", "kmod", "procps", "sudo", "curl", "gnupg",
		"python3", "less", "bash-completion", "cron", "logrotate",
	}
}

// snapshotDebs is what hk's prepare installs by apt, and what tests like to have.
func snapshotDebs() []string {
	return []string{
		"wireguard-tools", "wireguard-go", "haproxy", "conntrack", "socat", "ethtool", "ipset", "tcpdump",
		"rsync", "xz-utils",
	}
}

// maskedUnits do harm in a machine that is a guest: they wait for a network that is
// "online", wake up all machines of a computer at the same minute, or mount the
// computer's own kernel interfaces.
func maskedUnits() []string {
	return []string{
		"systemd-networkd-wait-online.service", "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer",
		"e2scrub_all.timer", "fstrim.timer", "logrotate.timer", "console-getty.service", "getty@tty1.service",
		"sys-kernel-debug.mount", "sys-kernel-tracing.mount", "sys-kernel-config.mount", "e2scrub_reap.service",
	}
}

// stock makes the root of the stock image.
func (m *maker) stock(ctx context.Context) (string, error) {
	s := step{
		name: Stock, recipe: 1, output: "roots/" + Stock + "-KEY",
		inputs: append([]string{suite, m.facts.String(), hashFiles("rootfs/stock")}, append(stockPackages(), maskedUnits()...)...),
	}
	return m.do(ctx, s, func(ctx context.Context, tmp string) error {
		sources, err := debianSources("/etc/apt")
		if err != nil {
			return err
		}
		m.logf("%s: making the root from %s (about a minute)", Stock, sources[0].uri)
		if err := m.debootstrap(ctx, Stock, tmp, sources); err != nil {
			return err
		}
		if err := m.aptInstall(ctx, Stock, tmp, stockPackages()); err != nil {
			return err
		}
		if err := m.writeRootfs("rootfs/stock", tmp); err != nil {
			return err
		}
		return m.finishRoot(ctx, Stock, tmp)
	})
}

// debootstrap makes a minimal root with the computer's own package sources.
func (m *maker) debootstrap(ctx context.Context, name, root string, sources []source) error {
	args := []string{"debootstrap", "--variant=minbase", "--arch=" + arch}
	if strings.HasPrefix(sources[0].uri, "https:") {
		args = append(args, "--include=ca-certificates")
	}
	args = append(args, suite, root, sources[0].uri)
	env, err := aptEnv(ctx)
	if err != nil {
		return err
	}
	if err := m.run(ctx, command{step: name, env: env, isolated: true, args: args}); err != nil {
		return err
	}
	var list strings.Builder
	for _, s := range sources {
		list.WriteString(s.line() + "\n")
	}
	return writePublic(filepath.Join(root, "etc/apt/sources.list"), []byte(list.String()), 0o644)
}

// aptEnv is the environment for package tools, with the proxy that apt is told to use.
func aptEnv(ctx context.Context) ([]string, error) {
	env := append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	proxy, err := ownProxy(ctx)
	if err != nil {
		return nil, err
	}
	if proxy != "" {
		env = append(env, "http_proxy="+proxy)
	}
	return env, nil
}

// ownProxy is the proxy that this computer's apt is told to use, "" for none.
func ownProxy(ctx context.Context) (string, error) {
	said, err := output(ctx, "apt-config", "shell", "p", "Acquire::http::Proxy")
	if err != nil {
		return "", err
	}
	_, value, _ := strings.Cut(strings.TrimSpace(said), "=")
	return strings.Trim(value, "'"), nil
}

// aptInstall installs packages inside a root, with the newest fixes for all of it.
// No service is started, and dpkg does not wait for the disk: a half-made root is
// thrown away anyway.
func (m *maker) aptInstall(ctx context.Context, name, root string, packages []string) error {
	env, err := aptEnv(ctx)
	if err != nil {
		return err
	}
	policy := filepath.Join(root, "usr/sbin/policy-rc.d")
	if err := writePublic(policy, []byte("#!/bin/sh\nexit 101\n"), 0o755); err != nil {
		return err
	}
	resolv, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return err
	}
	if err := writePublic(filepath.Join(root, "etc/resolv.conf"), resolv, 0o644); err != nil {
		return err
	}
	const script = `set -eu
root=$1; shift
mount -t proc proc "$root/proc"
apt() { chroot "$root" apt-get -y -q -o Dpkg::Options::=--force-unsafe-io -o APT::Sandbox::User=root "$@"; }
apt update
apt --no-install-recommends upgrade
apt --no-install-recommends install "$@"
apt clean
rm -rf "$root"/var/lib/apt/lists/* "$root"/var/cache/apt/*.bin
`
	args := append([]string{"sh", "-c", script, "sh", root}, packages...)
	if err := m.run(ctx, command{step: name, env: env, isolated: true, args: args}); err != nil {
		return err
	}
	return os.Remove(policy)
}

// finishRoot removes what must be each machine's own, and sets its units.
func (m *maker) finishRoot(ctx context.Context, name, root string) error {
	systemctl := func(args ...string) error {
		return m.run(ctx, command{step: name, args: append([]string{"systemctl", "--root=" + root}, args...)})
	}
	if err := systemctl(append([]string{"mask"}, maskedUnits()...)...); err != nil {
		return err
	}
	if err := systemctl("enable", "systemd-networkd", "ssh", "systemd-timesyncd", "lab-mounts"); err != nil {
		return err
	}
	if err := systemctl("set-default", "multi-user.target"); err != nil {
		return err
	}
	keys, err := filepath.Glob(filepath.Join(root, "etc/ssh/ssh_host_*"))
	if err != nil {
		return err
	}
	gone := append(keys, filepath.Join(root, "etc/hostname"), filepath.Join(root, "etc/resolv.conf"), filepath.Join(root, "var/lib/dbus/machine-id"))
	for _, path := range gone {
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	// Empty, not missing: systemd then draws an ID without calling it a first boot,
	// which would reset which units are enabled.
	return writePublic(filepath.Join(root, "etc/machine-id"), nil, 0o444)
}

// writeRootfs copies a folder of the embedded files into a root.
func (m *maker) writeRootfs(folder, root string) error {
	return fs.WalkDir(rootfs, folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		to := filepath.Join(root, rel)
		if d.IsDir() {
			return makeFolder(to)
		}
		data, err := rootfs.ReadFile(path)
		if err != nil {
			return err
		}
		if name, ok := strings.CutSuffix(to, ".tmpl"); ok {
			to = name
			if data, err = m.render(path, string(data)); err != nil {
				return err
			}
		}
		mode := fs.FileMode(0o644)
		if strings.HasSuffix(to, ".sh") {
			mode = 0o755
		}
		return writePublic(to, data, mode)
	})
}

func (m *maker) render(name, text string) ([]byte, error) {
	t, err := template.New(name).Parse(text)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	if err := t.Execute(&b, m.facts); err != nil {
		return nil, err
	}
	return []byte(b.String()), nil
}

// hashFiles is a digest of a folder of the embedded files, names included.
func hashFiles(folder string) string {
	h := sha256.New()
	err := fs.WalkDir(rootfs, folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := rootfs.ReadFile(path)
		fmt.Fprintf(h, "%s %d\n%s\n", path, len(data), data)
		return err
	})
	if err != nil {
		panic("bug: embedded folder " + folder + ": " + err.Error())
	}
	return hex.EncodeToString(h.Sum(nil))
}
