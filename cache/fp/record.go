package fp

import "time"

// Status says what is known of a task's last run.
type Status uint8

const (
	// Pending: a run was announced and did not report back. Such a task is
	// stale, reason "interrupted".
	Pending Status = 1 + iota
	// Done: the run and its own verification succeeded; only then are
	// Fingerprint, Output and Observed meaningful.
	Done
	// Failed: kept for display only, never an answer. The last good run's
	// fields stay beside it.
	Failed
)

// Record is what is known of a task: its last good run, and what became of the
// attempt after it, if any.
type Record struct {
	Status      Status
	Fingerprint Fingerprint // of the last good run; zero if there never was one
	Output      Output      // declared by the last good run
	Parts       []Part      // labelled input parts of the last good run, sorted by label
	// Observed is what was seen of the declared state when the run was
	// verified: "file:/etc/x" -> "sha256 mode owner", "unit:kubelet.service"
	// -> "active enabled 1f2e…". Drift is a difference from it.
	Observed map[string]string
	// Drift is set when a difference was seen and not yet repaired, so that a
	// build without looking (--verify=off) cannot hide it.
	Drift     string
	GoodUntil time.Time // after it the task is stale; zero: no end
	Started   time.Time
	Took      time.Duration
	RunID     string // of the last run (good, pending or failed)
	Reason    string // why that run ran
	Error     string // of a failed run
	Attempt   int
	// Generation is the cluster generation of the last good run.
	Generation uint64
}

// Good reports whether the record holds a last good run that nothing later
// put in doubt.
func (r *Record) Good() bool { return r != nil && r.Status == Done }
