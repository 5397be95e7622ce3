package api_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"
)

// Random and hostile requests get an answer of the API's form, never a 5xx.
func TestHostile(t *testing.T) {
	w := newWorld(t)
	srv := w.server(t, "victim")
	rnd := rand.New(rand.NewPCG(1, 2)) // the same each time
	ids := []string{fmt.Sprint(srv.ID), "1", "0", "-1", "99999999999999999999", "x", "%00", "actions"}
	for kind, name := range map[string]string{"networks": "n", "firewalls": "f", "placement_groups": "g", "load_balancers": "l"} {
		body := map[string]any{"name": name, "ip_range": "10.0.0.0/8", "type": "spread", "load_balancer_type": "lb11", "location": "fsn1"}
		b, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		var got map[string]any
		if err := json.NewDecoder(w.raw(t, "POST", "/v1/"+kind, secret, string(b)).Body).Decode(&got); err != nil {
			t.Fatal(err)
		}
		for _, v := range got {
			if m, ok := v.(map[string]any); ok && m["name"] == name {
				ids = append(ids, fmt.Sprintf("%.0f", m["id"]))
			}
		}
	}
	pick := func(list []string) string { return list[rnd.IntN(len(list))] }
	kinds := []string{"servers", "ssh_keys", "networks", "firewalls", "placement_groups", "load_balancers", "images", "volumes", "actions", "pricing", "nothing"}
	verbs := []string{
		"poweron", "poweroff", "rebuild", "change_type", "attach_to_network", "detach_from_network", "change_alias_ips", "change_protection",
		"add_subnet", "delete_subnet", "add_route", "delete_route", "change_ip_range", "set_rules", "apply_to_resources", "remove_from_resources",
		"add_service", "update_service", "delete_service", "add_target", "remove_target", "change_algorithm", "change_dns_ptr", "add_to_placement_group", "x",
	}
	for i := range 3000 {
		path := "/v1/" + pick(kinds)
		switch rnd.IntN(4) {
		case 0:
		case 1:
			path += "/" + pick(ids)
		case 2:
			path += "/" + pick(ids) + "/actions/" + pick(verbs)
		case 3:
			path += "?" + pick([]string{"per_page=50&page=2", "label_selector=((", "sort=id:desc", "name=%ff", "id=1&id=x", "status=off"})
		}
		method := pick([]string{"GET", "POST", "PUT", "DELETE", "PATCH"})
		resp := w.raw(t, method, path, secret, hostileBody(rnd))
		if resp.StatusCode >= http.StatusInternalServerError {
			t.Fatalf("request %d, %s %s: %s", i, method, path, resp.Status)
		}
		if resp.StatusCode >= http.StatusBadRequest {
			var e struct {
				Error struct{ Code, Message string }
			}
			if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || e.Error.Code == "" {
				t.Fatalf("request %d, %s %s: %s without a code (%v)", i, method, path, resp.Status, err)
			}
		}
	}
	if _, err := w.Server.AllWithOpts(t.Context(), hcloud.ServerListOpts{}); err != nil {
		t.Error(err)
	}
}

// hostileBody is JSON with the API's field names and values of all kinds, or none.
func hostileBody(rnd *rand.Rand) string {
	names := []string{
		"name", "type", "server", "network", "ip", "ip_range", "labels", "rules", "targets", "services", "image", "server_type", "location", "public_key",
		"destination", "gateway", "listen_port", "destination_port", "health_check", "protocol", "apply_to", "remove_from", "alias_ips", "subnets", "id",
		"network_zone", "load_balancer_type", "algorithm", "label_selector", "placement_group", "user_data", "ssh_keys", "networks", "firewalls", "dns_ptr",
	}
	values := []any{
		nil, true, -1, 0, 1, 70000, 1e300, "", "x", "a_b", "10.0.0.0/8", "10.0.1.0/24", "0.0.0.0/0", "10.0.0.1", "300.1.1.1/99", "::1", "tcp", "http", "cloud", "server",
		"label_selector", "spread", "cx23", "lb11", "debian-12", "fsn1", "eu-central", "\x00", "k=v,(",
		[]any{},
		[]any{nil, 1, "x"},
		map[string]any{},
	}
	var value func(depth int) any
	value = func(depth int) any {
		switch n := rnd.IntN(10); {
		case n < 2 && depth < 3:
			m := map[string]any{}
			for range rnd.IntN(6) {
				m[names[rnd.IntN(len(names))]] = value(depth + 1)
			}
			return m
		case n < 3 && depth < 3:
			return []any{value(depth + 1), value(depth + 1)}
		}
		return values[rnd.IntN(len(values))]
	}
	switch rnd.IntN(12) {
	case 0:
		return ""
	case 1:
		return "{"
	case 2:
		return "[]"
	}
	m := map[string]any{}
	for range 1 + rnd.IntN(12) {
		m[names[rnd.IntN(len(names))]] = value(0)
	}
	b, err := json.Marshal(m)
	if err != nil {
		return "{}"
	}
	return string(b)
}
