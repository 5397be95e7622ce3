package addons

import (
	"hk/tasks"
	"hk/tasks/spec"
)

// Phase is this phase's name.
const Phase = "addons"

// Kinds of this phase by ID.
const (
	CNIKind   = Phase + ".cni"
	ReadyKind = Phase + ".ready"
	DNSKind   = Phase + ".dns"
)

// Values of cni in the config.
const (
	cniMesh = "mesh"
	cniNone = "none"
)

// Kinds are the kinds of this phase.
func Kinds() []tasks.Kind {
	return []tasks.Kind{cniKind(), readyKind(), dnsKind()}
}

func podRoles() []string { return []string{spec.Master, spec.Worker} }

// withNetwork: only where there is a pod network can a Node be Ready.
func withNetwork(c *spec.Cluster) bool { return c.CNI != cniNone }
