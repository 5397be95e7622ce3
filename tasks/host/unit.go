package host

import "strings"

// started is the helper that hk's SSH room installs on first contact: it writes
// down the joint digest of a unit's files when the unit starts or reloads, so
// that facts can tell a service that runs with other bytes than the disk's.
const started = "/usr/local/lib/hk/started"

// StartedLine is the line of a unit's [Service] section that remembers the
// files the unit is started with. The same list belongs into remote.Unit.Files.
func StartedLine(unit string, files []string) string {
	return "ExecStartPre=+" + started + " " + unit + " " + strings.Join(files, " ")
}

// ReloadedLine is the same for units that reload.
func ReloadedLine(unit string, files []string) string {
	return "ExecReload=+" + started + " " + unit + " " + strings.Join(files, " ")
}

// Places of the kubelet that several phases know.
const (
	KubeletUnit      = "kubelet.service"
	KubeletUnitFile  = "/etc/systemd/system/kubelet.service"
	KubeletDropIn    = "/etc/systemd/system/kubelet.service.d/10-kubeadm.conf"
	KubeletConfigDir = "/etc/kubernetes/kubelet.conf.d"
	// KubeletHKConfig is the drop-in that the config kinds of masters and
	// workers own; its name sorts before the machine image's own (90-…).
	KubeletHKConfig = "/etc/kubernetes/kubelet.conf.d/50-hk.conf"
)

// KubeletFiles are the files that kubelet.service remembers at its start; who
// owns the unit (control-plane on masters, join on workers) declares the same.
func KubeletFiles() []string {
	return []string{BinDir + "/kubelet", KubeletUnitFile, KubeletDropIn, KubeletHKConfig}
}

// CRISocket is containerd's endpoint as kubelet, kubeadm and crictl spell it.
const CRISocket = "unix:///run/containerd/containerd.sock"
