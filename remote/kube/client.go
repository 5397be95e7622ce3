package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"hk/remote"
)

// External is the name of the endpoint that is the address for people. It is
// asked after all others.
const External = "external"

// Deadlines: a master that is down must cost little, since the next one is
// asked after it.
const (
	dialTimeout = 4 * time.Second
	readTimeout = 10 * time.Second
	callTimeout = 30 * time.Second
)

// Client is a remote.Kube.
type Client struct {
	cert remote.ClientCert
	ends []*end
	good atomic.Int32 // index of the endpoint that answered last
	rest restMap
}

var _ remote.Kube = (*Client)(nil)

// end is one API server.
type end struct {
	remote.Endpoint
	cert remote.ClientCert

	once sync.Once
	err  error
	conf *rest.Config
	http *http.Client
	dyn  *dynamic.DynamicClient
}

// New returns a client of the API behind the endpoints; it makes no request.
// The endpoint of name "external", if any, is asked last.
func New(c remote.ClientCert, endpoints []remote.Endpoint) (remote.Kube, error) {
	if len(endpoints) == 0 {
		return nil, errors.New("bug: a Kubernetes client without endpoints")
	}
	k := &Client{cert: c}
	var last []*end
	for _, e := range endpoints {
		x := &end{Endpoint: e, cert: c}
		if e.Host == External {
			last = append(last, x)
			continue
		}
		k.ends = append(k.ends, x)
	}
	k.ends = append(k.ends, last...)
	return k, nil
}

// dial connects to the endpoint, through its host if it has one.
func (e *end) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if e.Via != nil {
		return e.Via.Dial(ctx, e.Addr)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", e.Addr)
}

// open makes the clients of an endpoint, on first use: parsing certificates is
// nothing that a command which asks nothing should pay for.
func (e *end) open() error {
	e.once.Do(func() {
		e.conf = &rest.Config{
			Host: "https://" + e.Addr,
			TLSClientConfig: rest.TLSClientConfig{
				ServerName: e.ServerName, CAData: e.cert.CA, CertData: e.cert.Cert, KeyData: e.cert.Key,
			},
			UserAgent: "hk",
			Dial:      e.dial,
			QPS:       -1, // hk limits its work by pools of its own
		}
		if e.http, e.err = rest.HTTPClientFor(e.conf); e.err != nil {
			return
		}
		e.dyn, e.err = dynamic.NewForConfigAndClient(e.conf, e.http)
	})
	return e.err
}

// try does something at the endpoint that answered last, and at the others in
// turn while that is for reasons of the endpoint. All of hk's calls can be done
// twice.
func (k *Client) try(ctx context.Context, op string, timeout time.Duration, f func(context.Context, *end) error) error {
	first := int(k.good.Load())
	var errs error
	for i := range k.ends {
		n := (first + i) % len(k.ends)
		err := k.at(ctx, k.ends[n], timeout, f)
		if err == nil || !elsewhere(err) {
			k.good.Store(int32(n))
			return wrap(op, err)
		}
		errs = errors.Join(errs, fmt.Errorf("%s: %w", k.ends[n].Host, err))
		if ctx.Err() != nil {
			break
		}
	}
	return wrap(op, errs)
}

func (k *Client) at(ctx context.Context, e *end, timeout time.Duration, f func(context.Context, *end) error) error {
	if err := e.open(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return f(ctx, e)
}

// named returns the endpoints that via means: one, or with "" all.
func (k *Client) named(via string) ([]*end, error) {
	if via == "" {
		return k.ends, nil
	}
	for _, e := range k.ends {
		if e.Host == via {
			return []*end{e}, nil
		}
	}
	return nil, fmt.Errorf("bug: no API endpoint %q", via)
}

// elsewhere reports whether another API server may answer better.
func elsewhere(err error) bool {
	var done *remote.WorldError
	var odd *statusError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &done):
		return false
	case errors.As(err, &odd):
		return odd.code >= http.StatusInternalServerError
	}
	if !errors.As(err, &status) {
		return true // no answer
	}
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsInternalError(err) || apierrors.IsUnexpectedServerError(err)
}

// wrap says what is wrong and whether trying again can help.
func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*remote.WorldError](err); ok {
		return err
	}
	out := &remote.WorldError{World: "kube", Op: op, Err: err}
	var status apierrors.APIStatus
	switch {
	case apierrors.IsNotFound(err):
		out.Err = fmt.Errorf("%w: %w", remote.ErrNotFound, err)
	case errors.As(err, &status):
		out.Again = elsewhere(err) || apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err)
	case errors.Is(err, context.Canceled):
	default:
		out.Again = elsewhere(err)
	}
	return out
}

// get asks for a path that is no object and returns the answer's body.
func (e *end) get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, e.conf.Host+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := e.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(res.Body, 16<<20))
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		return nil, &statusError{path: path, code: res.StatusCode, body: string(body)}
	}
	return body, nil
}

// statusError is an answer other than 200 to a path that is no object.
type statusError struct {
	path string
	code int
	body string
}

func (e *statusError) Error() string {
	body := e.body
	if len(body) > 300 {
		body = body[:300] + " ..."
	}
	return fmt.Sprintf("%s: HTTP %d: %s", e.path, e.code, body)
}
