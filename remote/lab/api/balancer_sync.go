package api

import (
	"context"
	"encoding/json"
	"net/netip"
	"strconv"
	"time"

	"hk/remote/lab/state"
)

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
