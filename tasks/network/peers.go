package network

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/spec"
)

// Peer is one host as the others' WireGuard sees it.
type Peer struct {
	Host     string `json:"host"`
	Public   string `json:"public"`
	Endpoint string `json:"endpoint"` // public address and port
	MeshIP   string `json:"mesh_ip"`
	PodCIDR  string `json:"pod_cidr,omitempty"` // "" for hosts that run no pods
}

// allowed are the addresses behind the peer.
func (p *Peer) allowed() []string {
	a := []string{p.MeshIP + "/32"}
	if p.PodCIDR != "" {
		a = append(a, p.PodCIDR)
	}
	return a
}

type peersIn struct {
	Peers []Peer `part:"file:peers"`
}

// peersKind is the one vertex through which the set of hosts enters the graph.
// A host that could not be made yet is left out, and joins the set with the
// build in which it has a key and an address: it must not hold up the others. A
// host that is being removed stays in it until it was drained, or else nobody
// could tell its kubelet and its etcd.
func peersKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "peers", Scope: graph.OnCluster, Recipe: 1,
		Needs: []graph.Need{
			{Kind: KeysKind, Via: graph.FromAll, Quorum: graph.Any, Why: "the set holds every host's public key"},
			{Kind: serverKind, Via: graph.FromAll, Quorum: graph.Any, Why: "the set holds every host's address"},
			{Kind: removals[spec.Worker], Via: graph.FromAll, Quorum: graph.Any, Why: whyRemovals},
			{Kind: removals[spec.Master], Via: graph.FromAll, Quorum: graph.Any, Why: whyRemovals},
			{Kind: removals[spec.Etcd], Via: graph.FromAll, Quorum: graph.Any, Why: whyRemovals},
		},
		Title: "the set of WireGuard peers",
	}, tasks.Def[peersIn]{
		Inputs: peersInputs,
		Verify: verifyPeers,
	})
}

func peersInputs(v *tasks.View) (peersIn, error) {
	var in peersIn
	for i := range v.Hosts {
		h := &v.Hosts[i]
		key, ok := v.OutOf(KeysKind, h.Name)
		if !ok {
			continue
		}
		server, ok := v.OutOf(serverKind, h.Name)
		if !ok || server["ipv4"] == "" || key["public"] == "" {
			continue
		}
		in.Peers = append(in.Peers, peerOf(h, key["public"], server["ipv4"], v.Spec.Network.MeshPort))
	}
	for i := range v.Leaving {
		l := &v.Leaving[i]
		if _, drained := v.OutOf(removals[l.Role], l.Name); !drained && l.Addr != "" && l.MeshIP != "" {
			in.insert(peerOf(&l.Host, "", l.Addr, v.Spec.Network.MeshPort))
		}
	}
	return in, nil
}

func verifyPeers(ctx context.Context, in peersIn, e *tasks.Env) (fp.Output, error) {
	data, err := json.Marshal(in.known(ctx, e))
	if err != nil {
		return nil, fmt.Errorf("bug: encoding the peers: %w", err)
	}
	d, err := e.Sets.PutSet(data)
	if err != nil {
		return nil, fmt.Errorf("keeping the set of peers: %w", err)
	}
	return fp.Output{"set": hex.EncodeToString(d[:])}, nil
}

const whyRemovals = "a host that is removed leaves the set when it was drained, not before"

func peerOf(h *spec.Host, public, addr string, port int) Peer {
	return Peer{
		Host: h.Name, Public: public, MeshIP: h.MeshIP, PodCIDR: h.PodCIDR,
		Endpoint: net.JoinHostPort(addr, strconv.Itoa(port)),
	}
}

// insert puts a host that leaves where it was: behind those of its pool. The set
// that holds it still is then the very set of before.
func (in *peersIn) insert(p Peer) {
	pool, number := splitHost(p.Host)
	at := len(in.Peers) // where nothing is left of its pool
	for i := range in.Peers {
		if other, n := splitHost(in.Peers[i].Host); other == pool && n < number {
			at = i + 1
		}
	}
	in.Peers = slices.Insert(in.Peers, at, p)
}

func splitHost(name string) (pool string, number int) {
	at := strings.LastIndexByte(name, '-')
	number, _ = strconv.Atoi(name[at+1:])
	return name[:max(at, 0)], number
}

// askLeaver is how long a host that leaves may take to tell its key.
const askLeaver = 5 * time.Second

// known fills in the keys of hosts that leave, which no task of theirs hands over
// any more: they are asked themselves. One that does not answer needs no peers.
func (in peersIn) known(ctx context.Context, e *tasks.Env) []Peer {
	ctx, cancel := context.WithTimeout(ctx, askLeaver)
	defer cancel()
	var out []Peer
	for _, p := range in.Peers {
		if p.Public == "" {
			h, err := e.HostOf(p.Host)
			var f *remote.Facts
			if err == nil {
				f, err = h.Facts(ctx, remote.FactsQuery{WireGuard: []string{Interface}})
			}
			if err != nil {
				e.Log(p.Host + " was not removed and does not answer: " + err.Error())
				continue
			}
			if p.Public = f.WireGuard[Interface].PublicKey; p.Public == "" {
				continue
			}
		}
		out = append(out, p)
	}
	return out
}

// peersOf reads a set back by its digest.
func peersOf(sets tasks.Sets, digest string) ([]Peer, error) {
	raw, err := hex.DecodeString(digest)
	var d fp.OutputDigest
	if err != nil || len(raw) != len(d) {
		return nil, fmt.Errorf("bug: %q is no digest of a set", digest)
	}
	copy(d[:], raw)
	data, err := sets.GetSet(d)
	if err != nil {
		return nil, fmt.Errorf("reading the set of peers: %w", err)
	}
	var peers []Peer
	if err := json.Unmarshal(data, &peers); err != nil {
		return nil, fmt.Errorf("reading the set of peers: %w", err)
	}
	return peers, nil
}
