package kubenode

import (
	"fmt"

	"hk/graph"
	"hk/remote"
	"hk/tasks/pki"
)

// Places that kubeadm and kubelet know.
const (
	KubeadmConfig = "/etc/kubernetes/kubeadm.yaml"
	PKIDir        = "/etc/kubernetes/pki"
	ClusterCA     = PKIDir + "/ca.crt"
	KubeletConf   = "/etc/kubernetes/kubelet.conf"
	BootstrapConf = "/etc/kubernetes/bootstrap-kubelet.conf"
	ManifestDir   = "/etc/kubernetes/manifests"
	KubeletDir    = "/var/lib/kubelet"
	KubeletPKI    = KubeletDir + "/pki"
	// ServingCert is hk's; kubelet reads it again when it changes.
	ServingCert = KubeletPKI + "/serving.crt"
	ServingKey  = KubeletPKI + "/serving.key"
	// ClientCurrent is where kubelet keeps the certificate it rotates.
	ClientCurrent = KubeletPKI + "/kubelet-client-current.pem"
	// Of the three files kubeadm writes for kubelet, hk declares the place and
	// records the hash.
	kubeletConfig   = KubeletDir + "/config.yaml"
	instanceConfig  = KubeletDir + "/instance-config.yaml"
	kubeletFlagsEnv = KubeletDir + "/kubeadm-flags.env"
)

// LocalEndpoint is the API for everything on a host: the local proxy to all
// masters.
const LocalEndpoint = "127.0.0.1:16443"

// APIPort is where API servers listen.
const APIPort = 6443

// Kinds of other phases that masters, workers, ha and addons need.
const (
	ServerKind       = "provision-nodes.server"
	SSHKind          = "provision-nodes.ssh"
	PrepareKind      = "provision-nodes.prepare"
	RuntimeKind      = "provision-nodes.runtime"
	KubeletKind      = "provision-nodes.kubelet"
	ImagesKind       = "provision-nodes.images"
	LoadBalancerKind = "provision-nodes.load-balancer"
	MeshKind         = "network-setup.mesh"
	MeshCheckKind    = "network-setup.mesh-check"
	EtcdCAKind       = "etcd-setup.ca"
	EtcdHealthKind   = "etcd-setup.health"
	CAKind           = "install-masters.ca"
	ControlPlaneKind = "install-masters.control-plane"
	BootstrapKind    = "install-masters.bootstrap"
	AdminKind        = "install-masters.admin"
	MasterNodeKind   = "install-masters.node"
	EndpointKind     = "setup-high-availability.endpoint"
	CheckKind        = "setup-high-availability.check"
	ExternalKind     = "setup-high-availability.external"
	EtcdRemoveKind   = "etcd-setup.remove"
	JoinKind         = "install-workers.join"
	WorkerNodeKind   = "install-workers.node"
	CNIKind          = "addons.cni"
	ReadyKind        = "addons.ready"
)

// OnHost are the needs of everything that works on a host: its identity, which
// makes a new server or a rebuilt disk stale, and first contact.
func OnHost(more ...graph.Need) []graph.Need {
	return append([]graph.Need{{Kind: ServerKind, Via: graph.Same}, {Kind: SSHKind, Via: graph.Same}}, more...)
}

// Same is a need on the same host.
func Same(kind string) graph.Need { return graph.Need{Kind: kind, Via: graph.Same} }

// ProviderID is the Node's identity in the cloud, as the cloud's own controllers
// spell it.
func ProviderID(serverID string) string { return "hcloud://" + serverID }

// WrittenByKubeadm are the files that kubeadm writes for kubelet: declared, so
// that a change of them is seen, and never written by hk.
func WrittenByKubeadm() []remote.File {
	return []remote.File{
		{Path: kubeletConfig, Mode: 0o644, Later: true},
		{Path: instanceConfig, Mode: 0o644, Later: true},
		{Path: kubeletFlagsEnv, Mode: 0o644, Later: true},
	}
}

// Now is a declared state without what is written by others: what may be
// applied as it stands.
func Now(s remote.HostState) remote.HostState {
	var files []remote.File
	for _, f := range s.Files {
		if !f.Later {
			files = append(files, f)
		}
	}
	s.Files = files
	return s
}

// LocalServer is the URL of a master's own API server.
func LocalServer(meshIP string) string { return fmt.Sprintf("https://%s:%d", meshIP, APIPort) }

// ServingLeaf is what a kubelet shows to the API servers: they reach it by its
// mesh address.
func ServingLeaf(node string, ips ...string) pki.Leaf {
	return pki.Leaf{CN: "system:node:" + node, Orgs: []string{"system:nodes"}, DNS: []string{node}, IPs: ips, Server: true}
}
