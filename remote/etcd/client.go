package etcd

import "hk/remote"

// Client is a remote.Etcd.
type Client struct{ remote.Etcd }

// New returns a client of the members behind the endpoints; it dials nothing.
func New(c remote.ClientCert, endpoints []remote.Endpoint) (remote.Etcd, error) {
	return &Client{}, nil
}
