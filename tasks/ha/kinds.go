package ha

import "hk/tasks"

// Phase is this phase's name.
const Phase = "setup-high-availability"

// Kinds of this phase by ID.
const (
	EndpointKind = Phase + ".endpoint"
	CheckKind    = Phase + ".check"
	ExternalKind = Phase + ".external"
)

// Kinds are the kinds of this phase.
func Kinds() []tasks.Kind {
	return []tasks.Kind{endpointKind(), checkKind(), externalKind()}
}
