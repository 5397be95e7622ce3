package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sync/singleflight"

	"hk/remote/lab/lb"
)

// Packages is the proxy machines get Debian packages through. It knows the package
// sources of this computer and no other place, so that nothing else leaves the lab.
// Packages never change under their name: they are kept in the cache directory and
// fetched once, however many machines ask at a time. Indices are fetched each time.
//
// apt speaks to it as to any HTTP proxy: whole URLs for http sources, CONNECT for
// https ones, whose content nobody in between can keep.
func Packages(ctx context.Context, cacheDir string) (http.Handler, error) {
	m, err := newMaker(Options{CacheDir: cacheDir})
	if err != nil {
		return nil, err
	}
	sources, err := debianSources("/etc/apt")
	if err != nil {
		return nil, err
	}
	proxy, err := aptProxy(ctx)
	if err != nil {
		return nil, err
	}
	return newPackages(filepath.Join(m.dir, "packages"), sources, proxy), nil
}

// aptProxy is the proxy that this computer's apt is told to use, or that of the
// environment.
func aptProxy(ctx context.Context) (func(*http.Request) (*url.URL, error), error) {
	said, err := ownProxy(ctx)
	if err != nil || said == "" {
		return http.ProxyFromEnvironment, err
	}
	u, err := url.Parse(said)
	if err != nil {
		return nil, fmt.Errorf("the proxy of this computer's apt: %w", err)
	}
	return http.ProxyURL(u), nil
}

func newPackages(dir string, sources []source, proxy func(*http.Request) (*url.URL, error)) *packages {
	// A transport alone follows no redirect: apt does that by itself, through us again.
	t := &http.Transport{Proxy: proxy, ResponseHeaderTimeout: time.Minute, IdleConnTimeout: time.Minute}
	p := &packages{
		dir: dir, hosts: map[string]bool{}, transport: t,
		pass: &httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, Transport: t},
	}
	for _, s := range sources {
		u, err := url.Parse(s.uri)
		if err != nil || u.Host == "" {
			continue // file: and copy: sources are of this computer alone
		}
		p.prefixes = append(p.prefixes, strings.TrimSuffix(u.Host+u.Path, "/")+"/")
		if u.Scheme == "https" {
			p.hosts[withPort(u.Host, "443")] = true
		}
	}
	return p
}

type packages struct {
	dir       string
	prefixes  []string        // HOST/PATH/ of the sources
	hosts     map[string]bool // HOST:PORT that may be tunneled to
	transport *http.Transport
	pass      http.Handler // for indices, which change under their names
	flight    singleflight.Group
}

const onlySources = "only the package sources of the lab's computer can be reached from here"

func (p *packages) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Method == http.MethodConnect:
		p.tunnel(w, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		http.Error(w, "packages are read-only", http.StatusMethodNotAllowed)
	case !p.known(r.URL):
		http.Error(w, onlySources, http.StatusForbidden)
	case strings.HasSuffix(r.URL.Path, ".deb"):
		p.kept(w, r)
	default:
		p.pass.ServeHTTP(w, r)
	}
}

func (p *packages) known(u *url.URL) bool {
	if u.Scheme != "http" || strings.Contains(u.Path, "/../") {
		return false
	}
	for _, prefix := range p.prefixes {
		if strings.HasPrefix(u.Host+u.Path, prefix) {
			return true
		}
	}
	return false
}

// kept serves a package from the cache, fetching it before if needed.
func (p *packages) kept(w http.ResponseWriter, r *http.Request) {
	rel := filepath.FromSlash(r.URL.Host + r.URL.Path)
	if !filepath.IsLocal(rel) {
		http.NotFound(w, r)
		return
	}
	path := filepath.Join(p.dir, rel)
	if _, err := os.Stat(path); err != nil {
		// Not ended with the request: others may wait for the same file.
		ctx := context.WithoutCancel(r.Context())
		_, err, _ := p.flight.Do(path, func() (any, error) { return nil, p.fetch(ctx, r.URL, path) })
		var status statusError
		switch {
		case errors.As(err, &status):
			http.Error(w, err.Error(), int(status))
			return
		case err != nil:
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
	}
	if err := serveFile(w, r, path, "application/vnd.debian.binary-package"); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// statusError is what the source answered in place of a package.
type statusError int

func (e statusError) Error() string {
	return fmt.Sprintf("the package source answers %d %s", int(e), http.StatusText(int(e)))
}

// fetchTime is how long one package may take; the largest have some 100 MB.
const fetchTime = 10 * time.Minute

func (p *packages) fetch(ctx context.Context, u *url.URL, path string) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return err
	}
	res, err := p.transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer closeQuietly(res.Body)
	if res.StatusCode != http.StatusOK {
		return statusError(res.StatusCode)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // public packages
		return err
	}
	f, err := renameio.NewPendingFile(path)
	if err != nil {
		return err
	}
	defer func() { _ = f.Cleanup() }()
	// A body that ends early is an error of Copy: its length was announced.
	if _, err := io.Copy(f, res.Body); err != nil {
		return fmt.Errorf("fetching %s: %w", u.Path, err)
	}
	return f.CloseAtomicallyReplace()
}

// tunnel connects to an https source.
func (p *packages) tunnel(w http.ResponseWriter, r *http.Request) {
	source := withPort(r.Host, "443")
	if !p.hosts[source] {
		http.Error(w, onlySources, http.StatusForbidden)
		return
	}
	up, err := (&net.Dialer{Timeout: 30 * time.Second}).DialContext(r.Context(), "tcp", source)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer closeQuietly(up)
	down, early, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer closeQuietly(down)
	if _, err := io.WriteString(down, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	if _, err := io.CopyN(up, early, int64(early.Reader.Buffered())); err != nil {
		return
	}
	lb.Join(down, up)
}

func withPort(host, port string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(host, port)
}
