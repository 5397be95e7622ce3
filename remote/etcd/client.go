package etcd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"hk/remote"
)

// Deadlines: of one question to one member, and of what walks its whole data.
const (
	dialTimeout = 4 * time.Second
	callTimeout = 8 * time.Second
	longTimeout = 10 * time.Minute
)

// Client is a remote.Etcd.
type Client struct {
	cert    remote.ClientCert
	members []*member
}

var _ remote.Etcd = (*Client)(nil)

// member is one etcd server. Each has a client of its own: who answers is known
// then, and each is checked for its own name.
type member struct {
	remote.Endpoint
	cert remote.ClientCert

	mu  sync.Mutex
	cli *clientv3.Client
}

// New returns a client of the members behind the endpoints; it dials nothing.
func New(c remote.ClientCert, endpoints []remote.Endpoint) (remote.Etcd, error) {
	if len(endpoints) == 0 {
		return nil, errors.New("bug: an etcd client without endpoints")
	}
	out := &Client{cert: c}
	for _, e := range endpoints {
		out.members = append(out.members, &member{Endpoint: e, cert: c})
	}
	return out, nil
}

// Close closes all connections.
func (c *Client) Close() error {
	var errs []error
	for _, m := range c.members {
		m.mu.Lock()
		if m.cli != nil {
			errs = append(errs, m.cli.Close())
			m.cli = nil
		}
		m.mu.Unlock()
	}
	return errors.Join(errs...)
}

func (m *member) open() (*clientv3.Client, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cli != nil {
		return m.cli, nil
	}
	conf, err := m.tls()
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(m.Addr)
	if err != nil {
		return nil, err
	}
	if m.ServerName != "" {
		host = m.ServerName
	}
	m.cli, err = clientv3.New(clientv3.Config{
		// The library checks the certificate for the endpoint's host, whatever
		// TLS says; where it is reached is dial's business.
		Endpoints: []string{"https://" + net.JoinHostPort(host, port)},
		TLS:       conf,
		Logger:    zap.NewNop(),
		// A tunnel that hangs must not look like a slow member for minutes.
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		// The next member is asked instead of trying this one a hundred times.
		MaxUnaryRetries: 3,
		DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(m.dial),
			grpc.WithChainUnaryInterceptor(impatient),
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
				MinConnectTimeout: dialTimeout,
			}),
		},
	})
	return m.cli, err
}

// impatient makes a call fail when there is no connection. The library's calls
// wait for one until their deadline, as it has other members to connect to.
func impatient(ctx context.Context, method string, q, r any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, q, r, cc, append(opts, grpc.WaitForReady(false))...)
}

func (m *member) tls() (*tls.Config, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(m.cert.CA) {
		return nil, errors.New("the given etcd CA is no certificate")
	}
	cert, err := tls.X509KeyPair(m.cert.Cert, m.cert.Key)
	if err != nil {
		return nil, fmt.Errorf("reading the etcd client certificate: %w", err)
	}
	return &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}

// dial connects to the member, through its host if it has one.
func (m *member) dial(ctx context.Context, _ string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if m.Via != nil {
		return m.Via.Dial(ctx, m.Addr)
	}
	return new(net.Dialer).DialContext(ctx, "tcp", m.Addr)
}

// on does something at one member within its deadline.
func on(ctx context.Context, m *member, timeout time.Duration, f func(context.Context, *clientv3.Client) error) error {
	cli, err := m.open()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return f(ctx, cli)
}

// anywhere does something at the first member that answers. What a member
// refuses is an answer; no quorum and no leader are not, since the asked one
// may be the one cut off.
func (c *Client) anywhere(ctx context.Context, op string, f func(context.Context, *clientv3.Client) error) error {
	var errs error
	for _, m := range c.members {
		err := on(ctx, m, callTimeout, f)
		if err == nil || !passes(err) {
			return wrap(op, err)
		}
		errs = errors.Join(errs, fmt.Errorf("%s: %w", m.Host, err))
		if ctx.Err() != nil {
			break
		}
	}
	return wrap(op, errs)
}

// at does something at a named member.
func (c *Client) at(ctx context.Context, host, op string, timeout time.Duration, f func(context.Context, *clientv3.Client) error) error {
	for _, m := range c.members {
		if m.Host == host {
			return wrap(op, on(ctx, m, timeout, f))
		}
	}
	return wrap(op, &remote.WorldError{World: "etcd", Op: op, Err: fmt.Errorf("bug: no etcd endpoint on %q", host)})
}

// passes reports whether an error may pass by itself or at another member.
func passes(err error) bool {
	if e, ok := errors.AsType[rpctypes.EtcdError](err); ok {
		return e.Code() == codes.Unavailable || e.Code() == codes.DeadlineExceeded
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Aborted, codes.ResourceExhausted:
		return true
	default:
		return false
	}
}

func wrap(op string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*remote.WorldError](err); ok {
		return err
	}
	return &remote.WorldError{World: "etcd", Op: op, Again: again(err), Err: err}
}

// again reports whether trying again can help: with joined errors of several
// members, if it can at one.
func again(err error) bool {
	var all interface{ Unwrap() []error }
	if errors.As(err, &all) {
		return slices.ContainsFunc(all.Unwrap(), again)
	}
	return passes(err) || errors.Is(err, rpctypes.ErrMemberNotEnoughStarted) || errors.Is(err, rpctypes.ErrMemberLearnerNotReady) ||
		errors.Is(err, rpctypes.ErrUnhealthy)
}

// maintenance speaks to the member of cli itself, over the connection there is;
// the library's own calls by endpoint make a new one each time.
func maintenance(cli *clientv3.Client) pb.MaintenanceClient {
	return pb.NewMaintenanceClient(cli.ActiveConnection())
}
