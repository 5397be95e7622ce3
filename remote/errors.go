package remote

import (
	"errors"
	"fmt"
)

// ErrNotFound is returned, wrapped, where the thing asked for does not exist.
var ErrNotFound = errors.New("not found")

// ErrUnreachable is wrapped by errors of a host that cannot be reached at all:
// no TCP connection, no banner, a dead connection.
var ErrUnreachable = errors.New("unreachable")

// ErrHostKey is wrapped when a host shows a key that is not the pinned one.
var ErrHostKey = errors.New("host key differs")

// ErrRebuilt is wrapped when a pinned host shows its throw-away key again or
// lost its installation file: its disk is a new one.
var ErrRebuilt = errors.New("host was rebuilt")

// ErrStaleGeneration is wrapped when a host refuses a write because it has seen
// a newer lease generation than ours.
var ErrStaleGeneration = errors.New("a newer lease has been seen")

// ErrBudget is wrapped when a pod cannot be evicted now because a disruption
// budget would be violated.
var ErrBudget = errors.New("a disruption budget does not allow it")

// CloudError is an error answer of the cloud API.
type CloudError struct {
	Op      string // such as "create server demo-master-1"
	Code    string // Hetzner's error code, such as "resource_unavailable"; "" for transport errors
	Status  int    // HTTP status; 0 for transport errors
	Again   bool   // trying again can help
	Message string
	Err     error
}

func (e *CloudError) Error() string {
	if e.Code != "" {
		return fmt.Sprintf("%s: %s (%s)", e.Op, e.Message, e.Code)
	}
	return fmt.Sprintf("%s: %s", e.Op, e.Message)
}

// Unwrap returns the cause.
func (e *CloudError) Unwrap() error { return e.Err }

// Transient reports whether trying again can help.
func (e *CloudError) Transient() bool { return e.Again }

// Class is "cloud".
func (e *CloudError) Class() string { return "cloud" }

// HostError is an error of talking to a host or of a command on it.
type HostError struct {
	Host   string
	Op     string // such as "run kubeadm init"
	Stderr string // last lines
	Code   int    // exit code of a command; 0 if there was none
	Again  bool
	Err    error
}

func (e *HostError) Error() string {
	s := e.Host + ": " + e.Op
	if e.Code != 0 {
		s += fmt.Sprintf(": exit code %d", e.Code)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Stderr != "" {
		s += ": " + e.Stderr
	}
	return s
}

// Unwrap returns the cause.
func (e *HostError) Unwrap() error { return e.Err }

// Transient reports whether trying again can help.
func (e *HostError) Transient() bool { return e.Again }

// Class is "ssh".
func (e *HostError) Class() string { return "ssh" }

// WorldError is an error of etcd or Kubernetes.
type WorldError struct {
	World string // "etcd" or "kube"
	Op    string
	Again bool
	Err   error
}

func (e *WorldError) Error() string { return e.Op + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *WorldError) Unwrap() error { return e.Err }

// Transient reports whether trying again can help.
func (e *WorldError) Transient() bool { return e.Again }

// Class is the world.
func (e *WorldError) Class() string { return e.World }
