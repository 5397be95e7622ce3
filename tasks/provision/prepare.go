package provision

import (
	"context"
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"hk/graph"
	"hk/remote"
	"hk/tasks"
)

//go:embed files/52-hk-no-reboot.conf
var noRebootText string

// Where prepare persists what it sets now.
const (
	modulesFile = "/etc/modules-load.d/hk.conf"
	sysctlFile  = "/etc/sysctl.d/90-hk.conf"
	aptFile     = "/etc/apt/apt.conf.d/52-hk-no-reboot.conf"
)

// conntrackMax is enough for a node with 110 pods and a few thousand
// connections each; kube-proxy leaves it alone (conntrack.maxPerCore: 0).
const conntrackMax = 262144

type prepareIn struct {
	MeshPort int    `part:"config:network.mesh_port"`
	Kernel   string `part:"out:ssh.kernel"`
	WG       string `part:"out:ssh.wg"`
}

// prepareKind is what the operating system itself must be like.
func prepareKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "prepare", Scope: graph.OnHost, Recipe: 1,
		Needs: afterContact(),
		Title: "kernel modules, sysctls, packages, swap off",
	}, tasks.Def[prepareIn]{
		Inputs: func(v *tasks.View) (prepareIn, error) {
			o := v.Out(SSHKind)
			return prepareIn{MeshPort: v.Spec.Network.MeshPort, Kernel: o["kernel"], WG: o["wg"]}, nil
		},
		Declared: prepareState,
		Run:      runPrepare,
		Watch: func(in prepareIn, w *tasks.World) map[string]string {
			if in.Kernel == SharedKernel || w.Facts == nil {
				return nil
			}
			return map[string]string{"swap": onOff(w.Facts.Swap)}
		},
	})
}

func (in prepareIn) modules() []string {
	m := []string{"br_netfilter", "nf_conntrack", "overlay"}
	if in.WG == "kernel" {
		m = append(m, "wireguard")
	}
	return m
}

// sysctls of the machine. What is not per network namespace is left to the
// computer around a machine that shares its kernel: it could not be set, or
// would be set for every machine at once.
func (in prepareIn) sysctls() map[string]string {
	s := map[string]string{
		"net.ipv4.ip_forward": "1",
		// Pods answer through the bridge what came in through the mesh.
		"net.bridge.bridge-nf-call-iptables":  "1",
		"net.bridge.bridge-nf-call-ip6tables": "1",
		// Loose: a packet for a pod may come through another interface than
		// the answer leaves by.
		"net.ipv4.conf.all.rp_filter":     "2",
		"net.ipv4.conf.default.rp_filter": "2",
		// Nothing may sit on the mesh's port before the mesh does: it lies in
		// the range that outgoing connections take their ports from.
		"net.ipv4.ip_local_reserved_ports": strconv.Itoa(in.MeshPort),
	}
	if in.Kernel == SharedKernel {
		return s
	}
	s["net.netfilter.nf_conntrack_max"] = strconv.Itoa(conntrackMax)
	// The defaults (128 instances a user) are used up by a kubelet, a
	// containerd and a few dozen pods that watch files.
	s["fs.inotify.max_user_instances"] = "8192"
	s["fs.inotify.max_user_watches"] = "524288"
	return s
}

// packages that Debian brings. Small tools only: what a cluster's version
// depends on comes as a pinned artifact.
func (in prepareIn) packages() []string {
	p := []string{
		"ca-certificates", "conntrack", "curl", "ethtool", "haproxy", "iproute2", "iptables", "iputils-ping",
		"kmod", "nftables", "procps", "socat", "wireguard-tools",
	}
	if in.WG == "user" {
		p = append(p, "wireguard-go")
	}
	if in.Kernel == OwnKernel {
		p = append(p, "systemd-timesyncd")
	}
	slices.Sort(p)
	return p
}

func prepareState(in prepareIn) remote.HostState {
	st := remote.HostState{
		Files: []remote.File{
			{Path: modulesFile, Mode: 0o644, Content: []byte(header + strings.Join(in.modules(), "\n") + "\n")},
			{Path: sysctlFile, Mode: 0o644, Content: []byte(in.sysctlText())},
			{Path: aptFile, Mode: 0o644, Content: []byte(noRebootText)},
		},
		Units: []remote.Unit{
			// The proxy runs as a unit of hk's own (setup-high-availability).
			{Name: "haproxy.service", Masked: true},
			// Kubernetes wants no swap; a swap unit from fstab would come back
			// with the next start.
			{Name: "swap.target", Masked: true},
		},
		Sysctls:  in.sysctls(),
		Packages: in.packages(),
	}
	if in.Kernel == OwnKernel {
		st.Modules = in.modules()
		st.Units = append(st.Units, remote.Unit{Name: "systemd-timesyncd.service", Enabled: true, Active: true})
	}
	return st
}

// header is the first line of files that are rendered line by line.
const header = "# Written by hk; changes are undone by the next build.\n"

func (in prepareIn) sysctlText() string {
	s := in.sysctls()
	var b strings.Builder
	b.WriteString(header)
	for _, k := range slices.Sorted(maps.Keys(s)) {
		fmt.Fprintf(&b, "%s = %s\n", k, s[k])
	}
	return b.String()
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func runPrepare(ctx context.Context, in prepareIn, e *tasks.Env) error {
	if _, err := e.Host.Apply(ctx, prepareState(in)); err != nil {
		return err
	}
	if in.Kernel == SharedKernel {
		return nil
	}
	r, err := e.Host.Exec(ctx, remote.Command{Argv: []string{"swapoff", "--all"}})
	if err != nil {
		return err
	}
	if r.Code != 0 {
		return fmt.Errorf("switching swap off: %s", lastLine(r.Stderr))
	}
	e.Note("swap", "off")
	return nil
}

// lastLine is the last line of a program's output that says something.
func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
