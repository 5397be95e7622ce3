package api

import (
	"context"
	"net/http"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"hk/remote/lab/catalog"
	"hk/remote/lab/state"
)

// Limits of a network, as on the real cloud.
const (
	maxSubnets     = 50
	maxRoutes      = 100
	maxAttachments = 100
)

func networkKind() kind[state.Network] {
	return kind[state.Network]{
		path: "networks", one: "network", many: "networks", title: "network",
		table:     func(t *state.Tables) *state.Table[state.Network] { return t.Networks },
		meta:      func(r *state.Network) *state.Meta { return &r.Meta },
		view:      func(v *view, r *state.Network) any { return v.network(r) },
		checkName: checkAnyName, sorts: []string{"id", "name", "created"},
	}
}

func (s *Server) routesNetworks() {
	s.handle("POST /networks", s.createNetwork)
	s.handle("DELETE /networks/{id}", s.deleteNetwork)
	s.handle("POST /networks/{id}/actions/add_subnet", s.addSubnet)
	s.handle("POST /networks/{id}/actions/delete_subnet", s.deleteSubnet)
	s.handle("POST /networks/{id}/actions/add_route", s.addRoute)
	s.handle("POST /networks/{id}/actions/delete_route", s.deleteRoute)
	s.handle("POST /networks/{id}/actions/change_ip_range", s.changeIPRange)
	s.handle("POST /networks/{id}/actions/change_protection", s.protectNetwork)
	s.handle("GET /networks/{id}/members", s.networkMembers)
}

// private are the ranges a network may be in (RFC 1918).
func private(p netip.Prefix) bool {
	for _, r := range []string{"10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"} {
		if q := netip.MustParsePrefix(r); q.Bits() <= p.Bits() && q.Contains(p.Addr()) {
			return true
		}
	}
	return false
}

func parseRange(field, text string) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil || !p.Addr().Is4() || p.Masked() != p {
		return p, invalid(field, "must be an IPv4 network in CIDR notation")
	}
	if !private(p) {
		return p, invalid(field, "must be a private network (RFC 1918)")
	}
	return p, nil
}

func (s *Server) createNetwork(r *request) (int, any, error) {
	var req schema.NetworkCreateRequest
	if err := r.decode(&req); err != nil {
		return 0, nil, err
	}
	ipRange, err := parseRange("ip_range", req.IPRange)
	if err != nil {
		return 0, nil, err
	}
	if ipRange.Bits() > 24 {
		return 0, nil, invalid("ip_range", "must be at least a /24")
	}
	labels, err := givenLabels(req.Labels)
	if err != nil {
		return 0, nil, err
	}
	row := &state.Network{Range: req.IPRange, ExposeToSwitch: req.ExposeRoutesToVSwitch}
	for _, sub := range req.Subnets {
		if err := addSubnetTo(row, sub.Type, sub.IPRange, sub.NetworkZone); err != nil {
			return 0, nil, err
		}
	}
	for _, rt := range req.Routes {
		if err := addRouteTo(row, rt.Destination, rt.Gateway); err != nil {
			return 0, nil, err
		}
	}
	var out any
	err = s.Store.Update(func(tx *state.Tx) error {
		if err := freeName(tx.Tables, networkKind(), r.project, req.Name, 0); err != nil {
			return err
		}
		row.Meta = s.meta(tx, r, req.Name, labels)
		state.Put(tx, tx.Networks, row.ID, row)
		out = map[string]any{"network": s.newView(tx.Tables).network(row)}
		return nil
	})
	if err != nil {
		return 0, nil, err
	}
	// Like the real one's, the call has no action: the network is there when it
	// returns.
	if err := s.syncNetwork(s.ctx, row.ID); err != nil {
		_ = s.Store.Update(func(tx *state.Tx) error { state.Delete(tx, tx.Networks, row.ID); return nil })
		return 0, nil, err
	}
	return http.StatusCreated, out, nil
}

// addSubnetTo judges a subnet and adds it to a network that is not shared yet.
func addSubnetTo(n *state.Network, typ, ipRange, zone string) error {
	if typ != "cloud" && typ != "server" {
		return invalid("type", "only subnets of type cloud are supported by the lab")
	}
	if !slices.Contains(catalog.Zones(), zone) {
		return invalid("network_zone", "'%s' is no network zone", zone)
	}
	if len(n.Subnets) >= maxSubnets {
		return fail("resource_limit_exceeded", "subnet limit exceeded")
	}
	all := netip.MustParsePrefix(n.Range)
	var p netip.Prefix
	if ipRange == "" {
		var ok bool
		if p, ok = freeSubnet(n); !ok {
			return invalid("ip_range", "no free range for a subnet")
		}
	} else {
		var err error
		if p, err = parseRange("ip_range", ipRange); err != nil {
			return err
		}
	}
	if !all.Contains(p.Addr()) || p.Bits() < all.Bits() || p.Bits() > 30 {
		return invalid("ip_range", "subnet must be inside of the network's range and at least a /30")
	}
	for _, have := range n.Subnets {
		if netip.MustParsePrefix(have.IPRange).Overlaps(p) {
			return invalid("ip_range", "subnet overlaps with another subnet")
		}
	}
	if typ == "server" {
		typ = "cloud" // its old name
	}
	n.Subnets = append(n.Subnets, state.Subnet{Type: typ, IPRange: p.String(), Zone: zone})
	return nil
}

// freeSubnet finds the first free /24.
func freeSubnet(n *state.Network) (netip.Prefix, bool) {
	all := netip.MustParsePrefix(n.Range)
	for a := all.Addr(); all.Contains(a); {
		p := netip.PrefixFrom(a, 24)
		if !slices.ContainsFunc(n.Subnets, func(s state.Subnet) bool { return netip.MustParsePrefix(s.IPRange).Overlaps(p) }) {
			return p, true
		}
		b := a.As4()
		if b[2]++; b[2] == 0 {
			if b[1]++; b[1] == 0 {
				return p, false
			}
		}
		a = netip.AddrFrom4(b)
	}
	return netip.Prefix{}, false
}

func addRouteTo(n *state.Network, destination, gateway string) error {
	d, err := netip.ParsePrefix(destination)
	if err != nil || !d.Addr().Is4() || d.Masked() != d {
		return invalid("destination", "must be an IPv4 network in CIDR notation")
	}
	g, err := netip.ParseAddr(gateway)
	if err != nil || !netip.MustParsePrefix(n.Range).Contains(g) || gateway == gatewayOf(n.Range) {
		return invalid("gateway", "must be an address of the network, and not its gateway")
	}
	if d.Contains(netip.MustParseAddr("172.31.1.1")) && d.Bits() > 0 {
		return invalid("destination", "must not contain 172.31.1.1")
	}
	if len(n.Routes) >= maxRoutes {
		return fail("resource_limit_exceeded", "route limit exceeded")
	}
	for _, have := range n.Routes {
		if have.Destination == d.String() {
			return invalid("destination", "there is a route for it already")
		}
	}
	n.Routes = append(n.Routes, state.Route{Destination: d.String(), Gateway: g.String()})
	return nil
}

// changeNetwork runs a change of a network as an action.
func (s *Server) changeNetwork(r *request, command string, req any, change func(*state.Tx, *state.Network) error) (int, any, error) {
	id, err := r.id("network")
	if err != nil {
		return 0, nil, err
	}
	if err := r.decode(req); err != nil {
		return 0, nil, err
	}
	var a *state.Action
	var out any
	err = s.Store.Update(func(tx *state.Tx) error {
		if _, err := getRow(tx.Tables, networkKind(), r.project, id); err != nil {
			return err
		}
		if locked(tx.Tables, "network", id) {
			return errLocked("network")
		}
		var cerr error
		err := state.Edit(tx, tx.Networks, id, func(row *state.Network) { cerr = change(tx, row) })
		if err != nil || cerr != nil {
			return firstErr(cerr, err)
		}
		a, err = s.begin(tx, r.project, command, nil, 0, state.Resource{Type: "network", ID: id})
		out = map[string]any{"action": viewAction(a)}
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	s.run(a)
	return http.StatusCreated, out, nil
}

func firstErr(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Server) addSubnet(r *request) (int, any, error) {
	var req schema.NetworkActionAddSubnetRequest
	return s.changeNetwork(r, "add_subnet", &req, func(_ *state.Tx, n *state.Network) error {
		return addSubnetTo(n, req.Type, req.IPRange, req.NetworkZone)
	})
}

func (s *Server) deleteSubnet(r *request) (int, any, error) {
	var req schema.NetworkActionDeleteSubnetRequest
	return s.changeNetwork(r, "delete_subnet", &req, func(tx *state.Tx, n *state.Network) error {
		i := slices.IndexFunc(n.Subnets, func(s state.Subnet) bool { return s.IPRange == req.IPRange })
		if i < 0 {
			return invalid("ip_range", "there is no such subnet")
		}
		p := netip.MustParsePrefix(req.IPRange)
		for a := range usedAddresses(tx.Tables, n.ID) {
			if p.Contains(a) {
				return fail("resource_in_use", "subnet is still in use")
			}
		}
		n.Subnets = slices.Delete(n.Subnets, i, i+1)
		return nil
	})
}

func (s *Server) addRoute(r *request) (int, any, error) {
	var req schema.NetworkActionAddRouteRequest
	return s.changeNetwork(r, "add_route", &req, func(_ *state.Tx, n *state.Network) error {
		return addRouteTo(n, req.Destination, req.Gateway)
	})
}

func (s *Server) deleteRoute(r *request) (int, any, error) {
	var req schema.NetworkActionDeleteRouteRequest
	return s.changeNetwork(r, "delete_route", &req, func(_ *state.Tx, n *state.Network) error {
		i := slices.IndexFunc(n.Routes, func(x state.Route) bool {
			return x.Destination == req.Destination && x.Gateway == req.Gateway
		})
		if i < 0 {
			return invalid("destination", "there is no such route")
		}
		n.Routes = slices.Delete(n.Routes, i, i+1)
		return nil
	})
}

func (s *Server) changeIPRange(r *request) (int, any, error) {
	var req schema.NetworkActionChangeIPRangeRequest
	return s.changeNetwork(r, "change_ip_range", &req, func(_ *state.Tx, n *state.Network) error {
		p, err := parseRange("ip_range", req.IPRange)
		if err != nil {
			return err
		}
		old := netip.MustParsePrefix(n.Range)
		if p.Bits() > old.Bits() || !p.Contains(old.Addr()) {
			return invalid("ip_range", "the range can only be extended")
		}
		n.Range = p.String()
		return nil
	})
}

func (s *Server) protectNetwork(r *request) (int, any, error) {
	var req schema.NetworkActionChangeProtectionRequest
	return s.changeNetwork(r, "change_protection", &req, func(_ *state.Tx, n *state.Network) error {
		if req.Delete != nil {
			n.ProtectDelete = *req.Delete
		}
		return nil
	})
}

func (s *Server) deleteNetwork(r *request) (int, any, error) {
	id, err := r.id("network")
	if err != nil {
		return 0, nil, err
	}
	err = s.Store.Update(func(tx *state.Tx) error {
		n, err := getRow(tx.Tables, networkKind(), r.project, id)
		if err != nil {
			return err
		}
		switch {
		case n.ProtectDelete:
			return fail("protected", "network deletion is protected")
		case locked(tx.Tables, "network", id):
			return errLocked("network")
		case len(usedAddresses(tx.Tables, id)) > 0:
			return fail("resource_in_use", "network is still in use")
		}
		state.Delete(tx, tx.Networks, id)
		return nil
	})
	if err != nil {
		return 0, nil, err
	}
	if err := s.Backend.RemoveNetwork(s.ctx, id); err != nil {
		s.Log("removing network: " + err.Error()) // Resume and Down find it again
	}
	return http.StatusNoContent, nil, nil
}

func (s *Server) networkMembers(r *request) (int, any, error) {
	id, err := r.id("network")
	if err != nil {
		return 0, nil, err
	}
	members := []schema.NetworkMember{}
	s.Store.View(func(t *state.Tables) {
		n, gerr := getRow(t, networkKind(), r.project, id)
		if err = gerr; err != nil {
			return
		}
		for _, srv := range t.Servers.All() {
			for _, nic := range srv.NICs {
				if nic.Network == id {
					members = append(members, schema.NetworkMember{Type: "server", ID: srv.ID, IP: nic.IP, Status: "attached", AliasIPs: nonNil(nic.Alias), Subnet: subnetOf(n, nic.IP)})
				}
			}
		}
		for _, lb := range t.LoadBalancers.All() {
			if lb.Network == id {
				members = append(members, schema.NetworkMember{Type: "load_balancer", ID: lb.ID, IP: lb.PrivateIP, Status: "attached", AliasIPs: []string{}, Subnet: subnetOf(n, lb.PrivateIP)})
			}
		}
	})
	if err != nil {
		return 0, nil, err
	}
	page, meta, err := paginate(r.URL.Query(), members)
	return http.StatusOK, list("members", meta, page, func(m schema.NetworkMember) schema.NetworkMember { return m }), err
}

func subnetOf(n *state.Network, ip string) string {
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return ""
	}
	for _, s := range n.Subnets {
		if netip.MustParsePrefix(s.IPRange).Contains(a) {
			return s.IPRange
		}
	}
	return ""
}

// usedAddresses are all addresses members have in a network, aliases too.
func usedAddresses(t *state.Tables, network int64) map[netip.Addr]bool {
	used := map[netip.Addr]bool{}
	add := func(ip string) {
		if a, err := netip.ParseAddr(ip); err == nil {
			used[a] = true
		}
	}
	t.Servers.Each(func(r *state.Server) bool {
		for _, n := range r.NICs {
			if n.Network == network {
				add(n.IP)
				for _, a := range n.Alias {
					add(a)
				}
			}
		}
		return true
	})
	t.LoadBalancers.Each(func(r *state.LoadBalancer) bool {
		if r.Network == network {
			add(r.PrivateIP)
		}
		return true
	})
	return used
}

// pickAddress chooses a member's address: the one asked for, or the first free one
// of the subnet asked for, else of the newest subnet in the zone.
func pickAddress(t *state.Tables, n *state.Network, zone, want, ipRange string) (string, error) {
	used := usedAddresses(t, n.ID)
	if len(used) >= maxAttachments {
		return "", fail("resource_limit_exceeded", "network attachment limit exceeded")
	}
	gw := netip.MustParseAddr(gatewayOf(n.Range))
	if want != "" {
		a, err := netip.ParseAddr(want)
		if err != nil {
			return "", invalid("ip", "must be an IPv4 address")
		}
		sub := subnetOf(n, want)
		if sub == "" || used[a] || a == gw || !usable(netip.MustParsePrefix(sub), a) {
			return "", fail("ip_not_available", "the IP %s is not available in the network", want)
		}
		return a.String(), nil
	}
	for _, s := range slices.Backward(n.Subnets) {
		if s.Zone != zone || ipRange != "" && s.IPRange != ipRange {
			continue
		}
		p := netip.MustParsePrefix(s.IPRange)
		for a := p.Addr().Next(); p.Contains(a); a = a.Next() {
			if a != gw && !used[a] && usable(p, a) {
				return a.String(), nil
			}
		}
	}
	return "", fail("no_subnet_available", "no subnet or IP available in the network for this location")
}

// usable: neither the network's own nor the broadcast address.
func usable(p netip.Prefix, a netip.Addr) bool {
	return a != p.Addr() && p.Contains(a.Next())
}

// syncNetwork brings a network's router to what the state says.
func (s *Server) syncNetwork(ctx context.Context, id int64) error {
	var n Network
	var ok bool
	s.Store.View(func(t *state.Tables) {
		var row *state.Network
		if row, ok = t.Networks.Get(id); ok {
			n = networkSpec(row)
		}
	})
	if !ok {
		return nil
	}
	return s.Backend.SyncNetwork(ctx, n)
}

func networkSpec(row *state.Network) Network {
	n := Network{ID: row.ID, Range: netip.MustParsePrefix(row.Range)}
	for _, s := range row.Subnets {
		n.Subnets = append(n.Subnets, netip.MustParsePrefix(s.IPRange))
	}
	for _, x := range row.Routes {
		n.Routes = append(n.Routes, NetworkRoute{Destination: netip.MustParsePrefix(x.Destination), Gateway: netip.MustParseAddr(x.Gateway)})
	}
	return n
}

// workNetwork is the worker of every action of a network.
func (s *Server) workNetwork(ctx context.Context, a *state.Action) (func(*state.Tx) error, error) {
	return nil, s.syncNetwork(ctx, a.Resources[0].ID)
}
