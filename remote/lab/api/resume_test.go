package api_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"hk/remote/lab/api"
	"hk/remote/lab/state"
)

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// A daemon that ends in the middle of a creation: the next one ends it.
func TestResume(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state.log")
	store, err := state.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	w := worldOn(t, store, newFake())
	old := w.server(t, "old")
	lost := w.server(t, "lost")
	w.fake.hold = make(chan struct{}) // never opened: the work is stuck
	r, _, err := w.Server.Create(t.Context(), hcloud.ServerCreateOpts{
		Name: "half", ServerType: &hcloud.ServerType{Name: "cx23"}, Image: &hcloud.Image{Name: "debian-12"},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.api.Close()
	store.Close()

	f := newFake()
	f.set(old.ID, api.PowerOff)   // switched itself off meanwhile
	f.set(lost.ID, api.PowerLost) // the computer went down under it
	if store, err = state.Open(path); err != nil {
		t.Fatal(err)
	}
	w = worldOn(t, store, f)
	w.wait(t, append(r.NextActions, r.Action)...)
	if s := w.get(t, r.Server.ID); s.Status != hcloud.ServerStatusRunning {
		t.Errorf("the half-made server: %s", s.Status)
	}
	if s := w.get(t, old.ID); s.Status != hcloud.ServerStatusOff {
		t.Errorf("the server that went off: %s", s.Status)
	}
	if s := w.get(t, lost.ID); s.Status != hcloud.ServerStatusRunning || f.did(fmt.Sprintf("start %d", lost.ID)) != 1 {
		t.Errorf("the lost server: %s", s.Status)
	}
}

func (w *world) fault(t *testing.T, f api.Fault) api.Fault {
	t.Helper()
	b, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	resp := w.raw(t, "POST", "/_lab/faults", secret, string(b))
	if resp.StatusCode != http.StatusCreated {
		t.Fatal(resp.Status)
	}
	if err := json.NewDecoder(resp.Body).Decode(&f); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestFaults(t *testing.T) {
	w := newWorld(t)
	w.fault(t, api.Fault{Match: "^GET /v1/servers$", Nth: 2, Code: "unavailable"})
	for i, want := range []hcloud.ErrorCode{"", "unavailable", ""} {
		_, _, err := w.Server.List(t.Context(), hcloud.ServerListOpts{})
		if want == "" && err != nil || want != "" && !hcloud.IsError(err, want) {
			t.Errorf("request %d: %v, want %q", i+1, err, want)
		}
	}
	w.fault(t, api.Fault{Match: "^POST /v1/placement_groups$", Nth: 1, Lost: true})
	_, _, err := w.PlacementGroup.Create(t.Context(), hcloud.PlacementGroupCreateOpts{Name: "g", Type: hcloud.PlacementGroupTypeSpread})
	if err == nil {
		t.Error("the answer was not lost")
	}
	if g, _, err := w.PlacementGroup.GetByName(t.Context(), "g"); err != nil || g == nil {
		t.Errorf("the change was lost with the answer: %v %v", g, err)
	}
	reset := w.fault(t, api.Fault{Match: "^POST ", Every: true, Reset: true})
	for range 2 {
		if _, _, err := w.PlacementGroup.Create(t.Context(), hcloud.PlacementGroupCreateOpts{Name: "h", Type: hcloud.PlacementGroupTypeSpread}); err == nil {
			t.Error("the connection was not reset")
		}
	}
	if g, _, err := w.PlacementGroup.GetByName(t.Context(), "h"); err != nil || g != nil {
		t.Errorf("a reset request did something: %v %v", g, err)
	}
	var list struct{ Faults []api.Fault }
	if err := json.NewDecoder(w.raw(t, "GET", "/_lab/faults", secret, "").Body).Decode(&list); err != nil {
		t.Fatal(err)
	}
	if len(list.Faults) != 3 || list.Faults[0].Seen != 3 || list.Faults[0].Hits != 1 || list.Faults[2].Hits != 2 {
		t.Errorf("faults: %+v", list.Faults)
	}
	w.raw(t, "DELETE", fmt.Sprintf("/_lab/faults/%d", reset.ID), secret, "")
	if _, _, err := w.PlacementGroup.Create(t.Context(), hcloud.PlacementGroupCreateOpts{Name: "h", Type: hcloud.PlacementGroupTypeSpread}); err != nil {
		t.Error(err)
	}
	if resp := w.raw(t, "GET", "/_lab/faults", "wrong", ""); resp.StatusCode != http.StatusUnauthorized {
		t.Error("faults without a token")
	}
}

func TestRequestLog(t *testing.T) {
	store, err := state.Open("")
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	a := api.New(api.Config{Store: store, Backend: newFake(), Requests: &log, Tokens: []api.Token{{ID: "t", Secret: secret, Project: "p"}}})
	defer a.Close()
	for _, token := range []string{secret, "wrong"} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "/v1/servers?name=x", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		a.ServeHTTP(discard{http.Header{}}, req)
	}
	var got []string
	for line := range bytes.SplitSeq(bytes.TrimSpace(log.Bytes()), []byte("\n")) {
		var l struct {
			Method, Path string
			Status       int
			Token        string `json:"token_id"`
		}
		if err := json.Unmarshal(line, &l); err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%s %s %d %s", l.Method, l.Path, l.Status, l.Token))
	}
	if want := "[GET /v1/servers 200 t GET /v1/servers 401 -]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	if bytes.Contains(log.Bytes(), []byte(secret)) {
		t.Error("the log has a token in it")
	}
}

type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}
