package lb

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// bench is a balancer on the loopback address and what it says.
type bench struct {
	*balancer
	ctx   context.Context
	mu    sync.Mutex
	lines []string
	ring  chan struct{}
}

func newBench(t *testing.T) *bench {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b := &bench{ctx: ctx, ring: make(chan struct{}, 100)}
	b.balancer = &balancer{services: map[int]*service{}, log: func(l string) {
		b.mu.Lock()
		b.lines = append(b.lines, l)
		b.mu.Unlock()
		b.ring <- struct{}{}
	}}
	t.Cleanup(func() {
		cancel()
		_ = b.apply(ctx, Config{})
	})
	return b
}

// until waits until the balancer has said that key is status, n times.
func (b *bench) until(t *testing.T, key, status string, n int) {
	t.Helper()
	timeout := time.After(10 * time.Second)
	for {
		b.mu.Lock()
		seen := strings.Count(strings.Join(b.lines, "\n"), key+" is "+status)
		b.mu.Unlock()
		if seen >= n {
			return
		}
		select {
		case <-b.ring:
		case <-timeout:
			t.Fatalf("%s never became %s: %v", key, status, b.lines)
		}
	}
}

// target is an HTTP server on an address of its own in 127/8.
func target(t *testing.T, addr string, port int, h http.Handler) (*httptest.Server, int) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(addr, strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: h, ReadHeaderTimeout: time.Second}}
	srv.Start()
	t.Cleanup(srv.Close)
	return srv, l.Addr().(*net.TCPAddr).Port
}

func says(s string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, s) })
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func get(t *testing.T, port int) string {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := c.Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
	if err != nil {
		return "error"
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return string(b)
}

func TestBalance(t *testing.T) {
	b := newBench(t)
	_, dest := target(t, "127.0.1.1", 0, says("a"))
	two, _ := target(t, "127.0.1.2", dest, says("b"))
	check := Check{Protocol: "http", Port: dest, Path: "/", Interval: 5 * time.Millisecond, Timeout: time.Second, Retries: 2}
	port := freePort(t)
	c := Config{
		Algorithm: "round_robin", Listen: []string{"127.0.0.1"},
		Services: []Service{{Listen: port, Dest: dest, Check: check}},
		Targets:  []Target{{"one", netip.MustParseAddr("127.0.1.1")}, {"two", netip.MustParseAddr("127.0.1.2")}},
	}
	if err := b.apply(b.ctx, c); err != nil {
		t.Fatal(err)
	}
	b.until(t, "one", "healthy", 1)
	b.until(t, "two", "healthy", 1)
	var got string
	for range 4 {
		got += get(t, port)
	}
	if got != "abab" && got != "baba" {
		t.Errorf("round robin: %s", got)
	}

	// A connection to a target that is found unhealthy is cut, and new ones pass it over.
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	other, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	two.Config.SetKeepAlivesEnabled(false)
	two.Listener.Close()
	b.until(t, "two", "unhealthy", 1)
	for range 3 {
		if got := get(t, port); got != "a" {
			t.Errorf("with one target left: %s", got)
		}
	}
	cut := make(chan error, 2)
	for _, c := range []net.Conn{conn, other} {
		go func() {
			_, err := c.Read(make([]byte, 1))
			cut <- err
		}()
	}
	select {
	case err := <-cut:
		if err == nil {
			t.Error("a connection to nowhere has data")
		}
	case <-time.After(10 * time.Second):
		t.Error("the connection to the dead target was not cut")
	}

	// A removed target is gone at once.
	c.Targets = c.Targets[1:]
	if err := b.apply(b.ctx, c); err != nil {
		t.Fatal(err)
	}
	if got := get(t, port); got != "error" {
		t.Errorf("with no healthy target: %s", got)
	}
	if r := b.report(); len(r) != 1 || r[0].Status != "unhealthy" || r[0].Detail != "layer4_no_connection" {
		t.Errorf("report: %+v", r)
	}
}

// A target that is dead before its check has seen it costs a moment, no connection.
func TestPassOver(t *testing.T) {
	b := newBench(t)
	dead, dest := target(t, "127.0.2.1", 0, says("a"))
	target(t, "127.0.2.2", dest, says("b"))
	port := freePort(t)
	c := Config{
		Algorithm: "round_robin", Listen: []string{"127.0.0.1"},
		Services: []Service{{Listen: port, Dest: dest, Check: Check{Protocol: "tcp", Port: dest, Interval: time.Hour, Timeout: time.Second, Retries: 3}}},
		Targets:  []Target{{"one", netip.MustParseAddr("127.0.2.1")}, {"two", netip.MustParseAddr("127.0.2.2")}},
	}
	if err := b.apply(b.ctx, c); err != nil {
		t.Fatal(err)
	}
	b.until(t, "one", "healthy", 1)
	b.until(t, "two", "healthy", 1)
	dead.Close()
	for range 4 {
		if got := get(t, port); got != "b" {
			t.Errorf("got %s", got)
		}
	}
}

func TestChecks(t *testing.T) {
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			fmt.Fprint(w, "ok")
			return
		}
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer srv.Close()
	addr := srv.Listener.Addr().(*net.TCPAddr)
	ip, _ := netip.AddrFromSlice(addr.IP.To4())
	base := Check{Protocol: "http", Port: addr.Port, TLS: true, Path: "/readyz", Timeout: 5 * time.Second}
	for name, c := range map[string]struct {
		change func(*Check)
		want   result
	}{
		"ready":          {func(*Check) {}, result{ok: true, code: 200}},
		"wrong status":   {func(c *Check) { c.Path = "/" }, result{detail: "unexpected_http_status", code: 403}},
		"wanted status":  {func(c *Check) { c.Path, c.StatusCodes = "/", []string{"2??", "403"} }, result{ok: true, code: 403}},
		"wrong content":  {func(c *Check) { c.Response = "yes" }, result{detail: "unexpected_http_content", code: 200}},
		"wanted content": {func(c *Check) { c.Response = "ok" }, result{ok: true, code: 200}},
		"tcp":            {func(c *Check) { c.Protocol = "tcp" }, result{ok: true}},
		"no listener":    {func(c *Check) { c.Port = 1 }, result{detail: "layer4_no_connection"}},
		"no TLS":         {func(c *Check) { c.TLS = false }, result{detail: "unexpected_http_status", code: 400}},
	} {
		k := base
		c.change(&k)
		if got := probe(t.Context(), k, ip); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
