package hcloud

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"hk/remote"
)

// budget is the transport all requests share. A project has 3600 requests an
// hour which come back one a second, whoever spends them, and the answers'
// RateLimit headers say how many are left. The bucket follows those headers: it
// takes its own count down at each request, and further down when others in the
// project were faster. An answer 429 empties the bucket and the request waits
// for its turn again, so a spent budget slows hk down and fails nothing.
type budget struct {
	base http.RoundTripper
	lim  *rate.Limiter

	mu               sync.Mutex
	calls            int64
	limit, remaining int
}

// What holds until the first answer: Hetzner's default.
const (
	defaultLimit = 3600
	hour         = 3600 // seconds
)

func newBudget(base http.RoundTripper) *budget {
	if base == nil {
		base = &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           (&net.Dialer{Timeout: 15 * time.Second}).DialContext,
			ForceAttemptHTTP2:     true,
			MaxIdleConnsPerHost:   16,
			IdleConnTimeout:       30 * time.Second,
			TLSHandshakeTimeout:   15 * time.Second,
			ResponseHeaderTimeout: requestTimeout,
		}
	}
	return &budget{base: base, lim: rate.NewLimiter(rate.Limit(defaultLimit)/hour, defaultLimit)}
}

// RoundTrip sends a request when the budget allows it.
func (b *budget) RoundTrip(req *http.Request) (*http.Response, error) {
	for {
		if err := b.lim.Wait(req.Context()); err != nil {
			return nil, fmt.Errorf("waiting for the API's rate limit: %w", err)
		}
		res, err := b.once(req)
		if err != nil {
			return nil, err
		}
		b.note(res.Header)
		if res.StatusCode != http.StatusTooManyRequests {
			return res, nil
		}
		b.drain()
		if req.Body != nil && req.Body != http.NoBody {
			if req.GetBody == nil {
				return res, nil
			}
			body, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			req = req.Clone(req.Context())
			req.Body = body
		}
	}
}

// once sends and reads the whole answer, so that the deadline covers both and a
// connection lost in the middle of an answer is the request's error.
func (b *budget) once(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), requestTimeout)
	defer cancel()
	b.mu.Lock()
	b.calls++
	b.mu.Unlock()
	res, err := b.base.RoundTrip(req.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }()
	body, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	res.Body = io.NopCloser(bytes.NewReader(body))
	return res, nil
}

// note follows what the API says of the budget.
func (b *budget) note(h http.Header) {
	limit, err := strconv.Atoi(h.Get("RateLimit-Limit"))
	if err != nil || limit <= 0 {
		return
	}
	remaining, err := strconv.Atoi(h.Get("RateLimit-Remaining"))
	if err != nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if limit != b.limit {
		b.lim.SetLimit(rate.Limit(limit) / hour)
		b.lim.SetBurst(limit)
	}
	b.limit, b.remaining = limit, remaining
	// Requests on their way were taken off here already, so our count is the
	// lower one unless somebody else spends too.
	if over := int(b.lim.Tokens()) - remaining; over > 0 {
		b.lim.ReserveN(time.Now(), over)
	}
}

// drain empties the bucket: the next request waits for one to come back.
func (b *budget) drain() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := int(b.lim.Tokens()); n > 0 {
		b.lim.ReserveN(time.Now(), n)
	}
}

func (b *budget) usage() remote.Usage {
	b.mu.Lock()
	defer b.mu.Unlock()
	return remote.Usage{Calls: b.calls, Limit: b.limit, Remaining: b.remaining}
}

// scarce reports whether polling should give way to work.
func (b *budget) scarce() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.limit > 0 && b.remaining*10 < b.limit
}
