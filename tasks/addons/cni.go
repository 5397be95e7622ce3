package addons

import (
	_ "embed"
	"errors"
	"io/fs"
	"strconv"

	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/host"
	"hk/tasks/kubenode"
	"hk/tasks/network"
	"hk/tasks/spec"
)

var (
	//go:embed files/10-hk.conflist
	conflistText string
	//go:embed files/masquerade.nft
	nftText string
	//go:embed files/hk-masquerade.service
	masqueradeText string
)

// Places of the pod network on a host. /etc/hk itself belongs to the local
// endpoint's kind.
const (
	cniDir         = "/etc/cni/net.d"
	conflistFile   = cniDir + "/10-hk.conflist"
	nftFile        = "/etc/hk/masquerade.nft"
	masqueradeUnit = "hk-masquerade.service"
	masqueradeFile = "/etc/systemd/system/" + masqueradeUnit
)

type cniIn struct {
	PodCIDR  string `part:"alloc:pod-cidr"`
	MTU      int    `part:"out:ssh.mtu"` // of the pods: the mesh's
	Pods     string `part:"config:network.pods"`
	Mesh     string `part:"config:network.mesh"`
	Services string `part:"config:network.services"`
}

// cniKind is the pod network `mesh`: one bridge a host, addresses from the
// host's own CIDR, no second encapsulation. Its MTU is WireGuard's: the default
// passes pings and loses transfers.
func cniKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "cni", Scope: graph.OnHost, Roles: podRoles(), Recipe: 1,
		Needs: kubenode.OnHost(kubenode.Same(kubenode.PrepareKind)),
		Title: "pod network",
	}, tasks.Def[cniIn]{
		When:     func(c *spec.Cluster) bool { return c.CNI == cniMesh },
		Inputs:   cniInputs,
		Declared: cniState,
	})
}

func cniInputs(v *tasks.View) (cniIn, error) {
	carrier, err := strconv.Atoi(v.Out(kubenode.SSHKind)["mtu"])
	if err != nil {
		return cniIn{}, errors.New("first contact handed over no MTU")
	}
	n := &v.Spec.Network
	return cniIn{PodCIDR: v.Host.PodCIDR, MTU: carrier - network.Overhead, Pods: n.Pods, Mesh: n.Mesh, Services: n.Services}, nil
}

func cniState(in cniIn) remote.HostState {
	files := []string{nftFile}
	return remote.HostState{
		Files: []remote.File{
			{Path: cniDir, Mode: fs.ModeDir | 0o755},
			{Path: conflistFile, Mode: 0o644, Content: []byte(host.Fill(conflistText, "MTU", strconv.Itoa(in.MTU), "PODCIDR", in.PodCIDR))},
			{Path: nftFile, Mode: 0o644, Content: []byte(host.Fill(nftText, "PODS", in.Pods, "MESH", in.Mesh, "SERVICES", in.Services))},
			{Path: masqueradeFile, Mode: 0o644, Content: []byte(host.Fill(masqueradeText,
				"STARTED", host.StartedLine(masqueradeUnit, files), "RELOADED", host.ReloadedLine(masqueradeUnit, files)))},
		},
		Units: []remote.Unit{{Name: masqueradeUnit, Enabled: true, Active: true, Reload: true, Files: files}},
	}
}
