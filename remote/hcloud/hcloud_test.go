package hcloud

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"hk/remote"
)

// api is an API in memory: a handler and a list of what was asked. It is the
// client's transport, so that tests run in a synctest bubble, where waiting
// costs nothing.
type api struct {
	mu    sync.Mutex
	asked []string
	serve func(method, path string, q map[string][]string, body []byte) (int, any)
	head  func(h http.Header)
}

func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, err
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	path := strings.TrimPrefix(r.URL.Path, "/v1")
	a.asked = append(a.asked, r.Method+" "+path)
	status, answer := a.serve(r.Method, path, r.URL.Query(), body)
	if status == 0 {
		return nil, io.ErrUnexpectedEOF
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
	if a.head != nil {
		a.head(w.Header())
	}
	w.WriteHeader(status)
	if answer != nil {
		_ = json.NewEncoder(w).Encode(answer)
	}
	res := w.Result()
	res.Request = r
	return res, nil
}

func (a *api) count(prefix string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.asked {
		if strings.HasPrefix(s, prefix) {
			n++
		}
	}
	return n
}

func (a *api) client(t *testing.T) *Client {
	t.Helper()
	c, err := New(Options{Token: "token\n", Version: "test", Transport: a})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func apiError(code string) map[string]any {
	return map[string]any{"error": map[string]any{"code": code, "message": "because"}}
}

func cloudError(t *testing.T, err error) *remote.CloudError {
	t.Helper()
	var ce *remote.CloudError
	if !errors.As(err, &ce) {
		t.Fatalf("not a CloudError: %v", err)
	}
	return ce
}

func page(q map[string][]string, total int) schema.Meta {
	n := 1
	if p := q["page"]; len(p) == 1 {
		n, _ = strconv.Atoi(p[0])
	}
	last := max(1, (total+49)/50)
	return schema.Meta{Pagination: &schema.MetaPagination{Page: n, PerPage: 50, LastPage: last, TotalEntries: total}}
}

func TestInventory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers := 1
		a := &api{serve: func(_, path string, q map[string][]string, _ []byte) (int, any) {
			if got := q["per_page"]; len(got) != 1 || got[0] != "50" {
				t.Errorf("%s asks for pages of %v", path, got)
			}
			switch path {
			case "/servers":
				m := page(q, servers)
				var r schema.ServerListResponse
				for i := range min(50, servers-(m.Pagination.Page-1)*50) {
					id := int64((m.Pagination.Page-1)*50 + i + 1)
					r.Servers = append(r.Servers, schema.Server{
						ID: id, Name: fmt.Sprintf("demo-%d", id), Status: "running", Labels: map[string]string{"hk-uid": "u"},
						PublicNet:  schema.ServerPublicNet{IPv4: schema.ServerPublicNetIPv4{IP: "198.18.0.1"}, Firewalls: []schema.ServerFirewall{{ID: 7}}},
						PrivateNet: []schema.ServerPrivateNet{{Network: 5, IP: "10.99.0.2", MACAddress: "86:00:00:00:00:01"}},
						ServerType: schema.ServerType{Name: "cx23"}, Location: schema.Location{Name: "fsn1"},
					})
				}
				return 200, struct {
					schema.ServerListResponse
					Meta schema.Meta `json:"meta"`
				}{r, m}
			case "/firewalls":
				port, note := "22", "ssh"
				return 200, map[string]any{"meta": page(q, 1), "firewalls": []schema.Firewall{{
					ID: 7, Name: "demo", Rules: []schema.FirewallRule{{Direction: "in", Protocol: "tcp", Port: &port, SourceIPs: []string{"0.0.0.0/0"}, Description: &note}},
					AppliedTo: []schema.FirewallResource{{Type: "server", Server: &schema.FirewallResourceServer{ID: 1}}},
				}}}
			}
			return 200, map[string]any{"meta": page(q, 0), strings.TrimPrefix(path, "/"): []any{}}
		}}
		c := a.client(t)
		inv, err := c.Inventory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"GET /firewalls", "GET /load_balancers", "GET /networks", "GET /placement_groups", "GET /servers", "GET /ssh_keys"}
		slices.Sort(a.asked)
		if d := cmp.Diff(want, a.asked); d != "" {
			t.Errorf("a look at everything is six calls: %s", d)
		}
		if n := c.Usage().Calls; n != 6 {
			t.Errorf("usage says %d calls", n)
		}
		wantServer := remote.Server{
			ID: 1, Name: "demo-1", Status: "running", Type: "cx23", Location: "fsn1", Labels: map[string]string{"hk-uid": "u"}, IPv4: "198.18.0.1",
			Private: map[int64]string{5: "10.99.0.2"}, MACs: map[int64]string{5: "86:00:00:00:00:01"}, Firewalls: []int64{7},
		}
		if d := cmp.Diff([]remote.Server{wantServer}, inv.Servers); d != "" {
			t.Error(d)
		}
		wantRules := []remote.Rule{{Protocol: "tcp", Port: "22", Sources: []string{"0.0.0.0/0"}, Note: "ssh"}}
		if d := cmp.Diff(wantRules, inv.Firewalls[0].Rules); d != "" || !slices.Equal(inv.Firewalls[0].Servers, []int64{1}) {
			t.Errorf("%s %v", d, inv.Firewalls[0].Servers)
		}
		if d := time.Since(inv.Time); d < 0 || d > time.Second {
			t.Errorf("time of the look: %v", inv.Time)
		}

		servers, a.asked = 120, nil
		if inv, err = c.Inventory(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(inv.Servers) != 120 || inv.Servers[119].ID != 120 || len(a.asked) != 8 {
			t.Errorf("%d servers with %d calls; three pages and five kinds are 8", len(inv.Servers), len(a.asked))
		}
	})
}

// creations is an API whose servers take a while to be made.
type creations struct {
	api
	took    time.Duration
	actions map[int64]time.Time // when they end
	biggest int                 // most IDs in one request
	outcome string              // error code all actions end with
	forgets bool
}

func newCreations(took time.Duration) *creations {
	c := &creations{took: took, actions: map[int64]time.Time{}}
	next := int64(0)
	c.serve = func(method, path string, q map[string][]string, _ []byte) (int, any) {
		switch {
		case method == http.MethodPost && path == "/servers":
			var ids [2]int64
			for i := range ids {
				next++
				ids[i] = next
				c.actions[next] = time.Now().Add(c.took)
			}
			return 201, schema.ServerCreateResponse{
				Server: schema.Server{ID: next, Name: "x"}, Action: c.action(ids[0]), NextActions: []schema.Action{c.action(ids[1])},
			}
		case path == "/actions":
			c.biggest = max(c.biggest, len(q["id"]))
			var r schema.ActionListResponse
			for _, s := range q["id"] {
				id, _ := strconv.ParseInt(s, 10, 64)
				if !c.forgets {
					r.Actions = append(r.Actions, c.action(id))
				}
			}
			return 200, r
		}
		return 404, apiError("not_found")
	}
	return c
}

func (c *creations) action(id int64) schema.Action {
	a := schema.Action{ID: id, Status: "running", Command: "create_server"}
	if !time.Now().Before(c.actions[id]) {
		a.Status = "success"
		if c.outcome != "" {
			a.Status, a.Error = "error", &schema.ActionError{Code: c.outcome, Message: "no"}
		}
	}
	return a
}

var spec = remote.ServerSpec{Name: "x", Type: "cx23", Image: "debian-12", Location: "fsn1", SSHKeys: []int64{1}}

// However many servers are made at once, their actions are asked about
// together, 25 in a request.
func TestActionsAreWaitedForTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCreations(10 * time.Second)
		c := a.client(t)
		began := time.Now()
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() {
				if _, err := c.CreateServer(t.Context(), spec); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if d := time.Since(began); d > 12*time.Second {
			t.Errorf("took %v for actions of 10 s", d)
		}
		if a.biggest > 25 {
			t.Errorf("%d IDs in one request", a.biggest)
		}
		// About fourteen rounds of 80 IDs in four requests; each action on its own
		// at half a second would be 1,600.
		if n := a.count("GET /actions"); n > 60 {
			t.Errorf("%d requests about 80 actions", n)
		}
	})
}

func TestQuickActions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCreations(30 * time.Millisecond)
		began := time.Now()
		if _, err := a.client(t).CreateServer(t.Context(), spec); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > 150*time.Millisecond || a.count("GET /actions") != 1 {
			t.Errorf("%v and %d requests for an action of 30 ms", d, a.count("GET /actions"))
		}
	})
}

func TestActionFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCreations(time.Second)
		a.outcome = "resource_unavailable"
		s, err := a.client(t).CreateServer(t.Context(), spec)
		ce := cloudError(t, err)
		if ce.Code != "resource_unavailable" || ce.Again || ce.Op != "create server x" {
			t.Errorf("%+v", ce)
		}
		if s == nil || s.ID == 0 {
			t.Error("the server that came into being is not told")
		}
	})
}

func TestActionForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCreations(time.Hour)
		a.forgets = true
		_, err := a.client(t).CreateServer(t.Context(), spec)
		if ce := cloudError(t, err); ce.Code != "action_lost" || !ce.Again {
			t.Errorf("%+v", ce)
		}
	})
}

// Who stops waiting leaves no poller behind; the bubble fails if one stays.
func TestWaitCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newCreations(time.Hour)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := a.client(t).CreateServer(ctx, spec); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

func TestSettling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		free := time.Now().Add(90 * time.Second)
		a := &api{serve: func(string, string, map[string][]string, []byte) (int, any) {
			if time.Now().Before(free) {
				return 423, apiError("locked")
			}
			return 200, map[string]any{"server": schema.Server{ID: 1}}
		}}
		c := a.client(t)
		if err := c.LabelServer(t.Context(), 1, map[string]string{"a": "b"}); err != nil {
			t.Error(err)
		}
		if n := len(a.asked); n > 20 {
			t.Errorf("%d requests while locked for 90 s", n)
		}
		free = time.Now().Add(time.Hour)
		began := time.Now()
		ce := cloudError(t, c.LabelServer(t.Context(), 1, nil))
		if ce.Code != "locked" || !ce.Again || ce.Status != 423 {
			t.Errorf("%+v", ce)
		}
		if d := time.Since(began); d < 5*time.Minute || d > 6*time.Minute {
			t.Errorf("gave up after %v", d)
		}
	})
}

// What is asked exactly once, and what is said about trying again.
func TestErrors(t *testing.T) {
	for _, x := range []struct {
		code   string
		status int
		again  bool
	}{
		{"resource_unavailable", 412, false},
		{"uniqueness_error", 409, false},
		{"placement_error", 412, false},
		{"resource_limit_exceeded", 403, false},
		{"invalid_input", 422, false},
		{"networks_overlap", 422, false},
		{"protected", 403, false},
		{"forbidden", 403, false},
		{"unauthorized", 401, false},
		{"token_readonly", 403, false},
		{"deprecated_api_endpoint", 410, false},
		{"server_not_stopped", 409, false},
		{"maintenance", 503, true},
		{"unavailable", 503, true},
		{"server_error", 500, true},
		{"service_error", 500, true},
		{"timeout", 504, true},
		{"bad_gateway", 502, true},
		{"", 500, true},
		{"", 403, false},
		{"never heard of", 500, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := &api{serve: func(string, string, map[string][]string, []byte) (int, any) {
				if x.code == "" {
					return x.status, nil
				}
				return x.status, apiError(x.code)
			}}
			_, err := a.client(t).CreateServer(t.Context(), spec)
			ce := cloudError(t, err)
			if ce.Code != x.code || ce.Status != x.status || ce.Again != x.again {
				t.Errorf("%s: %+v", x.code, ce)
			}
			if len(a.asked) != 1 {
				t.Errorf("%s: %d requests", x.code, len(a.asked))
			}
		})
	}
}

func TestInvalidInputNamesFields(t *testing.T) {
	a := &api{serve: func(string, string, map[string][]string, []byte) (int, any) {
		return 422, map[string]any{"error": map[string]any{"code": "invalid_input", "message": "invalid input", "details": map[string]any{
			"fields": []any{map[string]any{"name": "server_type", "messages": []string{"not in this location"}}},
		}}}
	}}
	_, err := a.client(t).CreateServer(t.Context(), spec)
	if want := "create server x: invalid input: server_type: not in this location (invalid_input)"; err.Error() != want {
		t.Errorf("%v", err)
	}
}

func TestLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lost := 2
		a := &api{serve: func(method, path string, _ map[string][]string, _ []byte) (int, any) {
			if lost--; lost >= 0 {
				return 0, nil
			}
			return 200, map[string]any{"server": schema.Server{ID: 1, Name: "x"}}
		}}
		c := a.client(t)
		if s, err := c.Server(t.Context(), 1); err != nil || s.Name != "x" || len(a.asked) != 3 {
			t.Errorf("a look is repeated: %v, %d requests", err, len(a.asked))
		}
		lost, a.asked = 1, nil
		_, err := c.CreateServer(t.Context(), spec)
		if ce := cloudError(t, err); !ce.Again || ce.Status != 0 || len(a.asked) != 1 {
			t.Errorf("a create is not repeated here: %+v, %d requests", ce, len(a.asked))
		}
	})
}

func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refuse, remaining := 2, 3000
		var bodies [][]byte
		a := &api{
			serve: func(_, _ string, _ map[string][]string, body []byte) (int, any) {
				bodies = append(bodies, body)
				if refuse--; refuse >= 0 {
					return 429, apiError("rate_limit_exceeded")
				}
				return 200, map[string]any{"server": schema.Server{ID: 1}}
			},
			head: func(h http.Header) {
				h.Set("RateLimit-Limit", "3600")
				h.Set("RateLimit-Remaining", strconv.Itoa(remaining))
			},
		}
		c := a.client(t)
		began := time.Now()
		if err := c.LabelServer(t.Context(), 1, map[string]string{"a": "b"}); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(began); d > 5*time.Second || len(bodies) != 3 || !bytes.Equal(bodies[0], bodies[2]) || len(bodies[0]) == 0 {
			t.Errorf("%d requests in %v; bodies %q", len(bodies), d, bodies)
		}
		if u := c.Usage(); u != (remote.Usage{Calls: 3, Limit: 3600, Remaining: 3000}) {
			t.Errorf("%+v", u)
		}
		// Somebody else spent the rest: the next requests come one a second, and
		// none of them is refused.
		remaining = 0
		if err := c.LabelServer(t.Context(), 1, nil); err != nil {
			t.Fatal(err)
		}
		began = time.Now()
		var wg sync.WaitGroup
		for range 10 {
			wg.Go(func() {
				if err := c.LabelServer(t.Context(), 1, nil); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if d := time.Since(began); d < 9*time.Second || d > 11*time.Second {
			t.Errorf("ten requests of a spent budget took %v", d)
		}
	})
}

func TestQuiet(t *testing.T) {
	a := &api{serve: func(_, path string, _ map[string][]string, _ []byte) (int, any) {
		if strings.HasSuffix(path, "attach_to_network") {
			return 409, apiError("server_already_attached")
		}
		return 404, apiError("not_found")
	}}
	c := a.client(t)
	for what, err := range map[string]error{
		"server":    c.DeleteServer(t.Context(), 1),
		"network":   c.DeleteNetwork(t.Context(), 1),
		"firewall":  c.DeleteFirewall(t.Context(), 1),
		"group":     c.DeletePlacementGroup(t.Context(), 1),
		"key":       c.DeleteSSHKey(t.Context(), 1),
		"balancer":  c.DeleteLoadBalancer(t.Context(), 1),
		"attaching": c.AttachNetwork(t.Context(), 1, 2),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"server":   second(c.Server(t.Context(), 1)),
		"balancer": second(c.LoadBalancer(t.Context(), 1)),
		"labels":   c.LabelServer(t.Context(), 1, nil),
	} {
		if !errors.Is(err, remote.ErrNotFound) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }

func TestToken(t *testing.T) {
	for _, bad := range []string{"", "  \n", "abc def", "abc\ndef", "\"abc\"", "abc\x00", "abcä"} {
		_, err := New(Options{Token: bad})
		if ce := cloudError(t, err); ce.Code != "invalid_token" || ce.Again || bad != "" && strings.Contains(err.Error(), "abc") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := New(Options{Token: " abcDEF123-_ \n"}); err != nil {
		t.Error(err)
	}
}

func TestNoServerWithoutKey(t *testing.T) {
	a := &api{serve: func(string, string, map[string][]string, []byte) (int, any) { return 500, nil }}
	s := spec
	s.SSHKeys = nil
	if _, err := a.client(t).CreateServer(t.Context(), s); err == nil || len(a.asked) != 0 {
		t.Errorf("%v, %d requests", err, len(a.asked))
	}
}

func TestApplyFirewall(t *testing.T) {
	var applied [][]int64
	a := &api{serve: func(method, path string, _ map[string][]string, body []byte) (int, any) {
		if method == http.MethodGet {
			return 200, map[string]any{"firewall": schema.Firewall{ID: 1, AppliedTo: []schema.FirewallResource{{Type: "server", Server: &schema.FirewallResourceServer{ID: 1}}}}}
		}
		var r schema.FirewallActionApplyToResourcesRequest
		if err := json.Unmarshal(body, &r); err != nil {
			t.Error(err)
		}
		var ids []int64
		for _, x := range r.ApplyTo {
			ids = append(ids, x.Server.ID)
		}
		applied = append(applied, ids)
		if slices.Contains(ids, 1) {
			return 422, apiError("firewall_already_applied")
		}
		return 201, map[string]any{"actions": []schema.Action{}}
	}}
	if err := a.client(t).ApplyFirewall(t.Context(), 1, []int64{1, 2}); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([][]int64{{1, 2}, {2}}, applied); d != "" {
		t.Error(d)
	}
}

func TestLoadBalancer(t *testing.T) {
	now := schema.LoadBalancer{
		ID: 1, Name: "demo", PrivateNet: []schema.LoadBalancerPrivateNet{{Network: 5}},
		Services: []schema.LoadBalancerService{{Protocol: "tcp", ListenPort: 6443, DestinationPort: 6443, HealthCheck: &schema.LoadBalancerServiceHealthCheck{
			Protocol: "http", Port: 6443, Interval: 3, Timeout: 2, Retries: 2, HTTP: &schema.LoadBalancerServiceHealthCheckHTTP{Path: "/readyz", TLS: true},
		}}},
		Targets: []schema.LoadBalancerTarget{
			{Type: "server", Server: &schema.LoadBalancerTargetServer{ID: 1}, UsePrivateIP: true, HealthStatus: []schema.LoadBalancerTargetHealthStatus{{ListenPort: 6443, Status: "healthy"}}},
			{Type: "server", Server: &schema.LoadBalancerTargetServer{ID: 2}, UsePrivateIP: true},
		},
	}
	a := &api{serve: func(method, path string, _ map[string][]string, body []byte) (int, any) {
		if method == http.MethodGet {
			return 200, map[string]any{"load_balancer": now}
		}
		if strings.Contains(string(body), "https") {
			t.Errorf("https is no protocol of the API: %s", body)
		}
		return 201, map[string]any{"action": schema.Action{ID: 1, Status: "success"}}
	}}
	c := a.client(t)
	lb, err := c.LoadBalancer(t.Context(), 1)
	if err != nil {
		t.Fatal(err)
	}
	api := remote.LBService{Listen: 6443, Dest: 6443, Check: "https", CheckPath: "/readyz", CheckInterval: 3 * time.Second, CheckTimeout: 2 * time.Second, CheckRetries: 2}
	if d := cmp.Diff([]remote.LBService{api}, lb.Services); d != "" || lb.Targets[0].Health[6443] != "healthy" {
		t.Errorf("%s %+v", d, lb.Targets)
	}
	a.asked = nil
	want := remote.LoadBalancer{ID: 1, Networks: []int64{5}, Services: []remote.LBService{api}, Targets: []remote.LBTarget{{Server: 1, Private: true}, {Server: 2, Private: true}}}
	if err := c.SetLoadBalancer(t.Context(), want); err != nil || len(a.asked) != 1 {
		t.Errorf("nothing to change: %v, %q", err, a.asked)
	}
	a.asked = nil
	want.Targets[1].Server = 3
	want.Services[0].CheckRetries = 3
	want.Services = append(want.Services, remote.LBService{Listen: 80, Dest: 30080})
	if err := c.SetLoadBalancer(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	p := "POST /load_balancers/1/actions/"
	if d := cmp.Diff([]string{"GET /load_balancers/1", p + "remove_target", p + "add_target", p + "update_service", p + "add_service"}, a.asked); d != "" {
		t.Error(d)
	}
}
