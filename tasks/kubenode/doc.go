// Package kubenode is what masters and workers share as Nodes of Kubernetes:
// the places kubeadm and kubelet use, kubelet's drop-in, the preflight checks
// that a half-done init or join has to ignore, and what hk sets on a Node
// object and demands of it.
//
// Its rules: everything rendered here is pure and quick, as a no-op build of a
// large cluster renders it for every host; a Node is judged by its name, its
// providerID and its kubelet's conditions; Ready is demanded by the addons
// phase alone, as it takes a pod network.
package kubenode
