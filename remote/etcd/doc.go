// Package etcd implements remote.Etcd with etcd's own client, one connection a
// member, each through the host it runs on.
package etcd
