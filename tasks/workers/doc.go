// Package workers is the phase install-workers: hosts become Nodes.
//
// Its rules: a worker joins with a certificate that hk signs for one hour, never
// with a bootstrap token; a healthy member is never joined again and never
// reset, its kubelet is started and that is all; a half-done join is run again
// with exactly its own traces ignored; nothing waits for another worker.
//
// What it asks of a host, besides files, units and facts:
//
//	kubeadm join --config /run/hk/kubeadm-join.yaml   (a job)
//
// Start reading at join.go.
package workers
