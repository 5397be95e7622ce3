package api

import (
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"hk/remote/lab/catalog"
	"hk/remote/lab/state"
)

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
