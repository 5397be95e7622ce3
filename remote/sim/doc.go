// Package sim is a world in memory with a file behind it: a cloud, hosts, etcd
// and Kubernetes behind the interfaces of remote, for property tests, kill
// points and trying hk without root.
//
// Its rules: it can say no. Programs have preconditions and fail as the real
// ones do; a command it does not know is an error, never a success. Work that
// was accepted is done whether or not hk lives. The world outlives the process:
// each change is one appended line, so a kill leaves a world that a later
// process reads as it was.
//
// Start reading at world.go, then host.go; what each program demands and does
// is in programs.go.
package sim
