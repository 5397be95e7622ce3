package cli

import (
	"context"
	"errors"
	"syscall"

	"hk/graph"
	"hk/remote"
)

// Exit codes of hk (DESIGN §7, README). 3, 4 and 6–10 are used only before the
// first task ran; later the code is 1 and the error's class says which world it
// came from.
const (
	ExitOK          = 0
	ExitFailed      = 1   // a task failed or a host is unreachable
	ExitUsage       = 2   // unknown flag, command, phase, host
	ExitConsent     = 3   // build: consent needed; plan --check, status --check: stale
	ExitLost        = 4   // build: an established cluster's server is missing or rebuilt; --check: drift
	ExitLocked      = 5   // someone else works on the cluster, or the lease was lost
	ExitConfig      = 6   // config missing, invalid, immutable field changed, made by a newer hk
	ExitCloud       = 7   // token refused, wrong project, foreign object, API down
	ExitSSH         = 8   // a host key differs, or no host at all can be reached
	ExitCredentials = 9   // credentials of an existing cluster cannot be found
	ExitState       = 10  // state directory full, read-only or foreign
	ExitBug         = 70  // a broken invariant of hk's own
	ExitInterrupted = 130 // by a signal
)

// Classes of errors, as events carry them.
const (
	classConfig = "config"
	classCloud  = "cloud"
	classSSH    = "ssh"
	classEtcd   = "etcd"
	classKube   = "kube"
	classState  = "state"
	classBug    = "bug"
)

// verdict is what an error means to whoever called hk.
type verdict struct {
	code  int
	class string
}

// exitError gives an error its exit code at the edge, where no type says it.
type exitError struct {
	code  int
	class string
	hint  string
	err   error
}

func (e *exitError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *exitError) Unwrap() error { return e.err }

// Hint is what to do about it.
func (e *exitError) Hint() string { return e.hint }

// judge maps the errors of all rooms to an exit code and a class. The order
// matters where an error wraps another: what was decided at the edge wins, then
// an interrupt (which breaks calls in every world), then the worlds.
func judge(err error) verdict {
	if err == nil {
		return verdict{ExitOK, ""}
	}
	if e, ok := errors.AsType[*exitError](err); ok {
		return verdict{e.code, e.class}
	}
	if isUsage(err) {
		return verdict{ExitUsage, classConfig}
	}
	if _, ok := errors.AsType[*graph.UnknownError](err); ok {
		return verdict{ExitUsage, classConfig}
	}
	if v, ok := judgeCluster(err); ok {
		return v
	}
	switch {
	case errors.Is(err, context.Canceled):
		return verdict{ExitInterrupted, classState}
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.EDQUOT):
		return verdict{ExitState, classState}
	case errors.Is(err, remote.ErrHostKey), errors.Is(err, remote.ErrUnreachable):
		return verdict{ExitSSH, classSSH}
	case errors.Is(err, remote.ErrRebuilt):
		return verdict{ExitLost, classState}
	case errors.Is(err, remote.ErrStaleGeneration):
		return verdict{ExitLocked, classState}
	}
	if _, ok := errors.AsType[*remote.CloudError](err); ok {
		return verdict{ExitCloud, classCloud}
	}
	return verdict{ExitFailed, classOf(err)}
}

// classOf asks the error itself; without an answer it is a bug of hk's that
// nobody said.
func classOf(err error) string {
	var c interface{ Class() string }
	if errors.As(err, &c) {
		return c.Class()
	}
	return classState
}
