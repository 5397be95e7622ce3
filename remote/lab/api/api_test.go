package api_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

func stringReader(s string) io.Reader { return strings.NewReader(s) }

func TestPagination(t *testing.T) {
	w := newWorld(t)
	for i := range 60 {
		_, _, err := w.SSHKey.Create(t.Context(), hcloud.SSHKeyCreateOpts{
			Name: fmt.Sprintf("key-%02d", i), PublicKey: newKey(t, byte(i)), Labels: map[string]string{"odd": fmt.Sprint(i % 2)},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	all, err := w.SSHKey.All(t.Context())
	if err != nil || len(all) != 60 {
		t.Fatalf("all keys: %d, %v", len(all), err)
	}
	odd, _, err := w.SSHKey.List(t.Context(), hcloud.SSHKeyListOpts{
		ListOpts: hcloud.ListOpts{PerPage: 20, Page: 2, LabelSelector: "odd=1"}, Sort: []string{"name:desc"},
	})
	if err != nil || len(odd) != 10 || odd[0].Name != "key-19" {
		t.Fatalf("second page of the odd ones, names descending: %d %v", len(odd), err)
	}
	resp := w.raw(t, "GET", "/v1/ssh_keys?per_page=50&page=2", secret, "")
	var body struct {
		Meta struct{ Pagination map[string]any }
	}
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		t.Fatal(err)
	}
	p := body.Meta.Pagination
	if p["next_page"] != nil || p["previous_page"] != 1.0 || p["last_page"] != 2.0 || p["total_entries"] != 60.0 {
		t.Errorf("meta of the last page: %v", p)
	}
	if l := resp.Header.Get("Link"); !strings.Contains(l, `rel="prev"`) || strings.Contains(l, `rel="next"`) {
		t.Errorf("Link: %s", l)
	}
	for _, bad := range []string{"per_page=51", "per_page=0", "page=-1", "page=x", "sort=size", "sort=name:up", "label_selector=a%3D%3D%3Db"} {
		if resp := w.raw(t, "GET", "/v1/ssh_keys?"+bad, secret, ""); resp.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%s: %s", bad, resp.Status)
		}
	}
	if resp := w.raw(t, "GET", "/v1/ssh_keys?page=9223372036854775807", secret, ""); resp.StatusCode != http.StatusOK {
		t.Errorf("a page far behind the last: %s", resp.Status)
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t)
	key, _, err := w.SSHKey.Create(t.Context(), hcloud.SSHKeyCreateOpts{Name: "a", PublicKey: newKey(t, 1)})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = w.SSHKey.Create(t.Context(), hcloud.SSHKeyCreateOpts{Name: "a", PublicKey: newKey(t, 2)})
	wantCode(t, err, hcloud.ErrorCodeUniquenessError)
	_, _, err = w.SSHKey.Create(t.Context(), hcloud.SSHKeyCreateOpts{Name: "b", PublicKey: newKey(t, 1)})
	wantCode(t, err, hcloud.ErrorCodeUniquenessError)
	_, _, err = w.SSHKey.Create(t.Context(), hcloud.SSHKeyCreateOpts{Name: "b", PublicKey: "ssh-ed25519 nonsense"})
	wantCode(t, err, hcloud.ErrorCodeInvalidInput)
	_, _, err = w.SSHKey.Update(t.Context(), key, hcloud.SSHKeyUpdateOpts{Labels: map[string]string{"-": ""}})
	wantCode(t, err, hcloud.ErrorCodeInvalidInput)
	if _, err := w.SSHKey.Delete(t.Context(), &hcloud.SSHKey{ID: 1}); !hcloud.IsError(err, hcloud.ErrorCodeNotFound) {
		t.Errorf("deleting what is not there: %v", err)
	}

	for name, c := range map[string]struct {
		method, path, token, body string
		status                    int
		code                      string
	}{
		"no token":        {"GET", "/v1/servers", "", "", 401, "unauthorized"},
		"wrong token":     {"GET", "/v1/servers", "x", "", 401, "unauthorized"},
		"no such page":    {"GET", "/v1/nothing", secret, "", 404, "not_found"},
		"no such server":  {"GET", "/v1/servers/1", secret, "", 404, "not_found"},
		"no number":       {"GET", "/v1/servers/x", secret, "", 404, "not_found"},
		"broken JSON":     {"POST", "/v1/servers", secret, "{", 400, "json_error"},
		"wrong type":      {"POST", "/v1/servers", secret, `{"name": 3}`, 422, "invalid_input"},
		"datacenters":     {"GET", "/v1/datacenters", secret, "", 410, "deprecated_api_endpoint"},
		"one datacenter":  {"GET", "/v1/datacenters/1", secret, "", 410, "deprecated_api_endpoint"},
		"actions, no ID":  {"GET", "/v1/actions", secret, "", 410, "deprecated_api_endpoint"},
		"wrong method":    {"PATCH", "/v1/servers", secret, "", 405, "method_not_allowed"},
		"no deletion":     {"DELETE", "/v1/pricing", secret, "", 405, "method_not_allowed"},
		"metrics":         {"GET", "/v1/servers/1/metrics", secret, "", 422, "unsupported_error"},
		"volume":          {"POST", "/v1/volumes", secret, "{}", 422, "unsupported_error"},
		"action of other": {"GET", "/v1/servers/actions/1", secret, "", 404, "not_found"},
	} {
		resp := w.raw(t, c.method, c.path, c.token, c.body)
		var e struct {
			Error struct{ Code, Message string }
		}
		if err := json.NewDecoder(resp.Body).Decode(&e); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if resp.StatusCode != c.status || e.Error.Code != c.code || e.Error.Message == "" {
			t.Errorf("%s: %d %+v, want %d %s", name, resp.StatusCode, e.Error, c.status, c.code)
		}
	}
}

func TestRateLimit(t *testing.T) {
	w := newWorld(t)
	_, resp, err := w.Location.List(t.Context(), hcloud.LocationListOpts{})
	if err != nil {
		t.Fatal(err)
	}
	rl := resp.Meta.Ratelimit
	if rl.Limit != 3600 || rl.Remaining != 3599 || !rl.Reset.Equal(w.clock.now().Add(time.Second)) {
		t.Errorf("after one request: %+v", rl)
	}
	for range 3599 {
		if resp := w.raw(t, "GET", "/v1/isos", secret, ""); resp.StatusCode != http.StatusOK {
			t.Fatal(resp.Status)
		}
	}
	_, _, err = w.Location.List(t.Context(), hcloud.LocationListOpts{})
	wantCode(t, err, hcloud.ErrorCodeRateLimitExceeded)
	// Another's bad token does not cost this project anything.
	if resp := w.raw(t, "GET", "/v1/isos", "bad", ""); resp.StatusCode != http.StatusUnauthorized {
		t.Error(resp.Status)
	}
	w.clock.add(2 * time.Second)
	for range 2 {
		if _, _, err := w.Location.List(t.Context(), hcloud.LocationListOpts{}); err != nil {
			t.Fatal(err)
		}
	}
	_, _, err = w.Location.List(t.Context(), hcloud.LocationListOpts{})
	wantCode(t, err, hcloud.ErrorCodeRateLimitExceeded)
}

func TestCatalog(t *testing.T) {
	w := newWorld(t)
	types, err := w.ServerType.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range types {
		if len(typ.Locations) == 0 || len(typ.Pricings) != len(typ.Locations) {
			t.Errorf("%s: %d locations, %d prices", typ.Name, len(typ.Locations), len(typ.Pricings))
		}
	}
	img, _, err := w.Image.GetForArchitecture(t.Context(), "debian-12", hcloud.ArchitectureX86)
	if err != nil || img == nil || img.Type != hcloud.ImageTypeSystem {
		t.Fatalf("debian-12: %v %v", img, err)
	}
	snaps, err := w.Image.AllWithOpts(t.Context(), hcloud.ImageListOpts{
		ListOpts: hcloud.ListOpts{LabelSelector: "name=hk-snapshot"}, Type: []hcloud.ImageType{hcloud.ImageTypeSnapshot},
	})
	if err != nil || len(snaps) != 1 || snaps[0].Name != "" {
		t.Fatalf("the snapshot by label: %v %v", snaps, err)
	}
	price, _, err := w.Pricing.Get(t.Context())
	if err != nil || price.Currency != "EUR" || len(price.ServerTypes) != len(types) {
		t.Fatalf("pricing: %v", err)
	}
	if lbs, err := w.LoadBalancerType.All(t.Context()); err != nil || len(lbs) != 3 {
		t.Errorf("load balancer types: %d %v", len(lbs), err)
	}
	if isos, err := w.ISO.All(t.Context()); err != nil || len(isos) != 0 {
		t.Errorf("isos: %d %v", len(isos), err)
	}
}
