// Package image prepares, once per computer, everything a lab machine is made of:
// Debian roots, the programs of a cluster and its container images.
//
// What [Prepare] leaves in the cache directory (default: hk's folder in the XDG
// cache directory), all of it below lab/:
//
//	roots/debian-12-KEY/       what a stock Debian 12 cloud server holds
//	roots/hk-snapshot-KEY/     the same with everything installed that hk's prepare brings
//	containerd/hk-snapshot-KEY/  a filled /var/lib/containerd for it
//	artifacts/                 an HTTP tree in upstream's layout, checksums beside the files
//	images-KEY/                docker-archive files, index.json says what is in them
//	build/                     generated Go modules and what they built
//	stamps/ log/ lock          what is done (see step.go), what commands wrote
//
// Three rules. A directory is finished under another name and then renamed, so that
// what has its final name is whole. A finished root is never changed afterwards: it is
// the lower layer of running machines; another recipe gets another name. Nothing is
// downloaded from anywhere but the computer's own Debian mirror and Go module proxy.
//
// The etcd image that `kubeadm config images list` names is not built: hk's etcd is a
// systemd unit, and kubeadm never pulls that image with an external etcd.
//
// Start reading at Prepare in image.go, then step.go.
package image
