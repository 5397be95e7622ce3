package network

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"hk/cache/fp"
	"hk/graph"
	"hk/tasks"
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
// build in which it has a key and an address: it must not hold up the others.
func peersKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "peers", Scope: graph.OnCluster, Recipe: 1,
		Needs: []graph.Need{
			{Kind: KeysKind, Via: graph.FromAll, Quorum: graph.Any, Why: "the set holds every host's public key"},
			{Kind: serverKind, Via: graph.FromAll, Quorum: graph.Any, Why: "the set holds every host's address"},
		},
		Title: "the set of WireGuard peers",
	}, tasks.Def[peersIn]{
		Inputs: func(v *tasks.View) (peersIn, error) {
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
				in.Peers = append(in.Peers, Peer{
					Host: h.Name, Public: key["public"], MeshIP: h.MeshIP, PodCIDR: h.PodCIDR,
					Endpoint: fmt.Sprintf("%s:%d", server["ipv4"], v.Spec.Network.MeshPort),
				})
			}
			return in, nil
		},
		Verify: func(_ context.Context, in peersIn, e *tasks.Env) (fp.Output, error) {
			data, err := json.Marshal(in.Peers)
			if err != nil {
				return nil, fmt.Errorf("bug: encoding the peers: %w", err)
			}
			d, err := e.Sets.PutSet(data)
			if err != nil {
				return nil, fmt.Errorf("keeping the set of peers: %w", err)
			}
			return fp.Output{"set": hex.EncodeToString(d[:])}, nil
		},
	})
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
