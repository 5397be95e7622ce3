package api_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
	"golang.org/x/crypto/ssh"

	"hk/remote/lab/api"
	"hk/remote/lab/state"
)

// fake is a backend without a world: it notes what it was told.
type fake struct {
	mu       sync.Mutex
	power    map[int64]api.Power
	guards   []api.Guard
	balancer map[int64]api.Balancer
	names    map[string]netip.Addr
	calls    []string
	hold     chan struct{} // if set, Build waits for it
}

func newFake() *fake {
	return &fake{power: map[int64]api.Power{}, balancer: map[int64]api.Balancer{}}
}

func (f *fake) note(format string, a ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf(format, a...))
}

func (f *fake) did(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := 0
	for _, c := range f.calls {
		if c == call {
			n++
		}
	}
	return n
}

func (f *fake) set(id int64, p api.Power) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.power[id] = p
}

func (f *fake) Build(ctx context.Context, m api.Machine) error {
	f.note("build %d", m.ID)
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (f *fake) Start(_ context.Context, m api.Machine) error {
	f.note("start %d", m.ID)
	f.set(m.ID, api.PowerOn)
	return nil
}

func (f *fake) Cut(_ context.Context, id int64) error {
	f.note("cut %d", id)
	f.set(id, api.PowerOff)
	return nil
}
func (f *fake) Shutdown(id int64) error { f.note("shutdown %d", id); return nil }
func (f *fake) Reboot(id int64) error   { f.note("reboot %d", id); return nil }
func (f *fake) Wipe(_ context.Context, id int64) error {
	f.note("wipe %d", id)
	return nil
}

func (f *fake) Remove(_ context.Context, id int64) error {
	f.note("remove %d", id)
	f.set(id, api.PowerOff)
	return nil
}

func (f *fake) Power(id int64) api.Power {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.power[id]
}

func (f *fake) SyncNetwork(_ context.Context, n api.Network) error {
	f.note("network %d", n.ID)
	return nil
}
func (f *fake) RemoveNetwork(context.Context, int64) error { return nil }
func (f *fake) Join(_ context.Context, s int64, n api.NIC) error {
	f.note("join %d %s", s, n.Addr)
	return nil
}

func (f *fake) Leave(_ context.Context, s, n int64) error { f.note("leave %d %d", s, n); return nil }

func (f *fake) SyncRules(_ context.Context, g []api.Guard) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.guards = g
	return nil
}

func (f *fake) guardOf(id int64) (api.Guard, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	i := slices.IndexFunc(f.guards, func(g api.Guard) bool { return g.Server == id })
	if i < 0 {
		return api.Guard{}, false
	}
	return f.guards[i], true
}

func (f *fake) SyncNames(n map[string]netip.Addr) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.names = n
}

func (f *fake) SyncBalancer(_ context.Context, b api.Balancer) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.balancer[b.ID] = b
	return nil
}
func (f *fake) RemoveBalancer(context.Context, int64) error { return nil }

func (f *fake) Health(_ context.Context, id int64) (map[api.TargetPort]api.Health, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[api.TargetPort]api.Health{}
	for _, t := range f.balancer[id].Targets {
		for _, s := range f.balancer[id].Services {
			out[api.TargetPort{Key: t.Key, Listen: s.Listen}] = api.Health{Status: "healthy"}
		}
	}
	return out, nil
}

func (f *fake) Address(slot int) netip.Addr {
	return netip.AddrFrom4([4]byte{198, 18, byte(slot >> 8), byte(slot)})
}
func (f *fake) Slots() (int, int) { return 10, 500 }
func (f *fake) MAC(network, member int64, n int) string {
	return fmt.Sprintf("02:00:00:%02x:%02x:%02x", byte(network), byte(member), byte(n))
}

// clock is a clock that only moves when it is told to.
type clock struct {
	mu sync.Mutex
	t  time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.t
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.t = c.t.Add(d)
}

// world is a lab's API in front of a fake, and a real client of it.
type world struct {
	*hcloud.Client
	fake  *fake
	api   *api.Server
	store *state.Store
	url   string
	clock *clock
}

const secret = "token-of-the-test"

func newWorld(t *testing.T) *world {
	t.Helper()
	store, err := state.Open("")
	if err != nil {
		t.Fatal(err)
	}
	return worldOn(t, store, newFake())
}

func worldOn(t *testing.T, store *state.Store, f *fake) *world {
	t.Helper()
	c := &clock{t: time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)}
	a := api.New(api.Config{
		Store: store, Backend: f, Now: c.now,
		Tokens: []api.Token{{ID: "t", Secret: secret, Project: "p"}},
	})
	if err := a.Resume(); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(a)
	t.Cleanup(func() {
		srv.Close()
		a.Close()
	})
	return &world{
		fake: f, api: a, store: store, url: srv.URL, clock: c,
		Client: hcloud.NewClient(
			hcloud.WithEndpoint(srv.URL+"/v1"), hcloud.WithToken(secret),
			hcloud.WithPollOpts(hcloud.PollOpts{BackoffFunc: hcloud.ConstantBackoff(time.Millisecond)}),
			hcloud.WithRetryOpts(hcloud.RetryOpts{MaxRetries: 0}),
		),
	}
}

// wait waits for actions and fails the test if one fails.
func (w *world) wait(t *testing.T, actions ...*hcloud.Action) {
	t.Helper()
	var some []*hcloud.Action
	for _, a := range actions {
		if a != nil {
			some = append(some, a)
		}
	}
	if err := w.Action.WaitFor(t.Context(), some...); err != nil {
		t.Fatal(err)
	}
}

// server makes a server and waits for it.
func (w *world) server(t *testing.T, name string, change ...func(*hcloud.ServerCreateOpts)) *hcloud.Server {
	t.Helper()
	o := hcloud.ServerCreateOpts{
		Name: name, ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-12"},
		Location: &hcloud.Location{Name: "fsn1"},
	}
	for _, c := range change {
		c(&o)
	}
	r, _, err := w.Server.Create(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	w.wait(t, append(r.NextActions, r.Action)...)
	return w.get(t, r.Server.ID)
}

func (w *world) get(t *testing.T, id int64) *hcloud.Server {
	t.Helper()
	s, _, err := w.Server.GetByID(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// wantCode checks that err is the API's error with this code.
func wantCode(t *testing.T, err error, code hcloud.ErrorCode) {
	t.Helper()
	if !hcloud.IsError(err, code) {
		t.Fatalf("got %v, want code %s", err, code)
	}
}

// newKey makes a public SSH key from a number.
func newKey(t *testing.T, n byte) string {
	t.Helper()
	seed := make([]byte, ed25519.SeedSize)
	seed[0] = n
	pub, err := ssh.NewPublicKey(ed25519.NewKeyFromSeed(seed).Public())
	if err != nil {
		t.Fatal(err)
	}
	return string(ssh.MarshalAuthorizedKey(pub))
}

// raw sends a request without a client library.
func (w *world) raw(t *testing.T, method, path, token, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, w.url+path, stringReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(b))
	return resp
}

// eventually waits for what happens in the background.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
