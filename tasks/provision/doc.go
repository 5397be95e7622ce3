// Package provision is the phase provision-nodes: what a cluster has in the
// cloud, first contact with its machines, and everything a machine needs before
// it can carry etcd or Kubernetes.
//
// Its rules: an intent is written before each create and the ID right after; an
// object is ours by the UID on its label, never by its name; a server is never
// recreated here, only made if there is none.
//
// Start reading at kinds.go, then server.go and ssh.go for the order in which
// host keys are drawn, announced, handed over, checked and pinned.
package provision
