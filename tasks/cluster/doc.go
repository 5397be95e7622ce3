// Package cluster is what hk knows of one cluster around a build: the
// credential unit on the operator's computer, what the cloud and the hosts say,
// the decision what a command may do about it, and the write step that takes
// the lease and makes the first file. Destroy, status, preflight and snapshots
// stand on the same pieces.
//
// Its rules: discover, then decide, then write, in this order and visibly apart
// (no key, token or file is made before the cloud, the hosts and the local
// store were asked); ownership is decided by UID, never by name; every refusal
// says what was found, where, and what to do next.
//
// It never knows how SSH or HTTP works, which phases there are, or how anything
// is printed. Start reading at session.go, then unit.go and decide.go.
package cluster
