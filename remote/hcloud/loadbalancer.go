package hcloud

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"hk/remote"
)

// What a health check has where nothing is said: the API's own defaults.
const (
	checkInterval = 15 * time.Second
	checkTimeout  = 10 * time.Second
	checkRetries  = 3
)

func fromLoadBalancer(l *hcloud.LoadBalancer) *remote.LoadBalancer {
	out := &remote.LoadBalancer{ID: l.ID, Name: l.Name, Labels: l.Labels}
	if l.LoadBalancerType != nil {
		out.Type = l.LoadBalancerType.Name
	}
	if l.Location != nil {
		out.Location = l.Location.Name
	}
	if l.PublicNet.IPv4.IP != nil {
		out.IPv4 = l.PublicNet.IPv4.IP.String()
	}
	for _, n := range l.PrivateNet {
		out.Networks = append(out.Networks, n.Network.ID)
	}
	dest := map[int]int{}
	for _, s := range l.Services {
		dest[s.ListenPort] = s.DestinationPort
		out.Services = append(out.Services, fromService(&s))
	}
	for _, t := range l.Targets {
		target := remote.LBTarget{Private: t.UsePrivateIP, Health: map[int]string{}}
		health(target.Health, dest, t.HealthStatus)
		switch {
		case t.Server != nil && t.Server.Server != nil:
			target.Server = t.Server.Server.ID
		case t.LabelSelector != nil:
			target.Selector = t.LabelSelector.Selector
			for _, x := range t.Targets {
				health(target.Health, dest, x.HealthStatus)
			}
		default:
			continue // an IP target is nothing hk makes
		}
		out.Targets = append(out.Targets, target)
	}
	return out
}

// health adds what is said of a target; of several servers the worst counts.
func health(out map[int]string, dest map[int]int, status []hcloud.LoadBalancerTargetHealthStatus) {
	rank := []string{"healthy", "unknown", "unhealthy"}
	for _, s := range status {
		port := dest[s.ListenPort]
		if now := string(s.Status); slices.Index(rank, now) > slices.Index(rank, out[port]) {
			out[port] = now
		}
	}
}

func fromService(s *hcloud.LoadBalancerService) remote.LBService {
	out := remote.LBService{
		Listen: s.ListenPort, Dest: s.DestinationPort, Check: string(s.HealthCheck.Protocol),
		CheckInterval: s.HealthCheck.Interval, CheckTimeout: s.HealthCheck.Timeout, CheckRetries: s.HealthCheck.Retries,
	}
	if h := s.HealthCheck.HTTP; h != nil && s.HealthCheck.Protocol == hcloud.LoadBalancerServiceProtocolHTTP {
		out.CheckPath = h.Path
		if h.TLS {
			out.Check = "https"
		}
	}
	return out
}

// filled puts the defaults in, so that what is wanted can be compared with what
// the API says.
func filled(s remote.LBService) remote.LBService {
	if s.Check == "" {
		s.Check = "tcp"
	}
	if s.CheckInterval == 0 {
		s.CheckInterval = checkInterval
	}
	if s.CheckTimeout == 0 {
		s.CheckTimeout = checkTimeout
	}
	if s.CheckRetries == 0 {
		s.CheckRetries = checkRetries
	}
	return s
}

// checkOf is a service's health check. To the API TLS is a flag of "http", and
// "https" an error. A server that wants a login (401) is alive.
func checkOf(s remote.LBService) *hcloud.LoadBalancerAddServiceOptsHealthCheck {
	h := &hcloud.LoadBalancerAddServiceOptsHealthCheck{
		Protocol: hcloud.LoadBalancerServiceProtocolTCP, Port: &s.Dest,
		Interval: &s.CheckInterval, Timeout: &s.CheckTimeout, Retries: &s.CheckRetries,
	}
	if s.Check == "http" || s.Check == "https" {
		tls := s.Check == "https"
		h.Protocol = hcloud.LoadBalancerServiceProtocolHTTP
		h.HTTP = &hcloud.LoadBalancerAddServiceOptsHealthCheckHTTP{Path: &s.CheckPath, TLS: &tls, StatusCodes: []string{"2??", "401"}}
	}
	return h
}

// CreateLoadBalancer creates a load balancer, attached and with its services
// and targets, in one request.
func (c *Client) CreateLoadBalancer(ctx context.Context, lb remote.LoadBalancer) (*remote.LoadBalancer, error) {
	op := "create load balancer " + lb.Name
	opts := hcloud.LoadBalancerCreateOpts{
		Name: lb.Name, LoadBalancerType: &hcloud.LoadBalancerType{Name: lb.Type}, Location: &hcloud.Location{Name: lb.Location},
		Labels: lb.Labels, Algorithm: &hcloud.LoadBalancerAlgorithm{Type: hcloud.LoadBalancerAlgorithmTypeRoundRobin},
	}
	if len(lb.Networks) > 0 {
		opts.Network = &hcloud.Network{ID: lb.Networks[0]}
	}
	for _, s := range lb.Services {
		s = filled(s)
		h := hcloud.LoadBalancerCreateOptsServiceHealthCheck{}
		from := checkOf(s)
		h.Protocol, h.Port, h.Interval, h.Timeout, h.Retries = from.Protocol, from.Port, from.Interval, from.Timeout, from.Retries
		if from.HTTP != nil {
			h.HTTP = &hcloud.LoadBalancerCreateOptsServiceHealthCheckHTTP{Path: from.HTTP.Path, TLS: from.HTTP.TLS, StatusCodes: from.HTTP.StatusCodes}
		}
		opts.Services = append(opts.Services, hcloud.LoadBalancerCreateOptsService{
			Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: &s.Listen, DestinationPort: &s.Dest, HealthCheck: &h,
		})
	}
	for _, t := range lb.Targets {
		o := hcloud.LoadBalancerCreateOptsTarget{UsePrivateIP: &t.Private}
		if t.Server != 0 {
			o.Type = hcloud.LoadBalancerTargetTypeServer
			o.Server = hcloud.LoadBalancerCreateOptsTargetServer{Server: &hcloud.Server{ID: t.Server}}
		} else {
			o.Type = hcloud.LoadBalancerTargetTypeLabelSelector
			o.LabelSelector = hcloud.LoadBalancerCreateOptsTargetLabelSelector{Selector: t.Selector}
		}
		opts.Targets = append(opts.Targets, o)
	}
	var r hcloud.LoadBalancerCreateResult
	err := c.write(ctx, op, func(ctx context.Context) (err error) {
		r, _, err = c.api.LoadBalancer.Create(ctx, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := fromLoadBalancer(r.LoadBalancer)
	if err := c.wait.all(ctx, op, r.Action); err != nil {
		return out, err
	}
	return out, nil
}

// LoadBalancer returns one load balancer; ErrNotFound.
func (c *Client) LoadBalancer(ctx context.Context, id int64) (*remote.LoadBalancer, error) {
	op := fmt.Sprintf("look at load balancer %d", id)
	var out *remote.LoadBalancer
	err := c.read(ctx, op, func(ctx context.Context) error {
		l, _, err := c.api.LoadBalancer.GetByID(ctx, id)
		if err == nil && l == nil {
			return notFound(op)
		}
		if err == nil {
			out = fromLoadBalancer(l)
		}
		return err
	})
	return out, err
}

// SetLoadBalancer makes networks, services and targets what lb says. Each
// change locks the load balancer, so they go one after another.
func (c *Client) SetLoadBalancer(ctx context.Context, lb remote.LoadBalancer) error {
	now, err := c.LoadBalancer(ctx, lb.ID)
	if err != nil {
		return err
	}
	id := &hcloud.LoadBalancer{ID: lb.ID}
	op := "change load balancer " + now.Name
	for _, n := range lb.Networks {
		if slices.Contains(now.Networks, n) {
			continue
		}
		err := quiet(c.act(ctx, op, func(ctx context.Context) (*hcloud.Action, error) {
			a, _, err := c.api.LoadBalancer.AttachToNetwork(ctx, id, hcloud.LoadBalancerAttachToNetworkOpts{Network: &hcloud.Network{ID: n}})
			return a, err
		}), hcloud.ErrorCodeLoadBalancerAlreadyAttached)
		if err != nil {
			return err
		}
	}
	if err := c.setTargets(ctx, op, id, now.Targets, lb.Targets); err != nil {
		return err
	}
	return c.setServices(ctx, op, id, now.Services, lb.Services)
}

func (c *Client) setTargets(ctx context.Context, op string, id *hcloud.LoadBalancer, now, want []remote.LBTarget) error {
	same := func(a remote.LBTarget) func(remote.LBTarget) bool {
		return func(b remote.LBTarget) bool {
			return a.Server == b.Server && a.Selector == b.Selector && a.Private == b.Private
		}
	}
	for _, t := range now {
		if slices.ContainsFunc(want, same(t)) {
			continue
		}
		err := quiet(c.act(ctx, op, func(ctx context.Context) (*hcloud.Action, error) {
			if t.Server != 0 {
				a, _, err := c.api.LoadBalancer.RemoveServerTarget(ctx, id, &hcloud.Server{ID: t.Server})
				return a, err
			}
			a, _, err := c.api.LoadBalancer.RemoveLabelSelectorTarget(ctx, id, t.Selector)
			return a, err
		}), hcloud.ErrorCodeNotFound, "load_balancer_target_not_found")
		if err != nil {
			return err
		}
	}
	for _, t := range want {
		if slices.ContainsFunc(now, same(t)) {
			continue
		}
		err := quiet(c.act(ctx, op, func(ctx context.Context) (*hcloud.Action, error) {
			if t.Server != 0 {
				a, _, err := c.api.LoadBalancer.AddServerTarget(ctx, id, hcloud.LoadBalancerAddServerTargetOpts{Server: &hcloud.Server{ID: t.Server}, UsePrivateIP: &t.Private})
				return a, err
			}
			a, _, err := c.api.LoadBalancer.AddLabelSelectorTarget(ctx, id, hcloud.LoadBalancerAddLabelSelectorTargetOpts{Selector: t.Selector, UsePrivateIP: &t.Private})
			return a, err
		}), hcloud.ErrorCodeTargetAlreadyDefined)
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Client) setServices(ctx context.Context, op string, id *hcloud.LoadBalancer, now, want []remote.LBService) error {
	at := func(list []remote.LBService, port int) *remote.LBService {
		for i := range list {
			if list[i].Listen == port {
				return &list[i]
			}
		}
		return nil
	}
	for _, s := range now {
		if at(want, s.Listen) != nil {
			continue
		}
		err := quiet(c.act(ctx, op, func(ctx context.Context) (*hcloud.Action, error) {
			a, _, err := c.api.LoadBalancer.DeleteService(ctx, id, s.Listen)
			return a, err
		}), hcloud.ErrorCodeNotFound)
		if err != nil {
			return err
		}
	}
	for _, s := range want {
		s = filled(s)
		old := at(now, s.Listen)
		if old != nil && *old == s {
			continue
		}
		err := c.act(ctx, op, func(ctx context.Context) (*hcloud.Action, error) {
			if old == nil {
				a, _, err := c.api.LoadBalancer.AddService(ctx, id, hcloud.LoadBalancerAddServiceOpts{
					Protocol: hcloud.LoadBalancerServiceProtocolTCP, ListenPort: &s.Listen, DestinationPort: &s.Dest, HealthCheck: checkOf(s),
				})
				return a, err
			}
			a, _, err := c.api.LoadBalancer.UpdateService(ctx, id, s.Listen, hcloud.LoadBalancerUpdateServiceOpts{
				Protocol: hcloud.LoadBalancerServiceProtocolTCP, DestinationPort: &s.Dest, HealthCheck: updateOf(checkOf(s)),
			})
			return a, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func updateOf(h *hcloud.LoadBalancerAddServiceOptsHealthCheck) *hcloud.LoadBalancerUpdateServiceOptsHealthCheck {
	out := &hcloud.LoadBalancerUpdateServiceOptsHealthCheck{
		Protocol: h.Protocol, Port: h.Port, Interval: h.Interval, Timeout: h.Timeout, Retries: h.Retries,
	}
	if h.HTTP != nil {
		out.HTTP = &hcloud.LoadBalancerUpdateServiceOptsHealthCheckHTTP{Path: h.HTTP.Path, TLS: h.HTTP.TLS, StatusCodes: h.HTTP.StatusCodes}
	}
	return out
}

// DeleteLoadBalancer deletes a load balancer, or finds it gone.
func (c *Client) DeleteLoadBalancer(ctx context.Context, id int64) error {
	op := fmt.Sprintf("delete load balancer %d", id)
	return quiet(c.act(ctx, op, func(ctx context.Context) (*hcloud.Action, error) {
		r, _, err := c.api.LoadBalancer.DeleteWithResult(ctx, &hcloud.LoadBalancer{ID: id})
		return r.Action, err
	}), hcloud.ErrorCodeNotFound)
}
