package api

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"hk/remote/lab/catalog"
	"hk/remote/lab/state"
)

func viewAction(a *state.Action) schema.Action {
	v := schema.Action{
		ID: a.ID, Status: a.Status, Command: a.Command, Started: a.Started, Progress: 100,
		Resources: []schema.ActionResourceReference{},
	}
	for _, r := range a.Resources {
		v.Resources = append(v.Resources, schema.ActionResourceReference{ID: r.ID, Type: r.Type})
	}
	switch a.Status {
	case state.ActionRunning:
		v.Progress = 0
		return v
	case state.ActionError:
		v.Progress = 50 // the real one stops short of 100, too
		v.Error = &schema.ActionError{Code: a.ErrorCode, Message: a.Error}
	}
	v.Finished = &a.Finished
	return v
}

func labelsOf(l map[string]string) map[string]string {
	if l == nil {
		return map[string]string{}
	}
	return maps.Clone(l)
}

// wireServer is a server whose public addresses can be null.
type wireServer struct {
	schema.Server
	PublicNet wirePublicNet `json:"public_net"`
}

type wirePublicNet struct {
	IPv4        *schema.ServerPublicNetIPv4 `json:"ipv4"`
	IPv6        *schema.ServerPublicNetIPv6 `json:"ipv6"`
	FloatingIPs []int64                     `json:"floating_ips"`
	Firewalls   []schema.ServerFirewall     `json:"firewalls"`
}

// view makes the wire form of rows; it holds what several of them share, so that a
// list of 50 looks things up once.
type view struct {
	s      *Server
	t      *state.Tables
	busy   map[state.Resource]bool
	guards map[int64][]int64 // server → firewalls
	groups map[int64][]int64 // placement group → servers
	lbs    map[int64][]int64 // server → load balancers
	health map[int64]map[TargetPort]Health
}

func (s *Server) newView(t *state.Tables) *view {
	v := &view{s: s, t: t, busy: map[state.Resource]bool{}, guards: map[int64][]int64{}, groups: map[int64][]int64{}, lbs: map[int64][]int64{}}
	t.Actions.Each(func(a *state.Action) bool {
		if a.Status == state.ActionRunning {
			for _, r := range a.Resources {
				v.busy[r] = true
			}
		}
		return true
	})
	servers := t.Servers.All()
	for _, srv := range servers {
		if srv.PlacementGroup != 0 {
			v.groups[srv.PlacementGroup] = append(v.groups[srv.PlacementGroup], srv.ID)
		}
	}
	for _, f := range t.Firewalls.All() {
		for _, id := range appliedTo(t, f) {
			v.guards[id] = append(v.guards[id], f.ID)
		}
	}
	for _, lb := range t.LoadBalancers.All() {
		for _, id := range targetServers(t, lb) {
			v.lbs[id] = append(v.lbs[id], lb.ID)
		}
	}
	return v
}

// nonNil makes an empty list of a nil one: the API has no null lists.
func nonNil[T any](l []T) []T {
	if l == nil {
		return []T{}
	}
	return l
}

func (v *view) server(r *state.Server) wireServer {
	typ, _ := catalog.ServerType(0, r.Type)
	loc, _ := catalog.LocationByName(r.Location)
	w := wireServer{Server: schema.Server{
		ID: r.ID, Name: r.Name, Status: r.Status, Created: r.Created, ServerType: typ, Location: loc,
		PrivateNet: []schema.ServerPrivateNet{}, Labels: labelsOf(r.Labels), Volumes: []int64{},
		Locked: v.busy[state.Resource{Type: "server", ID: r.ID}], PrimaryDiskSize: r.DiskGB,
		Protection:    schema.ServerProtection{Delete: r.ProtectDelete, Rebuild: r.ProtectRebuild},
		LoadBalancers: nonNil(v.lbs[r.ID]),
	}}
	var zero uint64
	w.OutgoingTraffic, w.IngoingTraffic = &zero, &zero
	for _, p := range typ.Prices {
		if p.Location == r.Location {
			w.IncludedTraffic = p.IncludedTraffic
		}
	}
	if img, ok := catalog.Image(r.ImageID, ""); ok {
		w.Image = &img
	}
	if g, ok := v.t.PlacementGroups.Get(r.PlacementGroup); ok {
		pg := v.placementGroup(g)
		w.PlacementGroup = &pg
	}
	for _, n := range r.NICs {
		w.PrivateNet = append(w.PrivateNet, schema.ServerPrivateNet{Network: n.Network, IP: n.IP, AliasIPs: nonNil(n.Alias), MACAddress: n.MAC})
	}
	w.PublicNet = wirePublicNet{FloatingIPs: []int64{}, Firewalls: []schema.ServerFirewall{}}
	if r.Slot != 0 {
		ip := v.s.Backend.Address(r.Slot).String()
		w.PublicNet.IPv4 = &schema.ServerPublicNetIPv4{ID: r.IPv4ID, IP: ip, DNSPtr: dnsPtr(r.DNSPtr, ip)}
		for _, f := range v.guards[r.ID] {
			w.PublicNet.Firewalls = append(w.PublicNet.Firewalls, schema.ServerFirewall{ID: f, Status: "applied"})
		}
	}
	return w
}

// dnsPtr is the reverse name an address has until it is given another.
func dnsPtr(set, ip string) string {
	if set != "" {
		return set
	}
	a, err := netip.ParseAddr(ip)
	if err != nil {
		return ""
	}
	b := a.As4()
	return fmt.Sprintf("static.%d.%d.%d.%d.clients.your-server.de", b[3], b[2], b[1], b[0])
}

func (v *view) sshKey(r *state.SSHKey) schema.SSHKey {
	return schema.SSHKey{ID: r.ID, Name: r.Name, Fingerprint: r.Fingerprint, PublicKey: r.PublicKey, Labels: labelsOf(r.Labels), Created: r.Created}
}

func (v *view) placementGroup(r *state.PlacementGroup) schema.PlacementGroup {
	return schema.PlacementGroup{ID: r.ID, Name: r.Name, Labels: labelsOf(r.Labels), Created: r.Created, Servers: nonNil(v.groups[r.ID]), Type: r.Type}
}

func (v *view) network(r *state.Network) schema.Network {
	n := schema.Network{
		ID: r.ID, Name: r.Name, Created: r.Created, IPRange: r.Range, Labels: labelsOf(r.Labels),
		Subnets: []schema.NetworkSubnet{}, Routes: []schema.NetworkRoute{}, Servers: []int64{}, LoadBalancers: []int64{},
		Protection: schema.NetworkProtection{Delete: r.ProtectDelete}, ExposeRoutesToVSwitch: r.ExposeToSwitch,
	}
	for _, s := range r.Subnets {
		n.Subnets = append(n.Subnets, schema.NetworkSubnet{Type: s.Type, IPRange: s.IPRange, NetworkZone: s.Zone, Gateway: gatewayOf(r.Range)})
	}
	for _, x := range r.Routes {
		n.Routes = append(n.Routes, schema.NetworkRoute{Destination: x.Destination, Gateway: x.Gateway})
	}
	for _, srv := range v.t.Servers.All() {
		if slices.ContainsFunc(srv.NICs, func(n state.NIC) bool { return n.Network == r.ID }) {
			n.Servers = append(n.Servers, srv.ID)
		}
	}
	for _, lb := range v.t.LoadBalancers.All() {
		if lb.Network == r.ID {
			n.LoadBalancers = append(n.LoadBalancers, lb.ID)
		}
	}
	return n
}

func gatewayOf(ipRange string) string {
	p, err := netip.ParsePrefix(ipRange)
	if err != nil {
		return ""
	}
	return p.Masked().Addr().Next().String()
}

func (v *view) firewall(r *state.Firewall) schema.Firewall {
	f := schema.Firewall{
		ID: r.ID, Name: r.Name, Labels: labelsOf(r.Labels), Created: r.Created,
		Rules: []schema.FirewallRule{}, AppliedTo: []schema.FirewallResource{},
	}
	for _, x := range r.Rules {
		f.Rules = append(f.Rules, schema.FirewallRule{
			Direction: x.Direction, SourceIPs: nonNil(x.Sources), DestinationIPs: nonNil(x.Destinations),
			Protocol: x.Protocol, Port: x.Port, Description: x.Description,
		})
	}
	for _, id := range r.Servers {
		f.AppliedTo = append(f.AppliedTo, schema.FirewallResource{Type: "server", Server: &schema.FirewallResourceServer{ID: id}})
	}
	for _, text := range r.Selectors {
		res := schema.FirewallResource{
			Type: "label_selector", LabelSelector: &schema.FirewallResourceLabelSelector{Selector: text},
			AppliedToResources: []schema.FirewallResource{},
		}
		for _, id := range selectServers(v.t, r.Project, text) {
			res.AppliedToResources = append(res.AppliedToResources, schema.FirewallResource{Type: "server", Server: &schema.FirewallResourceServer{ID: id}})
		}
		f.AppliedTo = append(f.AppliedTo, res)
	}
	return f
}

// selectServers lists a project's servers that a label selector matches.
func selectServers(t *state.Tables, project, text string) []int64 {
	sel, err := parseSelector(text)
	if err != nil {
		return nil
	}
	var ids []int64
	for _, srv := range t.Servers.All() {
		if srv.Project == project && srv.Status != state.Deleting && sel.matches(srv.Labels) {
			ids = append(ids, srv.ID)
		}
	}
	return ids
}

// appliedTo lists the servers a firewall acts on.
func appliedTo(t *state.Tables, f *state.Firewall) []int64 {
	ids := slices.Clone(f.Servers)
	for _, text := range f.Selectors {
		ids = append(ids, selectServers(t, f.Project, text)...)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// targetServers lists the servers among a load balancer's targets.
func targetServers(t *state.Tables, lb *state.LoadBalancer) []int64 {
	var ids []int64
	for _, x := range lb.Targets {
		switch {
		case x.Server != 0:
			ids = append(ids, x.Server)
		case x.Selector != "":
			ids = append(ids, selectServers(t, lb.Project, x.Selector)...)
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// query is what all lists of named things can be filtered by.
func filter[T any](q map[string][]string, rows []*T, meta func(*T) *state.Meta) ([]*T, error) {
	sel, err := parseSelector(strings.Join(q["label_selector"], ","))
	if err != nil {
		return nil, err
	}
	name := q["name"]
	return slices.DeleteFunc(rows, func(r *T) bool {
		m := meta(r)
		return !sel.matches(m.Labels) || len(name) > 0 && !slices.Contains(name, m.Name)
	}), nil
}

func now(s *Server) time.Time { return s.Now().UTC().Truncate(time.Second) }
