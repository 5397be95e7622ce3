package network

import (
	"hk/tasks"
	"hk/tasks/provision"
	"hk/tasks/spec"
)

// Phase is this phase's name.
const Phase = "network-setup"

// Kinds of this phase by ID.
const (
	KeysKind      = Phase + ".keys"
	PeersKind     = Phase + ".peers"
	MeshKind      = Phase + ".mesh"
	MeshCheckKind = Phase + ".mesh-check"
)

// Interface is the mesh's network interface on every host.
const Interface = "hk0"

// Overhead is what WireGuard takes of each packet: 60 bytes over IPv4, 80 over
// IPv6; the larger one, so that the carrier may change without the mesh's MTU.
const Overhead = 80

// Unit is the mesh's unit on every host; what talks over the mesh starts after
// it.
const Unit = "wg-quick@" + Interface + ".service"

// Needs on the phase before.
const (
	serverKind  = provision.ServerKind
	sshKind     = provision.SSHKind
	prepareKind = provision.PrepareKind
)

// removals are the last steps of hosts that leave before the others may forget
// them, by role: until then a drained pod, or a member, is told over the mesh that
// it is to go.
var removals = map[string]string{
	spec.Worker: "install-workers.remove",
	spec.Master: "install-masters.remove",
	spec.Etcd:   "etcd-setup.remove",
}

// Kinds are the kinds of this phase.
func Kinds() []tasks.Kind {
	return []tasks.Kind{keysKind(), peersKind(), meshKind(), meshCheckKind()}
}
