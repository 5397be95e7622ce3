// Package ha is the phase setup-high-availability: one local endpoint on every
// host, 127.0.0.1:16443, behind which a small proxy knows all masters; and,
// where there is a load balancer, the address for people.
//
// Its rules: the proxy reads a static file, needs neither the API nor a
// container runtime, starts before kubelet, and reloads without dropping
// connections; nothing is repointed later; a host judges the masters through
// its own proxy, and a majority is enough.
//
// The proxy is Debian's haproxy with a unit of hk's own (docs/decisions): it
// checks /readyz itself, cuts connections to a master that went away, and says
// what it sees as CSV.
package ha
