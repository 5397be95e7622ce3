package etcd

import (
	"fmt"
	"strings"

	"hk/graph"
	"hk/tasks"
	"hk/tasks/spec"
)

// Phase is this phase's name.
const Phase = "etcd-setup"

// Kinds of this phase by ID.
const (
	CAKind      = Phase + ".ca"
	CertsKind   = Phase + ".certs"
	BinaryKind  = Phase + ".binary"
	DataKind    = Phase + ".data"
	ServiceKind = Phase + ".service"
	HealthKind  = Phase + ".health"
	RemoveKind  = Phase + ".remove"
)

// Kinds of other phases that this one needs.
const (
	serverKind = "provision-nodes.server"
	sshKind    = "provision-nodes.ssh"
	meshKind   = "network-setup.mesh"
)

// Names in the credential unit.
const (
	Authority  = "etcd-ca"
	ClientCert = "etcd-client.crt"
	ClientKey  = "etcd-client.key"
	// founding is what the first members agreed on: written once, before the
	// first of them starts, so that every host founds the same cluster whenever
	// its turn comes.
	founding = "etcd-founding.json"
	// Born is the name of the mark in the unit and in the hosts' journals.
	Born = "etcd-born"
)

// Ports of etcd.
const (
	ClientPort = 2379
	PeerPort   = 2380
)

// Places on a host.
const (
	confDir     = "/etc/etcd"
	pkiDir      = confDir + "/pki"
	caFile      = pkiDir + "/ca.crt"
	serverCert  = pkiDir + "/server.crt"
	serverKey   = pkiDir + "/server.key"
	peerCert    = pkiDir + "/peer.crt"
	peerKey     = pkiDir + "/peer.key"
	initialFile = confDir + "/initial.env"
	dataDir     = "/var/lib/etcd"
	memberDir   = dataDir + "/member"
	unitName    = "etcd.service"
	unitFile    = "/etc/systemd/system/" + unitName
	user        = "etcd"
)

// Kinds are the kinds of this phase.
func Kinds() []tasks.Kind {
	return []tasks.Kind{caKind(), certsKind(), binaryKind(), dataKind(), serviceKind(), healthKind(), removeKind()}
}

// Member is one desired member.
type Member struct{ Host, MeshIP string }

// Members are the desired members, in name order.
func Members(v *tasks.View) []Member {
	var out []Member
	for _, h := range v.With(spec.Etcd) {
		out = append(out, Member{h.Name, h.MeshIP})
	}
	return out
}

// PeerURL is where the member talks to the others.
func (m Member) PeerURL() string { return fmt.Sprintf("https://%s:%d", m.MeshIP, PeerPort) }

// ClientURL is where it serves.
func (m Member) ClientURL() string { return fmt.Sprintf("https://%s:%d", m.MeshIP, ClientPort) }

// Endpoints are the client URLs of the members.
func Endpoints(members []Member) []string {
	out := make([]string, len(members))
	for i, m := range members {
		out[i] = m.ClientURL()
	}
	return out
}

// onHost are the needs of everything that works on a host: its identity and
// first contact.
func onHost(more ...graph.Need) []graph.Need {
	return append([]graph.Need{{Kind: serverKind, Via: graph.Same}, {Kind: sshKind, Via: graph.Same}}, more...)
}

func same(kind string) graph.Need { return graph.Need{Kind: kind, Via: graph.Same} }

// initialCluster is the value of --initial-cluster.
func initialCluster(members []Member) string {
	var parts []string
	for _, m := range members {
		parts = append(parts, m.Host+"="+m.PeerURL())
	}
	return strings.Join(parts, ",")
}
