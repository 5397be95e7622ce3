package kube

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// ReadyAt asks an API server's own /readyz; with via "" any one that says ok
// will do.
func (k *Client) ReadyAt(ctx context.Context, via string) error {
	op := "ask /readyz of " + nameOf(via)
	ends, err := k.named(via)
	if err != nil {
		return wrap(op, err)
	}
	var errs error
	for _, e := range ends {
		err := k.at(ctx, e, readTimeout, func(ctx context.Context, e *end) error {
			_, err := e.get(ctx, "/readyz?verbose")
			return err
		})
		if err == nil {
			return nil
		}
		errs = errors.Join(errs, fmt.Errorf("%s: %w", e.Host, err))
	}
	return wrap(op, errs)
}

func nameOf(via string) string {
	if via == "" {
		return "any master"
	}
	return via
}

// ServedCA is SHA-256 (hex) of the root certificate that what the API server at
// via presents is signed with. The server sends its own certificate only, so
// the root is the one of the given CAs that the chain leads to; a server of
// other roots is an error.
func (k *Client) ServedCA(ctx context.Context, via string) (string, error) {
	op := "look at the certificate of " + nameOf(via)
	ends, err := k.named(via)
	if err != nil {
		return "", wrap(op, err)
	}
	var errs error
	for _, e := range ends {
		var sum string
		err := k.at(ctx, e, readTimeout, func(ctx context.Context, e *end) (err error) {
			sum, err = e.servedCA(ctx)
			return err
		})
		if err == nil {
			return sum, nil
		}
		errs = errors.Join(errs, fmt.Errorf("%s: %w", e.Host, err))
	}
	return "", wrap(op, errs)
}

func (e *end) servedCA(ctx context.Context) (string, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(e.cert.CA) {
		return "", errors.New("the given CA is no certificate")
	}
	conn, err := e.dial(ctx, "", "")
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	c := tls.Client(conn, &tls.Config{RootCAs: roots, ServerName: e.ServerName, MinVersion: tls.VersionTLS12})
	if err := c.HandshakeContext(ctx); err != nil {
		return "", err
	}
	chains := c.ConnectionState().VerifiedChains
	if len(chains) == 0 {
		return "", errors.New("bug: a verified connection without a chain")
	}
	root := chains[0][len(chains[0])-1]
	sum := sha256.Sum256(root.Raw)
	return hex.EncodeToString(sum[:]), nil
}

// Version is that of an API server.
func (k *Client) Version(ctx context.Context) (string, error) {
	var v struct {
		GitVersion string `json:"gitVersion"`
	}
	err := k.try(ctx, "ask the API's version", readTimeout, func(ctx context.Context, e *end) error {
		b, err := e.get(ctx, "/version")
		if err != nil {
			return err
		}
		return json.Unmarshal(b, &v)
	})
	return v.GitVersion, err
}
