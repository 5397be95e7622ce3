// Package hcloud implements remote.Cloud with Hetzner's own client library:
// one waiter for all actions, one budget for all requests, and errors that say
// whether trying again can help.
package hcloud
