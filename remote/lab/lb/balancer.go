package lb

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync"
	"time"
)

// balancer is a load balancer at work.
type balancer struct {
	mu       sync.Mutex
	services map[int]*service
	log      func(string)
}

// apply brings the balancer to a config.
func (b *balancer) apply(ctx context.Context, c Config) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	want := map[int]bool{}
	for _, conf := range c.Services {
		want[conf.Listen] = true
		s := b.services[conf.Listen]
		if s == nil {
			s = &service{listeners: map[string]net.Listener{}, log: b.log}
			b.services[conf.Listen] = s
		}
		errs = append(errs, s.apply(ctx, c, conf))
	}
	for port, s := range b.services {
		if !want[port] {
			s.close()
			delete(b.services, port)
		}
	}
	return errors.Join(errs...)
}

func (b *balancer) report() []Health {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := []Health{}
	for _, s := range b.services {
		out = append(out, s.report()...)
	}
	return out
}

// Run is the load balancer's process: it balances as the folder's config says
// until ctx ends.
func Run(ctx context.Context, dir string, log func(string)) error {
	c, err := read(dir)
	if err != nil {
		return err
	}
	b := &balancer{services: map[int]*service{}, log: log}
	if err := b.apply(ctx, c); err != nil {
		log(err.Error()) // an address may still be on its way; the next config tries again
	}
	sock := socketPath(dir)
	if err := os.Remove(sock); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", sock) //nolint:noctx // does not wait
	if err != nil {
		return fmt.Errorf("opening control socket: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(b.report())
	})
	mux.HandleFunc("POST /reload", func(w http.ResponseWriter, _ *http.Request) {
		c, err := read(dir)
		if err == nil {
			err = b.apply(ctx, c)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		_ = srv.Close()
	}()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// client talks to the process of a folder.
func client(dir string) *http.Client {
	return &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socketPath(dir))
		},
	}}
}

// Reload tells the process to read its config again; an error means that it does
// not run or could not do as told.
func Reload(ctx context.Context, dir string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://lb/reload", nil)
	if err != nil {
		return err
	}
	resp, err := client(dir).Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("load balancer answers %s", resp.Status)
	}
	return nil
}

// Report asks the process what its checks found.
func Report(ctx context.Context, dir string) ([]Health, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://lb/health", nil)
	if err != nil {
		return nil, err
	}
	resp, err := client(dir).Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	var out []Health
	return out, json.NewDecoder(resp.Body).Decode(&out)
}
