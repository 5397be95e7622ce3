package workers

import (
	"hk/tasks"
	"hk/tasks/kubenode"
	"hk/tasks/spec"
)

// Phase is this phase's name.
const Phase = "install-workers"

// Kinds of this phase by ID.
const (
	CertsKind  = Phase + ".certs"
	ConfigKind = Phase + ".config"
	JoinKind   = Phase + ".join"
	NodeKind   = Phase + ".node"
	RemoveKind = Phase + ".remove"
)

// clusterCA is the cluster's authority in the credential unit.
const clusterCA = "ca"

// Kinds are the kinds of this phase.
func Kinds() []tasks.Kind {
	return []tasks.Kind{
		certsKind(), configKind(), joinKind(), kubenode.NodeKind(Phase, spec.Worker, JoinKind),
		kubenode.RemoveKind(Phase, spec.Worker),
	}
}

func onWorkers() []string { return []string{spec.Worker} }
