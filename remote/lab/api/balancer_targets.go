package api

import (
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"hk/remote/lab/catalog"
	"hk/remote/lab/state"
)

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
