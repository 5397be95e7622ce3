package hcloud

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

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
type Client struct {
	api    *hcloud.Client
	budget *budget
	wait   *waiter
}

var _ remote.Cloud = (*Client)(nil)

// New checks the token's form; it makes no request.
func New(o Options) (*Client, error) {
	token := strings.TrimSpace(o.Token)
	if err := checkToken(token); err != nil {
		return nil, err
	}
	b := newBudget(o.Transport)
	opts := []hcloud.ClientOption{
		hcloud.WithToken(token),
		hcloud.WithApplication("hk", o.Version),
		hcloud.WithHTTPClient(&http.Client{Transport: b}),
		// The library's own retries know nothing of the shared budget, leave out
		// "locked" and repeat creates; retry.go decides instead.
		hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}),
	}
	if o.Endpoint != "" {
		opts = append(opts, hcloud.WithEndpoint(o.Endpoint))
	}
	c := &Client{api: hcloud.NewClient(opts...), budget: b}
	c.wait = newWaiter(c.actions, b.scarce)
	return c, nil
}

// checkToken finds what would only fail as an odd HTTP error later: an empty
// token, or one with a line break, a quote or a letter that came along when it
// was copied. The token itself is in no message.
func checkToken(token string) error {
	bad := &remote.CloudError{Op: "API token", Code: "invalid_token"}
	if token == "" {
		bad.Message = "the token is empty"
		return bad
	}
	for i, r := range token {
		if r < '!' || r > '~' || r == '"' || r == '\'' {
			bad.Message = fmt.Sprintf("character %d of the token cannot be part of one", i+1)
			return bad
		}
	}
	return nil
}

// Usage is what the API budget looks like.
func (c *Client) Usage() remote.Usage { return c.budget.usage() }

// Server returns one server; ErrNotFound.
func (c *Client) Server(ctx context.Context, id int64) (*remote.Server, error) {
	op := fmt.Sprintf("look at server %d", id)
	var out *remote.Server
	err := c.read(ctx, op, func(ctx context.Context) error {
		s, _, err := c.api.Server.GetByID(ctx, id)
		if err == nil && s == nil {
			return notFound(op)
		}
		if err == nil {
			out = fromServer(s)
		}
		return err
	})
	return out, err
}

// requestTimeout bounds one HTTP request, its answer read.
const requestTimeout = time.Minute
