// Package ssh reaches machines: remote.Hosts and remote.Host over one kept
// TCP and SSH connection a host, on which one small program of hk's own runs
// and serves all operations as values. No shell string is ever built.
package ssh
