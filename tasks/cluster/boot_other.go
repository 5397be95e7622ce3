//go:build !linux

package cluster

import "time"

// bootTime is the wall clock where there is no clock that counts sleep and
// cannot be set: a lease may then be given up too early, which is safe, or a
// clock set back during a build may hide that it ended.
func bootTime() time.Duration { return time.Duration(time.Now().UnixNano()) }
