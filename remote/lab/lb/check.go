package lb

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"
)

// result is what one probe found.
type result struct {
	ok     bool
	detail string
	code   int
}

// probe checks one target once.
func probe(ctx context.Context, c Check, addr netip.Addr) result {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	to := netip.AddrPortFrom(addr, uint16(c.Port)).String()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", to)
	if err != nil {
		if isTimeout(err) {
			return result{detail: "layer4_timeout"}
		}
		return result{detail: "layer4_no_connection"}
	}
	if c.Protocol != "http" {
		_ = conn.Close()
		return result{ok: true}
	}
	return probeHTTP(ctx, c, conn, to)
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &ne) && ne.Timeout()
}

// probeHTTP sends one request over conn.
func probeHTTP(ctx context.Context, c Check, conn net.Conn, host string) result {
	if c.Domain != "" {
		host = c.Domain
	}
	// Like the real one's, the check does not verify the target's certificate.
	tr := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, ServerName: c.Domain}, //nolint:gosec // see above
	}
	defer tr.CloseIdleConnections()
	defer func() { _ = conn.Close() }()
	scheme := "http"
	if c.TLS {
		scheme = "https"
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, scheme+"://"+host+c.Path, nil)
	if err != nil {
		return result{detail: "unspecified"}
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		if isTimeout(err) {
			return result{detail: "layer7_timeout"}
		}
		return result{detail: "unspecified"}
	}
	defer func() { _ = resp.Body.Close() }()
	if !statusOK(c.StatusCodes, resp.StatusCode) {
		return result{detail: "unexpected_http_status", code: resp.StatusCode}
	}
	if c.Response != "" {
		body, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		if err != nil || !bytes.Contains(body, []byte(c.Response)) {
			return result{detail: "unexpected_http_content", code: resp.StatusCode}
		}
	}
	return result{ok: true, code: resp.StatusCode}
}

// statusOK matches patterns such as "2??" or "404".
func statusOK(patterns []string, code int) bool {
	if len(patterns) == 0 {
		patterns = []string{"2??", "3??"}
	}
	text := strconv.Itoa(code)
	for _, p := range patterns {
		ok := len(p) == len(text)
		for i := 0; ok && i < len(p); i++ {
			ok = p[i] == '?' || p[i] == '*' || p[i] == text[i]
		}
		if ok {
			return true
		}
	}
	return false
}

// checker keeps checking one target for one service and tells what it thinks.
type checker struct {
	check Check
	addr  netip.Addr
	tell  func(Health)
	key   string
	port  int // of the service
}

// run checks until ctx ends. A target becomes healthy with its first success and
// unhealthy after as many failures in a row as the check's retries say, or with
// the first failure if it was never healthy.
func (k checker) run(ctx context.Context) {
	status, failures := "unknown", 0
	for {
		r := probe(ctx, k.check, k.addr)
		if ctx.Err() != nil {
			return
		}
		if r.ok {
			status, failures = "healthy", 0
		} else {
			failures++
			if failures >= k.check.Retries || status == "unknown" {
				status = "unhealthy"
			}
		}
		k.tell(Health{Key: k.key, Listen: k.port, Status: status, Detail: r.detail, Code: r.code})
		t := time.NewTimer(k.wait(status))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// wait is the time to the next probe. While a target is being waited for, the lab
// looks each second: the real one's first verdict comes late only because of its
// interval, and nobody learns anything from waiting here.
func (k checker) wait(status string) time.Duration {
	if status != "healthy" {
		return min(time.Second, k.check.Interval)
	}
	return k.check.Interval
}
