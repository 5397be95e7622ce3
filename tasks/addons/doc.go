// Package addons is the phase addons: what makes Nodes Ready and useful. Now
// that is the pod network `mesh` (bridge, host-local, portmap; the routes
// between hosts are WireGuard's) and the proofs that Nodes are Ready and that
// DNS runs.
//
// Its rules: the pod network needs no API and is there before a Node is; with
// `cni: none` nothing here demands Ready, and says so by not being there.
package addons
