// Package remote is how hk reaches what is not hk: the cloud, hosts, etcd and
// Kubernetes. At the top are interfaces and the plain values that cross them;
// each folder below implements them for one outside thing and knows no other.
//
// Its rules: a call names what it wants as values, never as a shell string;
// every call takes a context and has a deadline; errors say whether trying
// again can help (Transient) and which world they come from (Class).
package remote
