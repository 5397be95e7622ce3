package api

import (
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// rateLimit is requests per hour and project; one comes back each second.
const rateLimit = 3600

// limiter is a bucket of requests per project.
type limiter struct {
	now     func() time.Time
	mu      sync.Mutex
	buckets map[string]*bucket
}

type bucket struct {
	left float64
	at   time.Time
}

// take takes one request out of a bucket, writes the headers, and reports whether
// there was one.
func (l *limiter) take(name string, h http.Header) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if l.buckets == nil {
		l.buckets = map[string]*bucket{}
	}
	b, ok := l.buckets[name]
	if !ok {
		b = &bucket{left: rateLimit, at: now}
		l.buckets[name] = b
	}
	// A clock that was set back gives nothing, and takes nothing.
	b.left = min(rateLimit, b.left+max(0, now.Sub(b.at).Seconds()))
	b.at = now
	allowed := b.left >= 1
	if allowed {
		b.left--
	}
	full := now.Add(time.Duration((rateLimit - b.left) * float64(time.Second)))
	h.Set("RateLimit-Limit", strconv.Itoa(rateLimit))
	h.Set("RateLimit-Remaining", strconv.Itoa(int(math.Floor(b.left))))
	h.Set("RateLimit-Reset", strconv.FormatInt(full.Unix(), 10))
	return allowed
}
