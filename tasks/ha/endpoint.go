package ha

import (
	_ "embed"
	"fmt"
	"io/fs"
	"strings"

	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/host"
	"hk/tasks/kubenode"
	"hk/tasks/spec"
)

var (
	//go:embed files/haproxy.cfg
	cfgText string
	//go:embed files/hk-endpoint.service
	unitText string
)

// Places of the proxy on a host.
const (
	cfgFile  = "/etc/hk/haproxy.cfg"
	unitName = "hk-endpoint.service"
	unitFile = "/etc/systemd/system/" + unitName
	// statsAddr is where it says what it sees.
	statsAddr = "127.0.0.1:16442"
)

// backend is one master behind the proxy.
type backend struct{ Host, MeshIP string }

type endpointIn struct {
	Masters []backend `part:"alloc:masters"`
}

// endpointKind runs the local proxy. It is up before there is any API server:
// its own checks find them as they come.
func endpointKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "endpoint", Scope: graph.OnHost, Roles: []string{spec.Master, spec.Worker}, Recipe: 1,
		Needs: kubenode.OnHost(kubenode.Same(kubenode.PrepareKind)),
		Title: "local proxy to the API servers",
	}, tasks.Def[endpointIn]{
		Inputs:   func(v *tasks.View) (endpointIn, error) { return endpointIn{Masters: backends(v)}, nil },
		Declared: endpointState,
	})
}

func backends(v *tasks.View) []backend {
	var out []backend
	for _, m := range v.Masters() {
		out = append(out, backend{m.Name, m.MeshIP})
	}
	return out
}

func endpointState(in endpointIn) remote.HostState {
	files := []string{cfgFile}
	var servers strings.Builder
	for i, m := range in.Masters {
		if i > 0 {
			servers.WriteByte('\n')
		}
		fmt.Fprintf(&servers, "  server %s %s:%d", m.Host, m.MeshIP, kubenode.APIPort)
	}
	return remote.HostState{
		Files: []remote.File{
			{Path: "/etc/hk", Mode: fs.ModeDir | 0o755},
			{Path: cfgFile, Mode: 0o644, Content: []byte(host.Fill(cfgText, "SERVERS", servers.String()))},
			{Path: unitFile, Mode: 0o644, Content: []byte(host.Fill(unitText,
				"STARTED", host.StartedLine(unitName, files), "RELOADED", host.ReloadedLine(unitName, files)))},
		},
		Units: []remote.Unit{{Name: unitName, Enabled: true, Active: true, Reload: true, Files: files}},
	}
}
