// Package api is the lab's face: the Hetzner Cloud API as an http.Handler.
//
// A request goes through the layers of [Server.ServeHTTP] (log, rate limit,
// faults, token), then to one handler per route (routes.go). A handler judges the
// request, changes state and answers with an action; what the action means for
// the real world is done afterwards by its worker (actions.go, work_*.go) through
// a [Backend]: machines, bridges, proxies. Unit tests have a backend that does
// nothing.
//
// Three rules: a handler never waits for the real world; a worker can be run
// again from the start after a kill at any point; what goes over the wire are
// hcloud-go's own schema types, filled in views.go, with the few fields that the
// real API sends as null and those types cannot say (wire.go).
package api
