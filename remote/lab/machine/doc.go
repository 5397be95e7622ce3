// Package machine makes, starts and stops the lab's servers: systemd-nspawn on
// an overlay over a base root that is never written to.
//
//	DIR/ID/upper, work   what the machine wrote over its base root
//	DIR/ID/root          where the overlay is mounted
//	DIR/ID/containerd    bound over /var/lib/containerd (overlay on overlay does
//	DIR/ID/kubelet       … and /var/lib/kubelet           not work for containerd)
//	DIR/ID/built         there once the disk is whole
//	DIR/ID/pid, exit     written by the machine's supervisor, see supervisor.sh
//	DIR/ID/console.log   what the machine printed
//
// Three rules: a machine is a session and a control group of its own, and what is
// in that group is the machine, whoever started it; every function can be repeated
// after a kill at any point; a disk without the mark "built" is thrown away.
//
// rootfs holds what makes a Debian root start fast as a machine of the lab; the
// measurements behind it are in docs/lab.md.
package machine
