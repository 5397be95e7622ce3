package provision

import (
	"hk/graph"
	"hk/tasks"
	"hk/tasks/spec"
)

// Phase is this phase's name.
const Phase = "provision-nodes"

// Kinds of this phase by ID.
const (
	NetworkKind      = Phase + ".network"
	FirewallKind     = Phase + ".firewall"
	PlacementKind    = Phase + ".placement"
	SSHKeyKind       = Phase + ".ssh-key"
	LoadBalancerKind = Phase + ".load-balancer"
	ServerKind       = Phase + ".server"
	SSHKind          = Phase + ".ssh"
	PrepareKind      = Phase + ".prepare"
	RuntimeKind      = Phase + ".runtime"
	KubeletKind      = Phase + ".kubelet"
	ImagesKind       = Phase + ".images"
	RemoveKind       = Phase + ".remove"
)

// cloudPool is the pool of everything that talks to the cloud API.
const cloudPool = "hcloud"

// kubeRoles are the roles whose hosts run pods.
var kubeRoles = []string{spec.Master, spec.Worker}

// Kinds are the kinds of this phase.
func Kinds() []tasks.Kind {
	return []tasks.Kind{
		networkKind(), firewallKind(), placementKind(), sshKeyKind(), loadBalancerKind(),
		serverKind(), sshKind(), prepareKind(), runtimeKind(), kubeletKind(), imagesKind(), removeKind(),
	}
}

// afterContact is the need of everything that works on a host: its server's
// identity and what first contact found out.
func afterContact() []graph.Need { return []graph.Need{{Kind: SSHKind, Via: graph.Same}} }
