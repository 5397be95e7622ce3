package network

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/host"
)

var (
	//go:embed files/hk0.conf
	confText string
	//go:embed files/peer.conf
	peerText string
	//go:embed files/mesh-sync
	syncText string
	//go:embed files/wg-quick.conf
	dropInText string
)

// Places of the mesh on a host.
const (
	confFile   = keyDir + "/" + Interface + ".conf"
	syncFile   = "/usr/local/lib/hk/mesh-sync"
	dropInFile = "/etc/systemd/system/" + Unit + ".d/10-hk.conf"
)

// meshIn holds what the interface's file is made of. The file lists every host,
// so the fingerprint has its template, the host's own key and the digest of the
// set, never the rendered text; which bytes were written is observed.
type meshIn struct {
	Host     string `part:"alloc:host"`
	Address  string `part:"alloc:mesh"` // with the mesh's prefix length
	Port     int    `part:"config:network.mesh_port"`
	Pods     string `part:"config:network.pods"`
	MTU      int    `part:"out:mtu"` // of the mesh
	Public   string `part:"out:keys.public"`
	Set      string `part:"file:peers"` // its digest
	Template string `part:"file:hk0.conf-template"`
}

// meshKind brings the interface up and keeps its peers what the set says. It
// verifies the host's own side only.
func meshKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "mesh", Scope: graph.OnHost, Recipe: 1,
		Needs: []graph.Need{
			{Kind: sshKind, Via: graph.Same},
			{Kind: KeysKind, Via: graph.Same},
			{Kind: prepareKind, Via: graph.Same},
			{Kind: PeersKind, Via: graph.ToCluster, Why: "its peers are the set of all hosts"},
		},
		Title: "WireGuard interface and peers",
	}, tasks.Def[meshIn]{
		Inputs:   meshInputs,
		Declared: func(in meshIn) remote.HostState { return in.state(nil) },
		Run:      runMesh,
		Verify:   verifyMesh,
		Watch: func(_ meshIn, w *tasks.World) map[string]string {
			if w.Facts == nil {
				return nil
			}
			return map[string]string{"wg:" + Interface: seenDigest(w.Facts)}
		},
	})
}

func meshInputs(v *tasks.View) (meshIn, error) {
	mesh, err := netip.ParsePrefix(v.Spec.Network.Mesh)
	if err != nil {
		return meshIn{}, fmt.Errorf("network.mesh: %w", err)
	}
	carrier, err := strconv.Atoi(v.Out(sshKind)["mtu"])
	if err != nil {
		return meshIn{}, fmt.Errorf("first contact handed over no MTU")
	}
	return meshIn{
		Host: v.Host.Name, Address: fmt.Sprintf("%s/%d", v.Host.MeshIP, mesh.Bits()),
		Port: v.Spec.Network.MeshPort, Pods: v.Spec.Network.Pods, MTU: carrier - Overhead,
		Public: v.Out(KeysKind)["public"], Set: v.Out(PeersKind)["set"], Template: confText + peerText,
	}, nil
}

// state is what the task owns; conf is nil where only its place matters.
func (in meshIn) state(conf []byte) remote.HostState {
	used := []string{confFile, keyFile}
	return remote.HostState{
		Files: []remote.File{
			{Path: confFile, Mode: 0o600, Later: conf == nil, Content: conf},
			{Path: syncFile, Mode: 0o755, Content: []byte(host.Fill(syncText, "PODS", in.Pods, "MTU", strconv.Itoa(in.MTU)))},
			{Path: dropInFile, Mode: 0o644, Content: []byte(host.Fill(dropInText,
				"STARTED", host.StartedLine(Unit, used), "RELOADED", host.ReloadedLine(Unit, used), "SYNC", syncFile))},
		},
		Units: []remote.Unit{{Name: Unit, Enabled: true, Active: true, Files: used, Reload: true}},
	}
}

// conf renders the interface's file: no secret in it, the key is read from its
// own file when the interface comes up.
func (in meshIn) conf(peers []Peer) []byte {
	var b strings.Builder
	b.WriteString(host.Fill(confText,
		"ADDRESS", in.Address, "PORT", strconv.Itoa(in.Port), "MTU", strconv.Itoa(in.MTU), "PODS", in.Pods, "KEY", keyFile))
	for i := range peers {
		p := &peers[i]
		if p.Host == in.Host {
			continue
		}
		b.WriteString(host.Fill(peerText,
			"HOST", p.Host, "PUBLIC", p.Public, "ENDPOINT", p.Endpoint, "ALLOWED", strings.Join(p.allowed(), ", ")))
	}
	return []byte(b.String())
}

func runMesh(ctx context.Context, in meshIn, e *tasks.Env) error {
	peers, err := peersOf(e.Sets, in.Set)
	if err != nil {
		return err
	}
	applied, err := e.Host.Apply(ctx, in.state(in.conf(peers)))
	if err != nil {
		return err
	}
	if slices.Contains(applied.Restarted, Unit) {
		return nil
	}
	// Nothing differed on disk, so the interface itself was tampered with, or
	// its userspace process died under a unit that counts as active.
	f, err := e.Host.Facts(ctx, remote.FactsQuery{WireGuard: []string{Interface}})
	if err != nil {
		return err
	}
	verb := "reload"
	switch seenDigest(f) {
	case in.wantDigest(peers):
		return nil
	case interfaceDown:
		verb = "restart"
	}
	r, err := e.Host.Exec(ctx, remote.Command{Argv: []string{"systemctl", verb, Unit}})
	if err != nil {
		return err
	}
	if r.Code != 0 {
		return fmt.Errorf("systemctl %s %s: %s", verb, Unit, strings.TrimSpace(string(r.Stderr)))
	}
	return nil
}

func verifyMesh(ctx context.Context, in meshIn, e *tasks.Env) (fp.Output, error) {
	peers, err := peersOf(e.Sets, in.Set)
	if err != nil {
		return nil, err
	}
	f, err := e.Host.Facts(ctx, remote.FactsQuery{WireGuard: []string{Interface}})
	if err != nil {
		return nil, err
	}
	if err := in.check(f, peers); err != nil {
		return nil, err
	}
	e.Note("wg:"+Interface, seenDigest(f))
	return fp.Output{"mtu": strconv.Itoa(in.MTU)}, nil
}

// check says in words what differs on the host's own side.
func (in meshIn) check(f *remote.Facts, peers []Peer) error {
	wg, ok := f.WireGuard[Interface]
	if !ok {
		return fmt.Errorf("there is no interface %s", Interface)
	}
	if wg.PublicKey != in.Public {
		return fmt.Errorf("%s runs with another key than the host's", Interface)
	}
	if wg.Port != in.Port {
		return fmt.Errorf("%s listens on port %d, not %d", Interface, wg.Port, in.Port)
	}
	if seenDigest(f) == in.wantDigest(peers) {
		return nil
	}
	want := map[string]string{}
	for i := range peers {
		if peers[i].Host != in.Host {
			want[peers[i].Public] = peers[i].Host
		}
	}
	for key, h := range want {
		if _, ok := wg.Peers[key]; !ok {
			return fmt.Errorf("%s does not know peer %s", Interface, h)
		}
	}
	for key := range wg.Peers {
		if want[key] == "" {
			return fmt.Errorf("%s knows a peer %s that is not in the set", Interface, key)
		}
	}
	return fmt.Errorf("the allowed addresses of a peer of %s are not what the set says", Interface)
}

// interfaceDown is the watched value of an interface that is not there.
const interfaceDown = "down"

// seenDigest stands for the interface as it is: key, port, peers and what is
// behind them. Endpoints are left out, they follow the packets.
func seenDigest(f *remote.Facts) string {
	wg, ok := f.WireGuard[Interface]
	if !ok {
		return interfaceDown
	}
	lines := make([]string, 0, len(wg.Peers))
	for key, p := range wg.Peers {
		lines = append(lines, peerLine(key, p.AllowedIPs))
	}
	return interfaceDigest(wg.PublicKey, wg.Port, lines)
}

func (in meshIn) wantDigest(peers []Peer) string {
	var lines []string
	for i := range peers {
		if p := &peers[i]; p.Host != in.Host {
			lines = append(lines, peerLine(p.Public, p.allowed()))
		}
	}
	return interfaceDigest(in.Public, in.Port, lines)
}

func peerLine(key string, allowed []string) string {
	a := slices.Sorted(slices.Values(allowed))
	return key + " " + strings.Join(a, ",")
}

func interfaceDigest(public string, port int, lines []string) string {
	slices.Sort(lines)
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d\n%s\n", public, port, strings.Join(lines, "\n")))
	return fmt.Sprintf("%d peers (%s)", len(lines), hex.EncodeToString(sum[:6]))
}
