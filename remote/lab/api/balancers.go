package api

import (
	"net/http"
	"slices"

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
