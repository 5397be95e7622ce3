package cache

import (
	"context"
	"errors"
	"fmt"

	"hk/cache/fp"
)

// Store keeps what is known of several clusters. cachetest holds the contract
// every implementation must pass.
type Store interface {
	// Cluster is the part of the store for one cluster: its UID, or its name
	// as long as it has none. Nothing is created by asking.
	Cluster(id string) Cluster
	// Clusters lists those that have anything kept, sorted.
	Clusters(ctx context.Context) ([]string, error)
	// Close waits until everything committed is durable.
	Close() error
}

// Cluster is the part of a Store for one cluster. It satisfies run.Recorder.
type Cluster interface {
	// Load hands over every record in order of the names. The name is valid
	// during the call only. What is not there is not an error.
	Load(ctx context.Context, each func(name []byte, k fp.Kept)) error
	// Whole returns complete records in the order of the names, nil where
	// there is none or it cannot be trusted.
	Whole(ctx context.Context, names []string) ([]*fp.Record, error)
	// Commit makes changes durable, all or none, and calls done. Commits take
	// effect in the order of the calls and share transactions.
	Commit(changes []fp.Change, done func(error))

	// Get returns a value, nil if there is none.
	Get(ctx context.Context, key string) ([]byte, error)
	// Put writes values, all or none; a nil value removes the key.
	Put(ctx context.Context, values map[string][]byte) error
	// List calls each with every key that has the prefix, in order. Slices are
	// valid during the call only.
	List(ctx context.Context, prefix string, each func(key string, value []byte)) error

	// PutValue keeps a large value under its SHA-256.
	PutValue(ctx context.Context, value []byte) (fp.OutputDigest, error)
	// Value returns it, or nil if it is not there or damaged.
	Value(ctx context.Context, digest fp.OutputDigest) ([]byte, error)

	// Generation is the cluster generation the records belong to; 0 at first.
	Generation(ctx context.Context) (uint64, error)
	// SetGeneration changes it.
	SetGeneration(ctx context.Context, generation uint64) error

	// Drop forgets everything of the cluster.
	Drop(ctx context.Context) error
	// Rename moves everything to another id, which must have nothing kept.
	Rename(ctx context.Context, id string) error
}

// ErrState is wrapped by every error that means the state directory is unfit:
// full, read-only, foreign. Exit code 10.
var ErrState = errors.New("state directory")

// StateError is such an error with its place.
type StateError struct {
	Op   string // "open", "write", "lock"
	Path string
	Err  error
}

func (e *StateError) Error() string { return fmt.Sprintf("%s %s: %v", e.Op, e.Path, e.Err) }

// Unwrap returns the cause.
func (e *StateError) Unwrap() error { return e.Err }

// Is makes every StateError an ErrState.
func (e *StateError) Is(target error) bool { return target == ErrState }

// Class is "state".
func (e *StateError) Class() string { return "state" }
