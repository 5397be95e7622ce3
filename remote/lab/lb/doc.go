// Package lb is one load balancer of the lab: a TCP proxy with health checks, run
// as a process of its own inside the load balancer's network namespace.
//
// It reads config.json in its folder when it starts and whenever it is told to
// over ctl.sock, and reports there what its checks found. So it goes on without
// the lab's daemon, and a new daemon finds it by its socket.
//
// Three rules: a connection goes to a target only after it was found healthy;
// connections to a target end when it is found unhealthy or is taken out; a target
// that does not take a connection within a second is passed over.
package lb
