// Package network is the phase network-setup: the WireGuard mesh between all
// hosts, over their public addresses. It carries etcd, the API and the pods;
// the pods' routes are WireGuard's allowed IPs, so there is no second
// encapsulation.
//
// Its rules: a private key is drawn once and stays on its host; the set of
// hosts enters every fingerprint through one digest; peers change by syncconf,
// never by an interface restart; a host verifies its own side only, and a host
// that is down costs nobody but itself.
//
// Start reading at peers.go, then mesh.go.
package network
