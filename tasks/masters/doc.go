// Package masters is the phase install-masters: the control plane, made by
// kubeadm on all masters at the same time from one set of key material.
//
// Its rules: every certificate and kubeconfig is hk's, and kubeadm finds them;
// there is no first master; what is done once for the cluster is one cluster
// task; a half-done init is run again with exactly its own traces ignored, and
// never reset; once established, one master at a time, and an API server is
// restarted only if its manifest changed.
//
// What it asks of a host, besides files, units and facts:
//
//	kubeadm init --config /run/hk/kubeadm-init.yaml --skip-phases=…   (a job)
//	kubeadm init --config /run/hk/kubeadm-once.yaml --skip-phases=…   (a job)
//	env KUBEADM_INIT_DRYRUN_DIR=/run/hk/kubeadm kubeadm init phase
//	    control-plane all|kubelet-start --config /etc/kubernetes/kubeadm.yaml --dry-run
//	crictl ps --quiet --state running --label io.kubernetes.container.name=NAME
//	crictl stop --timeout 10 ID
//	systemctl restart kubelet.service
//
// Start reading at controlplane.go, then config.go and certs.go.
package masters
