package api

import (
	"context"
	"strconv"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"hk/remote/lab/catalog"
	"hk/remote/lab/state"
)

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
