package run

import (
	"context"
	"time"

	"hk/cache/fp"
	"hk/graph"
)

// Recorder is where records live. A cache.Cluster is one as it is.
type Recorder interface {
	// Load hands over every record, in no particular order. The name is valid
	// during the call only. A store that does not exist has no records.
	Load(ctx context.Context, each func(name []byte, k fp.Kept)) error
	// Whole returns complete records in the order of the names, nil where
	// there is none or where it cannot be trusted.
	Whole(ctx context.Context, names []string) ([]*fp.Record, error)
	// Commit makes the changes durable, all or none, then calls done, from any
	// goroutine, at once or later. Commits take effect in the order of the
	// calls; many of them may share one transaction. The records belong to the
	// Recorder from then on.
	Commit(changes []fp.Change, done func(error))
}

// Clock is the time. Its functions must be safe for concurrent use.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f in its own goroutine after d; stop prevents that if it
	// did not happen yet and reports whether it did.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}

// Sink takes events. All but LogLine come from one goroutine, in the order in
// which things happened; LogLine comes from any.
type Sink interface {
	Event(e Event)
}

// Verify says how much a build looks at tasks that have a good record. What
// runs is always verified.
type Verify uint8

const (
	// VerifyOff believes the records: Work.Look is never called.
	VerifyOff Verify = iota
	// VerifyQuick looks at every task whose inputs did not change.
	VerifyQuick
	// VerifyFull does the same; Work is told by whoever wires it to look deeper.
	VerifyFull
)

// Keep is an asset that is spared, such as etcd's data.
type Keep struct {
	Phase string // "" for any
	Asset string
	Flag  string // for people, such as "--keep-data"
}

// Options is everything a build or a plan depends on.
type Options struct {
	Graph     *graph.Graph
	Selection graph.Selection
	Work      Work
	Recorder  Recorder
	Clock     Clock // nil only for plans
	Sink      Sink  // nil: nobody listens

	RunID      string
	Generation uint64    // of the cluster; handed to Do and kept with records
	Now        time.Time // the fixed "now" of every decision of this run

	Verify Verify
	// Force runs the named tasks even if nothing changed. Kinds marked Once are
	// verified only.
	Force bool
	// Only refuses to start if something the named tasks need is stale.
	Only bool
	// VerifyOnly makes every attempt one that makes nothing: adopt, rebuild.
	VerifyOnly bool
	Keep       []Keep

	// Jobs is the number of tasks that run at a time; below 1 means 1.
	Jobs int
	// Pools are the widths of named pools; a pool without a width has no limit.
	Pools map[string]int
	// PoolsOf names further pools of a task beside Kind.Pool, such as
	// "ssh:master-1"; nil for none.
	PoolsOf func(graph.Task) []string
	// Guarded says that the cluster is established, so kinds with a Guard go
	// one host at a time.
	Guarded bool
	// FailFast starts nothing new after a failure.
	FailFast bool
	// Shuffle, if not zero, seeds a random order of ready tasks.
	Shuffle uint64

	// Attempts is how often a task is tried if its errors are transient; below
	// 1 means 3. Backoff is the wait after the n-th attempt, from 1; nil means
	// 1 s doubled each time up to 30 s.
	Attempts int
	Backoff  func(attempt int) time.Duration

	// FreshEvents asks for a TaskFinished of fresh tasks too.
	FreshEvents bool
	// Interrupt is the user's wish to stop. First: start nothing new, let
	// running tasks finish. Second: cancel them. (The third is main's.)
	Interrupt <-chan struct{}
}

// Summary is what came of a build. The counts sum up to Selected.
type Summary struct {
	Selected                                        int
	Ran, Fresh, Spared, Unverified, Failed, Blocked int
	Started                                         int // tasks whose Do was called
	Interrupted                                     int // 0, or the stage reached
	Causes                                          []Cause
	Wall                                            time.Duration
	// CriticalPath is the longest chain of tasks that ran, by the time from
	// start to end of each, retries included: no number of jobs could have made
	// the build faster. Chain holds its tasks, first to last.
	CriticalPath time.Duration
	Chain        []graph.Task
	Tasks        []Timing // those that were started, in order of their start
	// States is where each task of the graph ended; Waiting if not selected.
	States []State
	// Err is the error that stopped the build as a whole: the store refused a
	// write, or the context ended (then it is its cause). Nil otherwise, also
	// if tasks failed.
	Err error
}

// OK reports whether everything selected is in its wanted state.
func (r *Summary) OK() bool {
	return r.Err == nil && r.Interrupted == 0 && r.Failed+r.Blocked+r.Unverified == 0
}

// Cause is a reason why the build is not complete: a failed task, or a host
// that could not be looked at. Blocked tasks are counted at what blocks them.
type Cause struct {
	Task    graph.Task // the first one concerned
	Name    string
	Host    string
	Class   string // config, cloud, ssh, etcd, kube, state or bug
	Message string
	Tasks   int // tasks concerned: 1 for a failed task
	Blocked int // tasks that could not run because of it
	Err     error
}

// Timing is when a task ran, all attempts together.
type Timing struct {
	Task       graph.Task
	Start, End time.Time
	Attempts   int
	Pool       string
	Failed     bool
}

// Build brings the selected tasks into their wanted state. The error is for
// builds that did not begin: *StaleNeedError, *RefusedError, or a store that
// cannot be read. Everything else is in the Summary, which is not nil then.
func Build(ctx context.Context, o Options) (*Summary, error) { return build(ctx, o) }

// MakePlan says what Build would do. It writes nothing and starts nothing; with
// Verify other than off it looks.
func MakePlan(ctx context.Context, o Options) (*Plan, error) { return makePlan(ctx, o) }
