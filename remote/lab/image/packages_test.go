package image

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// packagesProxy is a proxy before a source of packages that counts its requests.
func packagesProxy(t *testing.T) (source *httptest.Server, proxy *httptest.Server, asked *atomic.Int64) {
	t.Helper()
	asked = &atomic.Int64{}
	source = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := asked.Add(1)
		switch r.URL.Path {
		case "/debian/pool/a.deb":
			fmt.Fprint(w, "package a")
		case "/debian/pool/short.deb":
			w.Header().Set("Content-Length", "100")
			fmt.Fprint(w, "short")
		case "/debian/dists/InRelease":
			fmt.Fprintf(w, "index %d", n)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(source.Close)
	src := newPackages(t.TempDir(), parseOneLine("deb "+source.URL+"/debian bookworm main"), func(*http.Request) (*url.URL, error) { return nil, nil }) //nolint:nilnil // no proxy
	proxy = httptest.NewServer(src)
	t.Cleanup(proxy.Close)
	return source, proxy, asked
}

func through(t *testing.T, proxy, what string) (int, string) {
	t.Helper()
	u, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	c := http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(u), DisableKeepAlives: true}}
	res, err := c.Get(what)
	if err != nil {
		t.Fatal(err)
	}
	defer closeQuietly(res.Body)
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestPackagesKeepsPackagesAndAsksForIndices(t *testing.T) {
	source, proxy, asked := packagesProxy(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if code, body := through(t, proxy.URL, source.URL+"/debian/pool/a.deb"); code != 200 || body != "package a" {
				t.Errorf("%d %q", code, body)
			}
		})
	}
	wg.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("the source was asked %d times for one package, want 1", n)
	}
	for want := int64(2); want < 4; want++ {
		if _, body := through(t, proxy.URL, source.URL+"/debian/dists/InRelease"); body != fmt.Sprintf("index %d", want) {
			t.Errorf("index: %q, want that of request %d", body, want)
		}
	}
}

func TestPackagesKeepsNoFailure(t *testing.T) {
	source, proxy, asked := packagesProxy(t)
	for _, x := range []struct {
		path string
		code int
	}{{"/debian/pool/none.deb", 404}, {"/debian/pool/short.deb", 502}} {
		for range 2 {
			if code, _ := through(t, proxy.URL, source.URL+x.path); code != x.code {
				t.Errorf("%s: %d, want %d", x.path, code, x.code)
			}
		}
	}
	if n := asked.Load(); n != 4 {
		t.Errorf("the source was asked %d times, want 4", n)
	}
}

// An https source is reached through a tunnel: what arrives is the source's own
// certificate and words.
func TestPackagesTunnelsToHTTPSSources(t *testing.T) {
	source := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "index") }))
	t.Cleanup(source.Close)
	proxy := httptest.NewServer(newPackages(t.TempDir(), parseOneLine("deb "+source.URL+"/debian bookworm main"), nil))
	t.Cleanup(proxy.Close)
	u, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := source.Client()
	c.Transport.(*http.Transport).Proxy = http.ProxyURL(u)
	res, err := c.Get(source.URL + "/debian/dists/InRelease")
	if err != nil {
		t.Fatal(err)
	}
	defer closeQuietly(res.Body)
	if b, err := io.ReadAll(res.Body); err != nil || string(b) != "index" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestPackagesReachesNothingElse(t *testing.T) {
	source, proxy, asked := packagesProxy(t)
	for _, path := range []string{"/other/a.deb", "/debian/../secret", "/debianx/a.deb"} {
		u := source.URL + path
		if code := raw(t, proxy.Listener.Addr().String(), "GET "+u+" HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); code != 403 {
			t.Errorf("%s: %d, want 403", path, code)
		}
	}
	addr := strings.TrimPrefix(source.URL, "http://")
	if code := raw(t, proxy.Listener.Addr().String(), "CONNECT "+addr+" HTTP/1.1\r\nHost: "+addr+"\r\n\r\n"); code != 403 {
		t.Errorf("CONNECT: %d, want 403", code)
	}
	if n := asked.Load(); n != 0 {
		t.Errorf("the source was asked %d times", n)
	}
}

// raw sends a request as it is: clients clean paths.
func raw(t *testing.T, addr, request string) int {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer closeQuietly(c)
	if _, err := io.WriteString(c, request); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer closeQuietly(res.Body)
	return res.StatusCode
}
