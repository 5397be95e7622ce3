package run

import (
	"context"
	"time"

	"hk/cache/fp"
	"hk/graph"
)

// Upstream gives the recorded or fresh output of a task that is needed; false
// when there is none yet.
type Upstream func(graph.Task) (fp.Output, bool)

// Input is what goes into one task. Parts are the kind's own (config, versions,
// artifacts, files, secrets); the engine adds schema, recipe and the digests of
// what the task needs to the same Parts, which are its from then on. Value is
// the kind's own typed input, opaque here.
type Input struct {
	Parts *fp.Parts
	Value any
}

// Look is what was seen of a task that has a good record.
type Look struct {
	// Drift names what differs from the record, such as
	// "/etc/sysctl.d/90-hk.conf changed"; "" if nothing does.
	Drift string
	// Unreachable is the reason why nobody could look; the task is then
	// unverified and keeps its record.
	Unreachable string
}

// Attempt tells Do under which flag it runs.
type Attempt struct {
	RunID       string
	Number      int // from 1
	Fingerprint fp.Fingerprint
	Parts       []fp.Part
	Reason      string
	Generation  uint64
	// VerifyOnly: check again, make nothing (kinds marked Once when forced;
	// adopt; rebuild).
	VerifyOnly bool
	// Log takes the last output line of the task for the live view; never nil.
	Log func(line string)
}

// Result is what a verified run leaves.
type Result struct {
	Output    fp.Output
	Observed  map[string]string
	GoodUntil time.Time
}

// Work is what the engine asks of whoever knows what tasks do.
type Work interface {
	// Input is pure and quick: same config, allocation and upstream outputs,
	// same parts. A build calls it only when every needed output is known. A
	// plan may call it before, to learn which of the other parts changed; an
	// error then means no more than that this is not known.
	Input(t graph.Task, up Upstream) (Input, error)
	// Look compares a good record with what is there now. It must not change
	// anything.
	Look(ctx context.Context, t graph.Task, rec *fp.Record) (Look, error)
	// Do runs the task and verifies it. Only a nil error makes a record.
	// Errors may implement Transient() bool (try again) and Class() string
	// (config, cloud, ssh, etcd, kube, state, bug).
	Do(ctx context.Context, t graph.Task, in Input, a Attempt) (Result, error)
}
