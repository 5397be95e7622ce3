package api

import (
	"crypto/md5" //nolint:gosec // the API's fingerprints are MD5
	"encoding/base64"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"hk/remote/lab/catalog"
	"hk/remote/lab/state"
)

func sshKeyKind() kind[state.SSHKey] {
	return kind[state.SSHKey]{
		path: "ssh_keys", one: "ssh_key", many: "ssh_keys", title: "SSH key",
		table:     func(t *state.Tables) *state.Table[state.SSHKey] { return t.SSHKeys },
		meta:      func(r *state.SSHKey) *state.Meta { return &r.Meta },
		view:      func(v *view, r *state.SSHKey) any { return v.sshKey(r) },
		checkName: checkAnyName, sorts: []string{"id", "name", "created"},
		extra: func(q map[string][]string, r *state.SSHKey) bool {
			return len(q["fingerprint"]) == 0 || slices.Contains(q["fingerprint"], r.Fingerprint)
		},
	}
}

func (s *Server) createSSHKey(r *request) (int, any, error) {
	var req schema.SSHKeyCreateRequest
	if err := r.decode(&req); err != nil {
		return 0, nil, err
	}
	fp, err := fingerprint(req.PublicKey)
	if err != nil {
		return 0, nil, err
	}
	labels, err := givenLabels(req.Labels)
	if err != nil {
		return 0, nil, err
	}
	var out any
	err = s.Store.Update(func(tx *state.Tx) error {
		if err := freeName(tx.Tables, sshKeyKind(), r.project, req.Name, 0); err != nil {
			return err
		}
		for _, k := range tx.SSHKeys.All() {
			if k.Project == r.project && k.Fingerprint == fp {
				return unique("SSH key", "fingerprint")
			}
		}
		row := &state.SSHKey{Meta: s.meta(tx, r, req.Name, labels), Fingerprint: fp, PublicKey: req.PublicKey}
		state.Put(tx, tx.SSHKeys, row.ID, row)
		out = map[string]any{"ssh_key": s.newView(tx.Tables).sshKey(row)}
		return nil
	})
	return http.StatusCreated, out, err
}

// fingerprint is the MD5 one, which the API identifies keys by.
func fingerprint(key string) (string, error) {
	f := strings.Fields(key)
	if len(f) < 2 {
		return "", invalid("public_key", "SSH public key is not correctly formatted")
	}
	raw, err := base64.StdEncoding.DecodeString(f[1])
	if err != nil || len(raw) < 5 || !strings.Contains(string(raw[:min(len(raw), 64)]), f[0]) {
		return "", invalid("public_key", "SSH public key is not correctly formatted")
	}
	sum := md5.Sum(raw) //nolint:gosec // see the import
	parts := make([]string, len(sum))
	for i, b := range sum {
		parts[i] = fmt.Sprintf("%02x", b)
	}
	return strings.Join(parts, ":"), nil
}

func (s *Server) deleteSSHKey(r *request) (int, any, error) {
	id, err := r.id("SSH key")
	if err != nil {
		return 0, nil, err
	}
	err = s.Store.Update(func(tx *state.Tx) error {
		if _, err := getRow(tx.Tables, sshKeyKind(), r.project, id); err != nil {
			return err
		}
		state.Delete(tx, tx.SSHKeys, id)
		return nil
	})
	return http.StatusNoContent, nil, err
}

// meta makes what every new row has.
func (s *Server) meta(tx *state.Tx, r *request, name string, labels map[string]string) state.Meta {
	return state.Meta{ID: tx.NewID(), Project: r.project, Name: name, Created: now(s), Labels: labels}
}

func givenLabels(l *map[string]string) (map[string]string, error) {
	if l == nil {
		return map[string]string{}, nil
	}
	return *l, checkLabels(*l)
}

// Limits of a placement group and of a project, as on the real cloud.
const (
	maxPerGroup = 10
	maxGroups   = 50
)

func placementGroupKind() kind[state.PlacementGroup] {
	return kind[state.PlacementGroup]{
		path: "placement_groups", one: "placement_group", many: "placement_groups", title: "placement group",
		table:     func(t *state.Tables) *state.Table[state.PlacementGroup] { return t.PlacementGroups },
		meta:      func(r *state.PlacementGroup) *state.Meta { return &r.Meta },
		view:      func(v *view, r *state.PlacementGroup) any { return v.placementGroup(r) },
		checkName: checkAnyName, sorts: []string{"id", "name", "created"},
		extra: func(q map[string][]string, r *state.PlacementGroup) bool {
			return len(q["type"]) == 0 || slices.Contains(q["type"], r.Type)
		},
	}
}

func (s *Server) createPlacementGroup(r *request) (int, any, error) {
	var req schema.PlacementGroupCreateRequest
	if err := r.decode(&req); err != nil {
		return 0, nil, err
	}
	if req.Type != "spread" {
		return 0, nil, invalid("type", "must be spread")
	}
	labels, err := givenLabels(req.Labels)
	if err != nil {
		return 0, nil, err
	}
	var out any
	err = s.Store.Update(func(tx *state.Tx) error {
		if err := freeName(tx.Tables, placementGroupKind(), r.project, req.Name, 0); err != nil {
			return err
		}
		if tx.PlacementGroups.Len() >= maxGroups {
			return fail("resource_limit_exceeded", "placement group limit exceeded")
		}
		row := &state.PlacementGroup{Meta: s.meta(tx, r, req.Name, labels), Type: req.Type}
		state.Put(tx, tx.PlacementGroups, row.ID, row)
		out = map[string]any{"placement_group": s.newView(tx.Tables).placementGroup(row), "action": nil}
		return nil
	})
	return http.StatusCreated, out, err
}

func (s *Server) deletePlacementGroup(r *request) (int, any, error) {
	id, err := r.id("placement group")
	if err != nil {
		return 0, nil, err
	}
	err = s.Store.Update(func(tx *state.Tx) error {
		if _, err := getRow(tx.Tables, placementGroupKind(), r.project, id); err != nil {
			return err
		}
		if groupSize(tx.Tables, id) > 0 {
			return fail("resource_in_use", "placement group is still in use")
		}
		state.Delete(tx, tx.PlacementGroups, id)
		return nil
	})
	return http.StatusNoContent, nil, err
}

func groupSize(t *state.Tables, id int64) int {
	n := 0
	t.Servers.Each(func(r *state.Server) bool {
		if r.PlacementGroup == id {
			n++
		}
		return true
	})
	return n
}

// routesCatalog are the things that are only read.
func (s *Server) routesCatalog() {
	readOnly(s, "locations", "location", catalog.Locations, func(l schema.Location) (int64, string) { return l.ID, l.Name }, nil)
	readOnly(s, "server_types", "server_type", catalog.ServerTypes, func(t schema.ServerType) (int64, string) { return t.ID, t.Name },
		func(q map[string][]string, t schema.ServerType) bool {
			return len(q["architecture"]) == 0 || slices.Contains(q["architecture"], t.Architecture)
		})
	readOnly(s, "load_balancer_types", "load_balancer_type", catalog.LoadBalancerTypes, func(t schema.LoadBalancerType) (int64, string) { return t.ID, t.Name }, nil)
	readOnly(s, "isos", "iso", func() []schema.ISO { return nil }, func(i schema.ISO) (int64, string) { return i.ID, i.Name }, nil)
	readOnly(s, "images", "image", catalog.Images, func(i schema.Image) (int64, string) { return i.ID, catalog.ImageName(i) },
		func(q map[string][]string, i schema.Image) bool {
			sel, err := parseSelector(strings.Join(q["label_selector"], ","))
			return err == nil && sel.matches(i.Labels) &&
				(len(q["type"]) == 0 || slices.Contains(q["type"], i.Type)) &&
				(len(q["status"]) == 0 || slices.Contains(q["status"], i.Status)) &&
				(len(q["bound_to"]) == 0) &&
				(len(q["architecture"]) == 0 || slices.Contains(q["architecture"], i.Architecture))
		})
	s.handle("GET /pricing", func(*request) (int, any, error) {
		return http.StatusOK, schema.PricingGetResponse{Pricing: catalog.Pricing()}, nil
	})
	for _, p := range []string{"/datacenters", "/datacenters/{id}"} {
		s.handle("GET "+p, func(*request) (int, any, error) {
			e := fail("deprecated_api_endpoint", "API functionality was removed")
			e.Details = map[string]string{"announcement": "https://docs.hetzner.cloud/changelog#2026-06-02-datacenters-deprecated"}
			return 0, nil, e
		})
	}
	// What the lab does not have yet: there is none of it, and none can be made.
	for _, p := range []string{"volumes", "floating_ips", "primary_ips", "certificates", "zones"} {
		none := func(r *request) (int, any, error) {
			_, meta, err := paginate(r.URL.Query(), []int{})
			return http.StatusOK, list(p, meta, []int{}, func(int) any { return nil }), err
		}
		missing := func(r *request) (int, any, error) {
			return 0, nil, fail("unsupported_error", "the lab has no %s yet", p)
		}
		s.handle("GET /"+p, none)
		s.handle("POST /"+p, missing)
		s.handle("GET /"+p+"/{id}", func(r *request) (int, any, error) {
			return 0, nil, fail("not_found", "%s with ID '%s' not found", p, r.PathValue("id"))
		})
	}
}

func readOnly[T any](s *Server, path, one string, all func() []T, key func(T) (int64, string), extra func(map[string][]string, T) bool) {
	s.handle("GET /"+path, func(r *request) (int, any, error) {
		q := r.URL.Query()
		if _, err := parseSelector(strings.Join(q["label_selector"], ",")); err != nil {
			return 0, nil, err
		}
		rows := slices.DeleteFunc(slices.Clone(all()), func(x T) bool {
			_, name := key(x)
			return len(q["name"]) > 0 && !slices.Contains(q["name"], name) || extra != nil && !extra(q, x)
		})
		err := sortRows(q, rows, func(x T) sortKeys { id, name := key(x); return sortKeys{id: id, name: name} }, "id", "name", "created")
		if err != nil {
			return 0, nil, err
		}
		page, meta, err := paginate(q, rows)
		return http.StatusOK, list(path, meta, page, func(x T) T { return x }), err
	})
	s.handle("GET /"+path+"/{id}", func(r *request) (int, any, error) {
		id, err := r.id(one)
		if err != nil {
			return 0, nil, err
		}
		for _, x := range all() {
			if have, _ := key(x); have == id {
				return http.StatusOK, map[string]any{one: x}, nil
			}
		}
		return 0, nil, notFound(one, id)
	})
}
