package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"hk/remote/lab/catalog"
	"hk/remote/lab/state"
)

func balancerKind() kind[state.LoadBalancer] {
	return kind[state.LoadBalancer]{
		path: "load_balancers", one: "load_balancer", many: "load_balancers", title: "load balancer",
		table:     func(t *state.Tables) *state.Table[state.LoadBalancer] { return t.LoadBalancers },
		meta:      func(r *state.LoadBalancer) *state.Meta { return &r.Meta },
		view:      func(v *view, r *state.LoadBalancer) any { return v.balancer(r) },
		checkName: checkAnyName, sorts: []string{"id", "name", "created"},
	}
}

func (s *Server) routesBalancers() {
	k := balancerKind()
	k.prepare = s.healthOf
	registerKind(s, k)
	s.handle("POST /load_balancers", s.createBalancer)
	s.handle("DELETE /load_balancers/{id}", s.deleteBalancer)
	p := "POST /load_balancers/{id}/actions/"
	s.handle(p+"add_service", s.addService)
	s.handle(p+"update_service", s.updateService)
	s.handle(p+"delete_service", s.deleteService)
	s.handle(p+"add_target", s.addTarget)
	s.handle(p+"remove_target", s.removeTarget)
	s.handle(p+"attach_to_network", s.attachBalancer)
	s.handle(p+"detach_from_network", s.detachBalancer)
	s.handle(p+"change_algorithm", s.changeAlgorithm)
	s.handle(p+"change_type", s.changeBalancerType)
	s.handle(p+"change_protection", s.protectBalancer)
	s.handle(p+"change_dns_ptr", s.balancerDNSPtr)
	s.handle(p+"enable_public_interface", s.publicInterface(true))
	s.handle(p+"disable_public_interface", s.publicInterface(false))
}

// wireBalancer is a load balancer whose public addresses can be null.
type wireBalancer struct {
	schema.LoadBalancer
	PublicNet wireBalancerNet `json:"public_net"`
	Services  []wireService   `json:"services"`
	Targets   []wireTarget    `json:"targets"`
}

type wireBalancerNet struct {
	Enabled bool             `json:"enabled"`
	IPv4    wireBalancerAddr `json:"ipv4"`
	IPv6    wireBalancerAddr `json:"ipv6"`
}

type wireBalancerAddr struct {
	ID      int64   `json:"id"`
	IP      *string `json:"ip"`
	Blocked bool    `json:"blocked"`
	DNSPtr  *string `json:"dns_ptr"`
}

// wireService leaves out what a TCP service does not have.
type wireService struct {
	schema.LoadBalancerService
	HTTP *schema.LoadBalancerServiceHTTP `json:"http,omitempty"`
}

// wireTarget leaves out what this kind of target does not have.
type wireTarget struct {
	Type          string                                  `json:"type"`
	Server        *schema.LoadBalancerTargetServer        `json:"server,omitempty"`
	LabelSelector *schema.LoadBalancerTargetLabelSelector `json:"label_selector,omitempty"`
	IP            *schema.LoadBalancerTargetIP            `json:"ip,omitempty"`
	HealthStatus  []schema.LoadBalancerTargetHealthStatus `json:"health_status"`
	UsePrivateIP  bool                                    `json:"use_private_ip"`
	Targets       *[]wireTarget                           `json:"targets,omitempty"`
}

// healthOf asks the proxies of a project's load balancers what they found.
func (s *Server) healthOf(ctx context.Context, project string) func(*view) {
	var ids []int64
	s.Store.View(func(t *state.Tables) {
		for _, lb := range t.LoadBalancers.All() {
			if lb.Project == project {
				ids = append(ids, lb.ID)
			}
		}
	})
	health := map[int64]map[TargetPort]Health{}
	for _, id := range ids {
		if h, err := s.Backend.Health(ctx, id); err == nil {
			health[id] = h
		}
	}
	return func(v *view) { v.health = health }
}

func (v *view) balancer(r *state.LoadBalancer) wireBalancer {
	typ, _ := catalog.LoadBalancerType(0, r.Type)
	loc, _ := catalog.LocationByName(r.Location)
	var zero uint64
	w := wireBalancer{LoadBalancer: schema.LoadBalancer{
		ID: r.ID, Name: r.Name, Labels: labelsOf(r.Labels), Created: r.Created, Location: loc, LoadBalancerType: typ,
		Algorithm: schema.LoadBalancerAlgorithm{Type: r.Algorithm}, Protection: schema.LoadBalancerProtection{Delete: r.ProtectDelete},
		PrivateNet: []schema.LoadBalancerPrivateNet{}, OutgoingTraffic: &zero, IngoingTraffic: &zero,
	}, Services: []wireService{}, Targets: []wireTarget{}}
	for _, p := range typ.Prices {
		if p.Location == r.Location {
			w.IncludedTraffic = p.IncludedTraffic
		}
	}
	w.PublicNet.Enabled = !r.PublicOff
	ip := v.s.Backend.Address(r.Slot).String()
	ptr := dnsPtr(r.DNSPtr, ip)
	w.PublicNet.IPv4 = wireBalancerAddr{ID: r.IPv4ID, IP: &ip, DNSPtr: &ptr}
	if r.Network != 0 {
		w.PrivateNet = append(w.PrivateNet, schema.LoadBalancerPrivateNet{Network: r.Network, IP: r.PrivateIP})
	}
	for _, x := range r.Services {
		w.Services = append(w.Services, viewService(x))
	}
	for _, x := range r.Targets {
		w.Targets = append(w.Targets, v.target(r, x))
	}
	return w
}

func viewService(x state.Service) wireService {
	w := wireService{LoadBalancerService: schema.LoadBalancerService{
		Protocol: x.Protocol, ListenPort: x.ListenPort, DestinationPort: x.DestPort, Proxyprotocol: x.ProxyProtocol,
		HealthCheck: &schema.LoadBalancerServiceHealthCheck{
			Protocol: x.Check.Protocol, Port: x.Check.Port, Interval: x.Check.Interval, Timeout: x.Check.Timeout, Retries: x.Check.Retries,
		},
	}}
	if h := x.Check.HTTP; h != nil {
		w.HealthCheck.HTTP = &schema.LoadBalancerServiceHealthCheckHTTP{
			Domain: h.Domain, Path: h.Path, Response: h.Response, StatusCodes: nonNil(h.StatusCodes), TLS: h.TLS,
		}
	}
	if h := x.HTTP; h != nil {
		w.HTTP = &schema.LoadBalancerServiceHTTP{
			CookieName: h.CookieName, CookieLifetime: h.CookieLifetime, Certificates: nonNil(h.Certificates),
			RedirectHTTP: h.RedirectHTTP, StickySessions: h.StickySessions, TimeoutIdle: h.TimeoutIdle,
		}
	}
	return w
}

// target is the wire form of a target with what the checks found.
func (v *view) target(lb *state.LoadBalancer, x state.Target) wireTarget {
	private := x.Private
	switch {
	case x.Server != 0:
		return wireTarget{
			Type: "server", Server: &schema.LoadBalancerTargetServer{ID: x.Server}, UsePrivateIP: private,
			HealthStatus: v.healthStatus(lb, serverKey(x.Server, private)),
		}
	case x.Selector != "":
		subs := []wireTarget{}
		for _, id := range selectServers(v.t, lb.Project, x.Selector) {
			subs = append(subs, wireTarget{
				Type: "server", Server: &schema.LoadBalancerTargetServer{ID: id}, UsePrivateIP: private,
				HealthStatus: v.healthStatus(lb, serverKey(id, private)),
			})
		}
		return wireTarget{
			Type: "label_selector", LabelSelector: &schema.LoadBalancerTargetLabelSelector{Selector: x.Selector},
			HealthStatus: []schema.LoadBalancerTargetHealthStatus{}, UsePrivateIP: private, Targets: &subs,
		}
	}
	return wireTarget{Type: "ip", IP: &schema.LoadBalancerTargetIP{IP: x.IP}, HealthStatus: v.healthStatus(lb, "ip/"+x.IP)}
}

func serverKey(id int64, private bool) string {
	if private {
		return "server/" + strconv.FormatInt(id, 10) + "/private"
	}
	return "server/" + strconv.FormatInt(id, 10)
}

func (v *view) healthStatus(lb *state.LoadBalancer, key string) []schema.LoadBalancerTargetHealthStatus {
	out := []schema.LoadBalancerTargetHealthStatus{}
	for _, svc := range lb.Services {
		st := schema.LoadBalancerTargetHealthStatus{ListenPort: svc.ListenPort, Status: "unknown"}
		if h, ok := v.health[lb.ID][TargetPort{Key: key, Listen: svc.ListenPort}]; ok {
			st.Status = h.Status
			if h.Detail != "" {
				st.Detail = &h.Detail
			}
			if h.Code != 0 {
				st.HTTPStatusCode = &h.Code
			}
		}
		out = append(out, st)
	}
	return out
}

// changeBalancer judges and writes down an action on a load balancer.
func (s *Server) changeBalancer(r *request, req any, command string, change func(*state.Tx, *state.LoadBalancer) (any, error)) (int, any, error) {
	id, err := r.id("load balancer")
	if err != nil {
		return 0, nil, err
	}
	if req != nil {
		if err := r.decode(req); err != nil {
			return 0, nil, err
		}
	}
	var a *state.Action
	err = s.Store.Update(func(tx *state.Tx) error {
		lb, err := getRow(tx.Tables, balancerKind(), r.project, id)
		if err != nil {
			return err
		}
		if lb.Deleting || locked(tx.Tables, "load_balancer", id) {
			return errLocked("load balancer")
		}
		var args any
		var cerr error
		err = state.Edit(tx, tx.LoadBalancers, id, func(row *state.LoadBalancer) { args, cerr = change(tx, row) })
		if err := firstErr(cerr, err); err != nil {
			return err
		}
		res := state.Resource{Type: "load_balancer", ID: id}
		if _, none := args.(noWork); none {
			a = s.finished(tx, r.project, command, res)
			return nil
		}
		a, err = s.begin(tx, r.project, command, args, 0, res)
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	s.run(a)
	return http.StatusCreated, map[string]any{"action": viewAction(a)}, nil
}

func (s *Server) createBalancer(r *request) (int, any, error) {
	var req schema.LoadBalancerCreateRequest
	if err := r.decode(&req); err != nil {
		return 0, nil, err
	}
	labels, err := givenLabels(req.Labels)
	if err != nil {
		return 0, nil, err
	}
	var a *state.Action
	var out any
	err = s.Store.Update(func(tx *state.Tx) error {
		if err := freeName(tx.Tables, balancerKind(), r.project, req.Name, 0); err != nil {
			return err
		}
		row, err := s.planBalancer(tx, r, req, labels)
		if err != nil {
			return err
		}
		state.Put(tx, tx.LoadBalancers, row.ID, row)
		if a, err = s.begin(tx, r.project, "create_load_balancer", nil, 0, state.Resource{Type: "load_balancer", ID: row.ID}); err != nil {
			return err
		}
		out = map[string]any{"load_balancer": s.newView(tx.Tables).balancer(row), "action": viewAction(a)}
		return nil
	})
	if err != nil {
		return 0, nil, err
	}
	s.run(a)
	return http.StatusCreated, out, nil
}

// planBalancer judges a request and makes the row.
func (s *Server) planBalancer(tx *state.Tx, r *request, req schema.LoadBalancerCreateRequest, labels map[string]string) (*state.LoadBalancer, error) {
	typ, ok := catalog.LoadBalancerType(req.LoadBalancerType.ID, req.LoadBalancerType.Name)
	if !ok {
		return nil, invalid("load_balancer_type", "load balancer type not found")
	}
	loc, err := placeBalancer(req.Location, req.NetworkZone)
	if err != nil {
		return nil, err
	}
	row := &state.LoadBalancer{Type: typ.Name, Location: loc.Name, Algorithm: "round_robin"}
	row.Meta = s.meta(tx, r, req.Name, labels)
	if req.Algorithm != nil {
		row.Algorithm = req.Algorithm.Type
	}
	if err := checkAlgorithm(row.Algorithm); err != nil {
		return nil, err
	}
	row.PublicOff = req.PublicInterface != nil && !*req.PublicInterface
	if row.Slot, err = s.freeSlot(tx.Tables, row.ID); err != nil {
		return nil, err
	}
	row.IPv4ID = tx.NewID()
	if req.Network != nil {
		if err := s.planBalancerNIC(tx.Tables, r.project, row, *req.Network, "", ""); err != nil {
			return nil, err
		}
	}
	for _, x := range req.Services {
		if err := addServiceTo(row, x); err != nil {
			return nil, err
		}
	}
	for _, x := range req.Targets {
		t := targetRequest{Type: x.Type, UsePrivateIP: x.UsePrivateIP}
		if x.Server != nil {
			t.Server = &struct {
				ID int64 `json:"id"`
			}{x.Server.ID}
		}
		if x.LabelSelector != nil {
			t.LabelSelector = &schema.LoadBalancerTargetLabelSelector{Selector: x.LabelSelector.Selector}
		}
		if x.IP != nil {
			t.IP = &schema.LoadBalancerTargetIP{IP: x.IP.IP}
		}
		if err := s.addTargetTo(tx.Tables, r.project, row, t); err != nil {
			return nil, err
		}
	}
	return row, nil
}

func placeBalancer(location, zone *string) (schema.Location, error) {
	switch {
	case location != nil && *location != "" && zone != nil && *zone != "":
		return schema.Location{}, invalid("location", "only one of location and network_zone may be given")
	case location != nil && *location != "":
		if loc, ok := findLocation(*location); ok {
			return loc, nil
		}
		return schema.Location{}, invalid("location", "location not found")
	case zone != nil:
		for _, l := range catalog.Locations() {
			if l.NetworkZone == *zone {
				return l, nil
			}
		}
		return schema.Location{}, invalid("network_zone", "network zone not found")
	}
	return schema.Location{}, invalid("location", "one of location and network_zone is required")
}

func checkAlgorithm(name string) error {
	if name != "round_robin" && name != "least_connections" {
		return invalid("algorithm", "must be round_robin or least_connections")
	}
	return nil
}

// serviceRequest is a service as all three requests spell it.
type serviceRequest = schema.LoadBalancerCreateRequestService

// addServiceTo judges a new service, fills in what was left out, and adds it.
func addServiceTo(lb *state.LoadBalancer, req serviceRequest) error {
	svc := state.Service{Check: state.Check{Interval: 15, Timeout: 10, Retries: 3}}
	typ, _ := catalog.LoadBalancerType(0, lb.Type)
	if len(lb.Services) >= typ.MaxServices {
		return fail("resource_limit_exceeded", "load balancer type allows at most %d services", typ.MaxServices)
	}
	svc.Protocol = req.Protocol
	switch req.Protocol {
	case "tcp":
		if req.ListenPort == nil || req.DestinationPort == nil {
			return invalid("listen_port", "listen_port and destination_port are required for protocol tcp")
		}
	case "http":
		svc.ListenPort, svc.DestPort = 80, 80
		svc.HTTP = &state.ServiceHTTP{CookieName: "HCLBSTICKY", CookieLifetime: 300, TimeoutIdle: 60}
	case "https":
		return fail("unsupported_error", "the lab has no certificates yet")
	default:
		return invalid("protocol", "must be tcp, http or https")
	}
	svc.Check.Protocol = req.Protocol
	if err := mergeService(&svc, req); err != nil {
		return err
	}
	if slices.ContainsFunc(lb.Services, func(x state.Service) bool { return x.ListenPort == svc.ListenPort }) {
		return fail("source_port_already_used", "the source port %d is already used", svc.ListenPort)
	}
	lb.Services = append(lb.Services, svc)
	return nil
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

// mergeService lays what a request says over a service.
func mergeService(svc *state.Service, req serviceRequest) error {
	oldDest := svc.DestPort
	set(&svc.ListenPort, req.ListenPort)
	set(&svc.DestPort, req.DestinationPort)
	set(&svc.ProxyProtocol, req.Proxyprotocol)
	if h := req.HTTP; h != nil {
		if svc.HTTP == nil {
			return invalid("http", "is not allowed for protocol tcp")
		}
		set(&svc.HTTP.CookieName, h.CookieName)
		set(&svc.HTTP.CookieLifetime, h.CookieLifetime)
		set(&svc.HTTP.StickySessions, h.StickySessions)
		set(&svc.HTTP.TimeoutIdle, h.TimeoutIdle)
	}
	if svc.Check.Port == 0 || svc.Check.Port == oldDest {
		svc.Check.Port = svc.DestPort
	}
	if err := mergeCheck(&svc.Check, req.HealthCheck); err != nil {
		return err
	}
	for name, port := range map[string]int{"listen_port": svc.ListenPort, "destination_port": svc.DestPort, "health_check.port": svc.Check.Port} {
		if port < 1 || port > 65535 {
			return invalid(name, "must be a port")
		}
	}
	return nil
}

func mergeCheck(c *state.Check, req *schema.LoadBalancerCreateRequestServiceHealthCheck) error {
	if req != nil {
		if req.Protocol != "" {
			c.Protocol = req.Protocol
		}
		set(&c.Port, req.Port)
		set(&c.Interval, req.Interval)
		set(&c.Timeout, req.Timeout)
		set(&c.Retries, req.Retries)
	}
	switch c.Protocol {
	case "tcp":
		c.HTTP = nil
	case "http":
		if c.HTTP == nil {
			c.HTTP = &state.CheckHTTP{Path: "/", StatusCodes: []string{"2??", "3??"}}
		}
		if req != nil && req.HTTP != nil {
			set(&c.HTTP.Domain, req.HTTP.Domain)
			set(&c.HTTP.Path, req.HTTP.Path)
			set(&c.HTTP.Response, req.HTTP.Response)
			set(&c.HTTP.StatusCodes, req.HTTP.StatusCodes)
			set(&c.HTTP.TLS, req.HTTP.TLS)
		}
	default: // "https" is none: TLS is a flag of http
		return invalid("health_check.protocol", "must be tcp or http")
	}
	switch {
	case c.Interval < 3 || c.Interval > 60:
		return invalid("health_check.interval", "must be between 3 and 60")
	case c.Timeout < 1 || c.Timeout > c.Interval:
		return invalid("health_check.timeout", "must be at least 1 and at most the interval")
	case c.Retries < 1 || c.Retries > 5:
		return invalid("health_check.retries", "must be between 1 and 5")
	}
	return nil
}

func (s *Server) addService(r *request) (int, any, error) {
	var req serviceRequest
	return s.changeBalancer(r, &req, "add_service", func(_ *state.Tx, lb *state.LoadBalancer) (any, error) {
		return nil, addServiceTo(lb, req)
	})
}

func (s *Server) updateService(r *request) (int, any, error) {
	var req serviceRequest
	return s.changeBalancer(r, &req, "update_service", func(_ *state.Tx, lb *state.LoadBalancer) (any, error) {
		i := -1
		if req.ListenPort != nil {
			i = slices.IndexFunc(lb.Services, func(x state.Service) bool { return x.ListenPort == *req.ListenPort })
		}
		if i < 0 {
			return nil, invalid("listen_port", "there is no service with this listen port")
		}
		if req.Protocol != "" && req.Protocol != lb.Services[i].Protocol {
			return nil, fail("unsupported_error", "the lab cannot change a service's protocol")
		}
		return nil, mergeService(&lb.Services[i], req)
	})
}

func (s *Server) deleteService(r *request) (int, any, error) {
	var req schema.LoadBalancerDeleteServiceRequest
	return s.changeBalancer(r, &req, "delete_service", func(_ *state.Tx, lb *state.LoadBalancer) (any, error) {
		i := slices.IndexFunc(lb.Services, func(x state.Service) bool { return x.ListenPort == req.ListenPort })
		if i < 0 {
			return nil, invalid("listen_port", "there is no service with this listen port")
		}
		lb.Services = slices.Delete(lb.Services, i, i+1)
		return nil, nil
	})
}

// targetRequest is a target as all three requests spell it.
type targetRequest struct {
	Type   string `json:"type"`
	Server *struct {
		ID int64 `json:"id"`
	} `json:"server"`
	LabelSelector *schema.LoadBalancerTargetLabelSelector `json:"label_selector"`
	IP            *schema.LoadBalancerTargetIP            `json:"ip"`
	UsePrivateIP  *bool                                   `json:"use_private_ip"`
}

// parse judges a target's form.
func (t targetRequest) parse() (state.Target, error) {
	out := state.Target{Private: t.UsePrivateIP != nil && *t.UsePrivateIP}
	switch {
	case t.Type == "server" && t.Server != nil && t.Server.ID > 0:
		out.Server = t.Server.ID
	case t.Type == "label_selector" && t.LabelSelector != nil && t.LabelSelector.Selector != "":
		if _, err := parseSelector(t.LabelSelector.Selector); err != nil {
			return out, err
		}
		out.Selector = t.LabelSelector.Selector
	case t.Type == "ip" && t.IP != nil:
		if a, err := netip.ParseAddr(t.IP.IP); err != nil || !a.Is4() {
			return out, invalid("ip", "must be an IPv4 address")
		}
		out.IP = t.IP.IP
	default:
		return out, invalid("type", "must be server, label_selector or ip, with its field")
	}
	return out, nil
}

// hostSlot is the computer's own address in the lab, the one machine that is no cloud
// server: what a dedicated server is to the real cloud.
const hostSlot = 1

func same(a, b state.Target) bool {
	return a.Server == b.Server && a.Selector == b.Selector && a.IP == b.IP
}

func (s *Server) addTargetTo(t *state.Tables, project string, lb *state.LoadBalancer, req targetRequest) error {
	x, err := req.parse()
	if err != nil {
		return err
	}
	typ, _ := catalog.LoadBalancerType(0, lb.Type)
	switch {
	case slices.ContainsFunc(lb.Targets, func(have state.Target) bool { return same(have, x) }):
		return fail("target_already_defined", "the load balancer target is already defined")
	case len(lb.Targets) >= typ.MaxTargets:
		return fail("resource_limit_exceeded", "load balancer type allows at most %d targets", typ.MaxTargets)
	case x.Private && lb.Network == 0:
		return fail("load_balancer_not_attached_to_network", "the load balancer is not attached to a network")
	case x.IP != "" && s.isServerAddress(t, x.IP):
		return fail("cloud_resource_ip_not_allowed", "the IP belongs to a cloud resource")
	case x.IP != "" && x.IP != s.Backend.Address(hostSlot).String():
		return fail("ip_not_owned", "the IP is not owned by the project owner")
	}
	if x.Server != 0 {
		srv, err := getRow(t, serverKind(), project, x.Server)
		if err != nil {
			return err
		}
		if _, ok := s.addrOf(srv, x.Private, lb.Network); !ok {
			if x.Private {
				return fail("server_not_attached_to_network", "the server is not attached to the load balancer's network")
			}
			return fail("missing_ipv4", "the server has no public IPv4")
		}
	}
	lb.Targets = append(lb.Targets, x)
	return nil
}

func (s *Server) isServerAddress(t *state.Tables, ip string) bool {
	for _, srv := range t.Servers.All() {
		if srv.Slot != 0 && s.Backend.Address(srv.Slot).String() == ip {
			return true
		}
	}
	return false
}

func (s *Server) addTarget(r *request) (int, any, error) {
	var req targetRequest
	return s.changeBalancer(r, &req, "add_target", func(tx *state.Tx, lb *state.LoadBalancer) (any, error) {
		return nil, s.addTargetTo(tx.Tables, r.project, lb, req)
	})
}

func (s *Server) removeTarget(r *request) (int, any, error) {
	var req targetRequest
	return s.changeBalancer(r, &req, "remove_target", func(_ *state.Tx, lb *state.LoadBalancer) (any, error) {
		x, err := req.parse()
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(lb.Targets, func(have state.Target) bool { return same(have, x) })
		if i < 0 {
			return nil, fail("not_found", "load balancer target not found")
		}
		lb.Targets = slices.Delete(lb.Targets, i, i+1)
		return nil, nil
	})
}

func (s *Server) planBalancerNIC(t *state.Tables, project string, lb *state.LoadBalancer, network int64, ip, ipRange string) error {
	n, err := getRow(t, networkKind(), project, network)
	if err != nil {
		return err
	}
	if lb.Network != 0 {
		return fail("load_balancer_already_attached", "the load balancer is already attached to a network")
	}
	loc, _ := catalog.LocationByName(lb.Location)
	addr, err := pickAddress(t, n, loc.NetworkZone, ip, ipRange)
	if err != nil {
		return err
	}
	lb.Network, lb.PrivateIP = network, addr
	lb.Attachments++
	return nil
}

func (s *Server) attachBalancer(r *request) (int, any, error) {
	var req schema.LoadBalancerActionAttachToNetworkRequest
	return s.changeBalancer(r, &req, "attach_to_network", func(tx *state.Tx, lb *state.LoadBalancer) (any, error) {
		return nil, s.planBalancerNIC(tx.Tables, r.project, lb, req.Network, deref(req.IP), deref(req.IPRange))
	})
}

func (s *Server) detachBalancer(r *request) (int, any, error) {
	var req schema.LoadBalancerActionDetachFromNetworkRequest
	return s.changeBalancer(r, &req, "detach_from_network", func(_ *state.Tx, lb *state.LoadBalancer) (any, error) {
		if lb.Network == 0 || lb.Network != req.Network {
			return nil, fail("load_balancer_not_attached_to_network", "the load balancer is not attached to the network")
		}
		// Its private targets go with it, as on the real cloud.
		lb.Targets = slices.DeleteFunc(lb.Targets, func(x state.Target) bool { return x.Private })
		lb.Network, lb.PrivateIP = 0, ""
		return nicArgs{req.Network}, nil
	})
}

func (s *Server) changeAlgorithm(r *request) (int, any, error) {
	var req schema.LoadBalancerActionChangeAlgorithmRequest
	return s.changeBalancer(r, &req, "change_algorithm", func(_ *state.Tx, lb *state.LoadBalancer) (any, error) {
		lb.Algorithm = req.Type
		return nil, checkAlgorithm(req.Type)
	})
}

func (s *Server) changeBalancerType(r *request) (int, any, error) {
	var req schema.LoadBalancerActionChangeTypeRequest
	return s.changeBalancer(r, &req, "change_load_balancer_type", func(_ *state.Tx, lb *state.LoadBalancer) (any, error) {
		typ, ok := catalog.LoadBalancerType(req.LoadBalancerType.ID, req.LoadBalancerType.Name)
		if !ok {
			return nil, invalid("load_balancer_type", "load balancer type not found")
		}
		if len(lb.Services) > typ.MaxServices || len(lb.Targets) > typ.MaxTargets || typ.Name == lb.Type {
			return nil, fail("invalid_load_balancer_type", "the load balancer type does not fit")
		}
		lb.Type = typ.Name
		return nil, nil
	})
}

func (s *Server) protectBalancer(r *request) (int, any, error) {
	var req schema.LoadBalancerActionChangeProtectionRequest
	return s.changeBalancer(r, &req, "change_protection", func(_ *state.Tx, lb *state.LoadBalancer) (any, error) {
		set(&lb.ProtectDelete, req.Delete)
		return noWork{}, nil
	})
}

func (s *Server) balancerDNSPtr(r *request) (int, any, error) {
	var req schema.LoadBalancerActionChangeDNSPtrRequest
	return s.changeBalancer(r, &req, "change_dns_ptr", func(_ *state.Tx, lb *state.LoadBalancer) (any, error) {
		if req.IP != s.Backend.Address(lb.Slot).String() {
			return nil, invalid("ip", "is not an address of the load balancer")
		}
		lb.DNSPtr = deref(req.DNSPtr)
		return noWork{}, nil
	})
}

func (s *Server) publicInterface(on bool) handler {
	command := "disable_public_interface"
	if on {
		command = "enable_public_interface"
	}
	return func(r *request) (int, any, error) {
		return s.changeBalancer(r, nil, command, func(_ *state.Tx, lb *state.LoadBalancer) (any, error) {
			if !on && slices.ContainsFunc(lb.Targets, func(x state.Target) bool { return !x.Private }) {
				return nil, fail("targets_without_use_private_ip", "the load balancer has targets that use the public IP")
			}
			lb.PublicOff = !on
			return nil, nil
		})
	}
}

func (s *Server) deleteBalancer(r *request) (int, any, error) {
	id, err := r.id("load balancer")
	if err != nil {
		return 0, nil, err
	}
	var a *state.Action
	err = s.Store.Update(func(tx *state.Tx) error {
		lb, err := getRow(tx.Tables, balancerKind(), r.project, id)
		if err != nil {
			return err
		}
		switch {
		case lb.ProtectDelete:
			return fail("protected", "load balancer deletion is protected")
		case lb.Deleting || locked(tx.Tables, "load_balancer", id):
			return errLocked("load balancer")
		}
		if err := state.Edit(tx, tx.LoadBalancers, id, func(row *state.LoadBalancer) { row.Deleting = true }); err != nil {
			return err
		}
		a, err = s.begin(tx, r.project, "delete_load_balancer", nil, 0, state.Resource{Type: "load_balancer", ID: id})
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	s.run(a)
	return http.StatusCreated, map[string]any{"action": viewAction(a)}, nil // since 2026-10-05
}

// balancer works out what the backend makes a load balancer from.
func (s *Server) balancer(t *state.Tables, lb *state.LoadBalancer) Balancer {
	b := Balancer{ID: lb.ID, Algorithm: lb.Algorithm, Slot: lb.Slot}
	if lb.PublicOff {
		b.Slot = 0
	}
	if n, ok := t.Networks.Get(lb.Network); ok {
		if addr, err := netip.ParseAddr(lb.PrivateIP); err == nil {
			b.NIC = &NIC{Network: networkSpec(n), Name: "private", Addr: addr, MAC: s.Backend.MAC(lb.Network, lb.ID, lb.Attachments)}
		}
	}
	for _, x := range lb.Services {
		c := BalancerCheck{
			Protocol: x.Check.Protocol, Port: x.Check.Port, Retries: x.Check.Retries,
			Interval: time.Duration(x.Check.Interval) * time.Second, Timeout: time.Duration(x.Check.Timeout) * time.Second,
		}
		if h := x.Check.HTTP; h != nil {
			c.TLS, c.Domain, c.Path, c.Response, c.StatusCodes = h.TLS, h.Domain, h.Path, h.Response, h.StatusCodes
		}
		b.Services = append(b.Services, BalancerService{Listen: x.ListenPort, Dest: x.DestPort, ProxyProtocol: x.ProxyProtocol, Check: c})
	}
	seen := map[string]bool{}
	for _, x := range lb.Targets {
		if x.IP != "" {
			if addr, err := netip.ParseAddr(x.IP); err == nil {
				b.Targets = append(b.Targets, BalancerTarget{Key: "ip/" + x.IP, Addr: addr})
			}
			continue
		}
		ids := []int64{x.Server}
		if x.Selector != "" {
			ids = selectServers(t, lb.Project, x.Selector)
		}
		for _, id := range ids {
			srv, ok := t.Servers.Get(id)
			key := serverKey(id, x.Private)
			if !ok || srv.Status == state.Deleting || seen[key] {
				continue
			}
			if addr, ok := s.addrOf(srv, x.Private, lb.Network); ok {
				seen[key] = true
				b.Targets = append(b.Targets, BalancerTarget{Key: key, Addr: addr})
			}
		}
	}
	return b
}

func (s *Server) syncBalancer(ctx context.Context, id int64) error {
	return s.balances.of(id).do(func() error {
		var b Balancer
		var ok bool
		s.Store.View(func(t *state.Tables) {
			if lb, found := t.LoadBalancers.Get(id); found && !lb.Deleting {
				b, ok = s.balancer(t, lb), true
			}
		})
		if !ok {
			return nil
		}
		return s.Backend.SyncBalancer(ctx, b)
	})
}

func (s *Server) workBalancer(ctx context.Context, a *state.Action) (func(*state.Tx) error, error) {
	return nil, s.syncBalancer(ctx, a.Resources[0].ID)
}

func (s *Server) workDeleteBalancer(ctx context.Context, a *state.Action) (func(*state.Tx) error, error) {
	id := a.Resources[0].ID
	var network int64
	s.Store.View(func(t *state.Tables) {
		if lb, ok := t.LoadBalancers.Get(id); ok {
			network = lb.Network
		}
	})
	// Let a sync that began before the deletion end; later ones see it and do nothing.
	if err := s.balances.of(id).do(func() error { return nil }); err != nil {
		s.Log("load balancer before its deletion: " + err.Error())
	}
	if network != 0 {
		if err := s.Backend.Leave(ctx, id, network); err != nil {
			return nil, err
		}
	}
	if err := s.Backend.RemoveBalancer(ctx, id); err != nil {
		return nil, err
	}
	return func(tx *state.Tx) error { state.Delete(tx, tx.LoadBalancers, id); return nil }, nil
}

// workAttachAny and workDetachAny: servers and load balancers share the command.
func (s *Server) workAttachAny(ctx context.Context, a *state.Action) (func(*state.Tx) error, error) {
	if a.Resources[0].Type == "load_balancer" {
		return s.workBalancer(ctx, a)
	}
	return s.workAttach(ctx, a)
}

func (s *Server) workDetachAny(ctx context.Context, a *state.Action) (func(*state.Tx) error, error) {
	if a.Resources[0].Type != "load_balancer" {
		return s.workDetach(ctx, a)
	}
	var args nicArgs
	if err := json.Unmarshal(a.Args, &args); err != nil {
		return nil, err
	}
	if err := s.syncBalancer(ctx, a.Resources[0].ID); err != nil {
		return nil, err
	}
	return nil, s.Backend.Leave(ctx, a.Resources[0].ID, args.Network)
}

// balancersOfServers brings all load balancers to what servers have become. It
// returns at once; a proxy that cannot be told now is told by the next Resume.
func (s *Server) balancersOfServers() {
	var ids []int64
	s.Store.View(func(t *state.Tables) {
		for _, lb := range t.LoadBalancers.All() {
			if len(lb.Targets) > 0 {
				ids = append(ids, lb.ID)
			}
		}
	})
	for _, id := range ids {
		s.wg.Go(func() {
			if err := s.syncBalancer(s.ctx, id); err != nil && s.ctx.Err() == nil {
				s.Log("load balancer " + strconv.FormatInt(id, 10) + ": " + err.Error())
			}
		})
	}
}

// relabelled is called when a server's name or labels changed: selectors may match
// other servers now.
func (s *Server) relabelled(int64) {
	s.syncNames()
	s.balancersOfServers()
	s.wg.Go(func() {
		if err := s.syncRules(s.ctx); err != nil && s.ctx.Err() == nil {
			s.Log("firewalls: " + err.Error())
		}
	})
}
