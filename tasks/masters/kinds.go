package masters

import (
	"net/netip"

	"hk/graph"
	"hk/tasks"
	"hk/tasks/kubenode"
	"hk/tasks/spec"
)

// Phase is this phase's name.
const Phase = "install-masters"

// Kinds of this phase by ID.
const (
	CAKind           = Phase + ".ca"
	CertsKind        = Phase + ".certs"
	ConfigKind       = Phase + ".config"
	ControlPlaneKind = Phase + ".control-plane"
	BootstrapKind    = Phase + ".bootstrap"
	AdminKind        = Phase + ".admin"
	NodeKind         = Phase + ".node"
	RemoveKind       = Phase + ".remove"
)

// Names in the credential unit.
const (
	ClusterCA     = "ca"
	FrontProxyCA  = "front-proxy-ca"
	ServiceKey    = "sa.key"
	EncryptionKey = "encryption.key"
	AdminConf     = "admin.conf"
	SuperConf     = "super-admin.conf"
	// Born is the name of the mark in the unit and in the hosts' journals.
	Born = "born"
)

// Groups and users of Kubernetes that certificates name.
const (
	adminGroup     = "kubeadm:cluster-admins"
	adminUser      = "kubernetes-admin"
	superGroup     = "system:masters"
	superUser      = "kubernetes-super-admin"
	nodesGroup     = "system:nodes"
	nodeUserPrefix = "system:node:"
	controllerUser = "system:kube-controller-manager"
	schedulerUser  = "system:kube-scheduler"
	kubeletAPIUser = "kube-apiserver-kubelet-client"
	etcdClientUser = "kube-apiserver-etcd-client"
	frontProxyUser = "front-proxy-client"
	apiServerName  = "kube-apiserver"
	clusterDomain  = "cluster.local"
)

// Kinds are the kinds of this phase.
func Kinds() []tasks.Kind {
	return []tasks.Kind{
		caKind(), certsKind(), configKind(), controlPlaneKind(), bootstrapKind(), adminKind(),
		kubenode.NodeKind(Phase, spec.Master, ControlPlaneKind),
		kubenode.RemoveKind(Phase, spec.Master, kubenode.Same(kubenode.EtcdRemoveKind)),
	}
}

// external is the shared name or address of the API for people, "" where each
// master is its own: it is in every API server's certificate.
func external(v *tasks.View) string {
	switch v.Spec.Endpoint.Kind() {
	case spec.EndpointLoadBalancer:
		return v.Out(kubenode.LoadBalancerKind)["ipv4"]
	case spec.EndpointDNS:
		return v.Spec.Endpoint.DNSName()
	}
	return ""
}

func needLoadBalancer() graph.Need {
	return graph.Need{Kind: kubenode.LoadBalancerKind, Via: graph.ToCluster, Why: "its address is in the API servers' certificates"}
}

// firstOf is the first usable address of a CIDR: the API's own Service.
func firstOf(cidr string) string {
	p, err := netip.ParsePrefix(cidr)
	if err != nil {
		return ""
	}
	return p.Masked().Addr().Next().String()
}
