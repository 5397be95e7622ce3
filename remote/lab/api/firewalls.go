package api

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"hk/remote/lab/state"
)

// maxRules of a firewall, as on the real cloud.
const maxRules = 50

func firewallKind() kind[state.Firewall] {
	return kind[state.Firewall]{
		path: "firewalls", one: "firewall", many: "firewalls", title: "firewall",
		table:     func(t *state.Tables) *state.Table[state.Firewall] { return t.Firewalls },
		meta:      func(r *state.Firewall) *state.Meta { return &r.Meta },
		view:      func(v *view, r *state.Firewall) any { return v.firewall(r) },
		checkName: checkAnyName, sorts: []string{"id", "name", "created"},
	}
}

func (s *Server) routesFirewalls() {
	s.handle("POST /firewalls", s.createFirewall)
	s.handle("DELETE /firewalls/{id}", s.deleteFirewall)
	s.handle("POST /firewalls/{id}/actions/set_rules", s.setRules)
	s.handle("POST /firewalls/{id}/actions/apply_to_resources", s.applyFirewall)
	s.handle("POST /firewalls/{id}/actions/remove_from_resources", s.removeFirewall)
}

// checkRules judges rules and brings them to their stored form.
func checkRules(in []schema.FirewallRuleRequest) ([]state.Rule, error) {
	if len(in) > maxRules {
		return nil, invalid("rules", "must have at most %d rules", maxRules)
	}
	var out []state.Rule
	for i, r := range in {
		field := func(f string) string { return "rules." + strconv.Itoa(i) + "." + f }
		rule := state.Rule{Direction: r.Direction, Protocol: r.Protocol, Port: r.Port, Description: r.Description}
		if err := checkProtocol(field, r); err != nil {
			return nil, err
		}
		var err error
		switch r.Direction {
		case "in":
			rule.Sources, err = checkCIDRs(field("source_ips"), r.SourceIPs)
		case "out":
			rule.Destinations, err = checkCIDRs(field("destination_ips"), r.DestinationIPs)
		default:
			err = invalid(field("direction"), "must be in or out")
		}
		if err != nil {
			return nil, err
		}
		out = append(out, rule)
	}
	return out, nil
}

func checkProtocol(field func(string) string, r schema.FirewallRuleRequest) error {
	switch r.Protocol {
	case "tcp", "udp":
		if r.Port == nil {
			return invalid(field("port"), "is required for protocol %s", r.Protocol)
		}
		if _, _, ok := parsePorts(*r.Port); !ok {
			return invalid(field("port"), "'%s' is no port, port range or 'any'", *r.Port)
		}
	case "icmp", "esp", "gre":
		if r.Port != nil && *r.Port != "" {
			return invalid(field("port"), "is not allowed for protocol %s", r.Protocol)
		}
	default:
		return invalid(field("protocol"), "'%s' is no protocol", r.Protocol)
	}
	return nil
}

func parsePorts(text string) (from, to int, ok bool) {
	if text == "any" {
		return 1, 65535, true
	}
	a, b, isRange := strings.Cut(text, "-")
	if !isRange {
		b = a
	}
	from, err1 := strconv.Atoi(a)
	to, err2 := strconv.Atoi(b)
	return from, to, err1 == nil && err2 == nil && from >= 1 && from <= to && to <= 65535
}

func checkCIDRs(field string, in []string) ([]string, error) {
	if len(in) == 0 || len(in) > 100 {
		return nil, invalid(field, "must have 1 to 100 networks")
	}
	var out []string
	for _, c := range in {
		p, err := netip.ParsePrefix(c)
		if err != nil || p.Masked() != p {
			return nil, invalid(field, "'%s' is not a network in CIDR notation", c)
		}
		out = append(out, p.String())
	}
	return out, nil
}

// checkResources judges what a firewall is to be applied to.
func checkResources(t *state.Tables, project string, in []schema.FirewallResource) (servers []int64, selectors []string, err error) {
	for _, r := range in {
		switch {
		case r.Type == "server" && r.Server != nil:
			srv, gerr := getRow(t, serverKind(), project, r.Server.ID)
			if gerr != nil {
				return nil, nil, fail("firewall_resource_not_found", "server with ID '%d' not found", r.Server.ID)
			}
			if srv.Slot == 0 {
				return nil, nil, fail("private_net_only_server", "the server has no public interface")
			}
			servers = append(servers, srv.ID)
		case r.Type == "label_selector" && r.LabelSelector != nil:
			if _, err := parseSelector(r.LabelSelector.Selector); err != nil || r.LabelSelector.Selector == "" {
				return nil, nil, invalid("label_selector", "'%s' is no label selector", r.LabelSelector.Selector)
			}
			selectors = append(selectors, r.LabelSelector.Selector)
		default:
			return nil, nil, invalid("type", "must be server or label_selector, with its field")
		}
	}
	return servers, selectors, nil
}

func (s *Server) createFirewall(r *request) (int, any, error) {
	var req schema.FirewallCreateRequest
	if err := r.decode(&req); err != nil {
		return 0, nil, err
	}
	rules, err := checkRules(req.Rules)
	if err != nil {
		return 0, nil, err
	}
	labels, err := givenLabels(req.Labels)
	if err != nil {
		return 0, nil, err
	}
	var actions []*state.Action
	var id int64
	err = s.Store.Update(func(tx *state.Tx) error {
		if err := freeName(tx.Tables, firewallKind(), r.project, req.Name, 0); err != nil {
			return err
		}
		servers, selectors, err := checkResources(tx.Tables, r.project, req.ApplyTo)
		if err != nil {
			return err
		}
		row := &state.Firewall{Meta: s.meta(tx, r, req.Name, labels), Rules: rules, Servers: servers, Selectors: selectors}
		id = row.ID
		state.Put(tx, tx.Firewalls, row.ID, row)
		actions, err = s.beginFirewall(tx, r.project, "apply_firewall", row.ID, appliedTo(tx.Tables, row))
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	return s.firewallAnswer(id, actions, true)
}

// beginFirewall writes one action per server, or one for the firewall alone.
func (s *Server) beginFirewall(tx *state.Tx, project, command string, id int64, servers []int64) ([]*state.Action, error) {
	var out []*state.Action
	for _, srv := range servers {
		a, err := s.begin(tx, project, command, nil, 0, state.Resource{Type: "firewall", ID: id}, state.Resource{Type: "server", ID: srv, Free: true})
		if err != nil {
			return nil, err
		}
		out = append(out, a)
	}
	return out, nil
}

func (s *Server) firewallAnswer(id int64, actions []*state.Action, whole bool) (int, any, error) {
	s.run(actions...)
	body := map[string]any{}
	views := []schema.Action{}
	for _, a := range actions {
		views = append(views, viewAction(a))
	}
	body["actions"] = views
	if whole {
		s.Store.View(func(t *state.Tables) {
			if row, ok := t.Firewalls.Get(id); ok {
				body["firewall"] = s.newView(t).firewall(row)
			}
		})
	}
	return http.StatusCreated, body, nil
}

func (s *Server) setRules(r *request) (int, any, error) {
	id, err := r.id("firewall")
	if err != nil {
		return 0, nil, err
	}
	var req schema.FirewallActionSetRulesRequest
	if err := r.decode(&req); err != nil {
		return 0, nil, err
	}
	rules, err := checkRules(req.Rules)
	if err != nil {
		return 0, nil, err
	}
	var actions []*state.Action
	err = s.Store.Update(func(tx *state.Tx) error {
		f, err := getRow(tx.Tables, firewallKind(), r.project, id)
		if err != nil {
			return err
		}
		if err := state.Edit(tx, tx.Firewalls, id, func(row *state.Firewall) { row.Rules = rules }); err != nil {
			return err
		}
		a, err := s.begin(tx, r.project, "set_firewall_rules", nil, 0, state.Resource{Type: "firewall", ID: id})
		if err != nil {
			return err
		}
		more, err := s.beginFirewall(tx, r.project, "apply_firewall", id, appliedTo(tx.Tables, f))
		actions = append([]*state.Action{a}, more...)
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	return s.firewallAnswer(id, actions, false)
}

func (s *Server) applyFirewall(r *request) (int, any, error) {
	var req schema.FirewallActionApplyToResourcesRequest
	return s.changeFirewall(r, &req, "apply_firewall", func(tx *state.Tx, f *state.Firewall) ([]int64, error) {
		servers, selectors, err := checkResources(tx.Tables, r.project, req.ApplyTo)
		if err != nil {
			return nil, err
		}
		for _, id := range servers {
			if slices.Contains(f.Servers, id) {
				return nil, fail("firewall_already_applied", "firewall was already applied on resource")
			}
			f.Servers = append(f.Servers, id)
		}
		hit := servers
		for _, sel := range selectors {
			if slices.Contains(f.Selectors, sel) {
				return nil, fail("firewall_already_applied", "firewall was already applied on resource")
			}
			f.Selectors = append(f.Selectors, sel)
			hit = append(hit, selectServers(tx.Tables, r.project, sel)...)
		}
		return hit, nil
	})
}

func (s *Server) removeFirewall(r *request) (int, any, error) {
	var req schema.FirewallActionRemoveFromResourcesRequest
	return s.changeFirewall(r, &req, "remove_firewall", func(tx *state.Tx, f *state.Firewall) ([]int64, error) {
		servers, selectors, err := checkResources(tx.Tables, r.project, req.RemoveFrom)
		if err != nil {
			return nil, err
		}
		var hit []int64
		for _, id := range servers {
			// What is removed already is no error since 2025-08-04.
			if i := slices.Index(f.Servers, id); i >= 0 {
				f.Servers = slices.Delete(f.Servers, i, i+1)
				hit = append(hit, id)
			} else if slices.Contains(appliedTo(tx.Tables, f), id) {
				return nil, fail("firewall_managed_by_label_selector", "firewall is applied via a label selector and cannot be removed manually")
			}
		}
		for _, sel := range selectors {
			if i := slices.Index(f.Selectors, sel); i >= 0 {
				f.Selectors = slices.Delete(f.Selectors, i, i+1)
				hit = append(hit, selectServers(tx.Tables, r.project, sel)...)
			}
		}
		return hit, nil
	})
}

func (s *Server) changeFirewall(r *request, req any, command string, change func(*state.Tx, *state.Firewall) ([]int64, error)) (int, any, error) {
	id, err := r.id("firewall")
	if err != nil {
		return 0, nil, err
	}
	if err := r.decode(req); err != nil {
		return 0, nil, err
	}
	var actions []*state.Action
	err = s.Store.Update(func(tx *state.Tx) error {
		if _, err := getRow(tx.Tables, firewallKind(), r.project, id); err != nil {
			return err
		}
		var hit []int64
		var cerr error
		err := state.Edit(tx, tx.Firewalls, id, func(row *state.Firewall) { hit, cerr = change(tx, row) })
		if err := firstErr(cerr, err); err != nil {
			return err
		}
		slices.Sort(hit)
		actions, err = s.beginFirewall(tx, r.project, command, id, slices.Compact(hit))
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	return s.firewallAnswer(id, actions, false)
}

func (s *Server) deleteFirewall(r *request) (int, any, error) {
	id, err := r.id("firewall")
	if err != nil {
		return 0, nil, err
	}
	err = s.Store.Update(func(tx *state.Tx) error {
		f, err := getRow(tx.Tables, firewallKind(), r.project, id)
		if err != nil {
			return err
		}
		if len(f.Servers) > 0 || len(f.Selectors) > 0 {
			return fail("resource_in_use", "firewall is still in use")
		}
		state.Delete(tx, tx.Firewalls, id)
		return nil
	})
	return http.StatusNoContent, nil, err
}

// workRules is the worker of every action that changes what firewalls do.
func (s *Server) workRules(ctx context.Context, _ *state.Action) (func(*state.Tx) error, error) {
	return nil, s.syncRules(ctx)
}

// syncRules makes the firewalls act as the state says.
func (s *Server) syncRules(ctx context.Context) error {
	return s.rules.do(func() error {
		var gs []Guard
		s.Store.View(func(t *state.Tables) { gs = s.guards(t) })
		return s.Backend.SyncRules(ctx, gs)
	})
}

// guards works out, per server, what all its firewalls come to.
func (s *Server) guards(t *state.Tables) []Guard {
	by := map[int64]*Guard{}
	var order []int64
	for _, f := range t.Firewalls.All() {
		for _, id := range appliedTo(t, f) {
			srv, ok := t.Servers.Get(id)
			if !ok || srv.Slot == 0 || srv.Status == state.Deleting {
				continue
			}
			g := by[id]
			if g == nil {
				g = &Guard{Server: id, Addr: s.Backend.Address(srv.Slot)}
				by[id] = g
				order = append(order, id)
			}
			for _, r := range f.Rules {
				if r.Direction == "in" {
					g.In = append(g.In, guardRule(r, r.Sources))
				} else {
					g.Out = append(g.Out, guardRule(r, r.Destinations))
				}
			}
		}
	}
	slices.Sort(order)
	out := make([]Guard, 0, len(order))
	for _, id := range order {
		out = append(out, *by[id])
	}
	return out
}

func guardRule(r state.Rule, nets []string) GuardRule {
	g := GuardRule{Protocol: r.Protocol}
	if r.Port != nil && *r.Port != "any" {
		g.Ports = *r.Port
	}
	for _, n := range nets {
		if p, err := netip.ParsePrefix(n); err == nil {
			g.Nets = append(g.Nets, p)
		}
	}
	return g
}
