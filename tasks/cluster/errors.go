package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"
)

// Exit codes a refusal asks for (DESIGN §7). They are meant for the time before
// the first task; later the command ends with 1 and the class says which.
const (
	ExitFailed      = 1
	ExitUsage       = 2
	ExitConsent     = 3
	ExitServer      = 4
	ExitLocked      = 5
	ExitConfig      = 6
	ExitCloud       = 7
	ExitSSH         = 8
	ExitCredentials = 9
	ExitState       = 10
)

// Refusal is an error for people: a command ends with it, nothing more was
// changed, and it says what to do.
type Refusal struct {
	Exit    int
	World   string // config, cloud, ssh, etcd, kube, state
	Message string
	Details []string // one line each: what was found
	Hints   []string // what to do next, one command or sentence each
	Err     error    // cause, if any; not part of the message
}

func (r *Refusal) Error() string { return r.Message }

// Unwrap returns the cause.
func (r *Refusal) Unwrap() error { return r.Err }

// ExitCode is the code the process ends with.
func (r *Refusal) ExitCode() int { return r.Exit }

// Class is the world the error comes from.
func (r *Refusal) Class() string { return r.World }

// ErrLocked is wrapped when somebody else holds the cluster's lease.
var ErrLocked = errors.New("locked")

// ErrLeaseLost is the cause of a build's context once the lease is gone: no
// write may start any more.
var ErrLeaseLost = errors.New("the lease was lost")

// stateError explains a failure of the local store: exit 10.
func stateError(op, path string, err error) error {
	if err == nil {
		return nil
	}
	r := &Refusal{Exit: ExitState, World: "state", Err: err}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		r.Message = fmt.Sprintf("%s %s: no space left on the device", op, path)
		r.Hints = []string{"free some space and run the same command again: nothing that was there is lost"}
	case errors.Is(err, syscall.EROFS):
		r.Message = fmt.Sprintf("%s %s: the file system is read-only", op, path)
		r.Hints = []string{"set HK_HOME to a directory that can be written"}
	case errors.Is(err, fs.ErrPermission):
		r.Message = fmt.Sprintf("%s %s: permission denied", op, path)
		r.Hints = []string{"run hk as the owner of the state directory, or set HK_HOME to one of your own"}
	case errors.Is(err, syscall.ENOTDIR):
		r.Message = fmt.Sprintf("%s %s: something on the way is not a directory", op, path)
		r.Hints = []string{"set HK_HOME to a directory"}
	default:
		r.Message = fmt.Sprintf("%s %s: %v", op, path, err)
		r.Hints = []string{"HK_HOME names the state directory"}
	}
	return r
}

// foreign refuses a directory that hk did not make.
func foreign(path, why string, hints ...string) error {
	return &Refusal{
		Exit: ExitState, World: "state",
		Message: fmt.Sprintf("%s is not a credential unit of hk: %s", path, why), Hints: hints,
	}
}
