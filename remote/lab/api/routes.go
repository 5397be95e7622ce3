package api

import "net/http"

// routes registers everything the API answers.
func (s *Server) routes() {
	registerKind(s, sshKeyKind())
	s.handle("POST /ssh_keys", s.createSSHKey)
	s.handle("DELETE /ssh_keys/{id}", s.deleteSSHKey)

	registerKind(s, placementGroupKind())
	s.handle("POST /placement_groups", s.createPlacementGroup)
	s.handle("DELETE /placement_groups/{id}", s.deletePlacementGroup)

	registerKind(s, networkKind())
	s.routesNetworks()

	firewalls := firewallKind()
	registerKind(s, firewalls)
	s.routesFirewalls()

	servers := serverKind()
	servers.renamed = s.relabelled
	registerKind(s, servers)
	s.routesServers()

	s.routesBalancers()
	s.routesActions()
	s.routesCatalog()
	s.routesMissing()
	s.mux.HandleFunc("/", s.noRoute)
}

// routesMissing are parts of things the lab has that it does not have yet.
func (s *Server) routesMissing() {
	for _, pattern := range []string{
		"GET /servers/{id}/metrics", "GET /load_balancers/{id}/metrics", "PUT /images/{id}", "DELETE /images/{id}",
		"POST /images/{id}/actions/change_protection",
	} {
		s.handle(pattern, func(r *request) (int, any, error) {
			return 0, nil, fail("unsupported_error", "the lab cannot %s %s yet", r.Method, r.URL.Path)
		})
	}
}

// noRoute answers what no route takes: another method might be.
func (s *Server) noRoute(w http.ResponseWriter, r *http.Request) {
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = method
		if _, pattern := s.mux.Handler(other); pattern != "/" && pattern != "" {
			replyError(w, fail("method_not_allowed", "method %s is not allowed for %s", r.Method, r.URL.Path))
			return
		}
	}
	replyError(w, fail("not_found", "API endpoint not found: %s %s", r.Method, r.URL.Path))
}

// workers does the actions, by command.
func (s *Server) workers() map[string]worker {
	return map[string]worker{
		"create_server":       s.workCreate,
		"start_server":        s.workStart,
		"stop_server":         s.workStop,
		"reset_server":        s.workReset,
		"shutdown_server":     s.workShutdown,
		"reboot_server":       s.workReboot,
		"rebuild_server":      s.workRebuild,
		"delete_server":       s.workDelete,
		"change_server_type":  s.workChangeType,
		"attach_to_network":   s.workAttachAny,
		"detach_from_network": s.workDetachAny,

		"add_subnet":        s.workNetwork,
		"delete_subnet":     s.workNetwork,
		"add_route":         s.workNetwork,
		"delete_route":      s.workNetwork,
		"change_ip_range":   s.workNetwork,
		"change_protection": s.workNetwork,

		"set_firewall_rules": s.workRules,
		"apply_firewall":     s.workRules,
		"remove_firewall":    s.workRules,

		"create_load_balancer":      s.workBalancer,
		"delete_load_balancer":      s.workDeleteBalancer,
		"add_service":               s.workBalancer,
		"update_service":            s.workBalancer,
		"delete_service":            s.workBalancer,
		"add_target":                s.workBalancer,
		"remove_target":             s.workBalancer,
		"change_algorithm":          s.workBalancer,
		"change_load_balancer_type": s.workBalancer,
		"enable_public_interface":   s.workBalancer,
		"disable_public_interface":  s.workBalancer,
	}
}
