// Package lab is a Hetzner Cloud on the operator's own computer.
//
// `hk lab up` starts a daemon that answers the Hetzner Cloud API on the
// loopback address. The servers it hands out are real Linux machines: systemd,
// sshd, cloud-init, own addresses, own disks, own cgroups, made with
// systemd-nspawn on overlayfs. Any client of the real API can talk to it; hk is
// just one of them.
//
// Three rules:
//
//  1. The state file says what should be, the kernel says what is. Every change
//     is written down before its effect starts and marked done after it, and all
//     effects can be repeated, so a killed daemon picks up where it stopped.
//  2. Machines and load balancers are no children of the daemon. They live in
//     sessions of their own and go on when it dies.
//  3. Nothing leaves the lab. Machines reach each other and the lab's own
//     services (names, artifacts, images); there is no way out and no NAT.
//
// It must never know what a cluster, a phase or a task is, and it never changes
// the host's own sysctls, routes or firewall beyond its own bridge.
//
// Where to start reading: lab.go (Up, Down, Lookup), serve.go (the daemon),
// then the rooms below: api (the HTTP face), state (what is remembered),
// machine (disks and processes), fabric (bridges, namespaces, firewalls), lb
// (the load balancers' proxy), names (DNS), catalog (types, prices, places),
// image (base roots and artifacts).
package lab
