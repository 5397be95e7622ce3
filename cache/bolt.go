package cache

import (
	"context"
	"time"
)

// Options of a store in a file.
type Options struct {
	// ReadOnly refuses writes: for quiet commands.
	ReadOnly bool
	// Now is the time, for names of files set aside; nil is not allowed unless
	// ReadOnly.
	Now func() time.Time
	// Notice hears of damage, such as a file that was set aside. It must be
	// safe for concurrent use; nil: nobody hears.
	Notice func(Notice)
}

// Notice is damage that was found and dealt with.
type Notice struct {
	Path   string // the file
	Aside  string // where the damaged file is kept now; "" if it was only read
	Reason string
}

// Bolt is a Store in one bbolt file.
type Bolt struct{}

// Open returns the store in a file. It touches nothing: the file is made by the
// first write.
func Open(path string, o Options) *Bolt { panic("bug: not built yet") }

// Report is what Doctor found.
type Report struct {
	Path     string
	Missing  bool // there is no file, which is fine
	Size     int64
	Clusters []ClusterReport
	Problems []string // empty: healthy
}

// ClusterReport is a cluster's part of a Report.
type ClusterReport struct {
	ID      string
	Records int
	Damaged []string // names of records that cannot be trusted
}

// Doctor reads everything and checks it. It changes nothing.
func (b *Bolt) Doctor(ctx context.Context) (Report, error) { panic("bug: not built yet") }
