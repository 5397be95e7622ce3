package hcloud

import (
	"fmt"
	"net"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"hk/remote"
)

func fromServer(s *hcloud.Server) *remote.Server {
	out := &remote.Server{
		ID: s.ID, Name: s.Name, Status: string(s.Status), Labels: s.Labels, Created: s.Created,
		Protected: s.Protection.Delete, Private: map[int64]string{}, MACs: map[int64]string{},
	}
	if s.ServerType != nil {
		out.Type = s.ServerType.Name
	}
	if s.Image != nil {
		out.Image = s.Image.Name
	}
	if s.Location != nil {
		out.Location = s.Location.Name
	}
	if !s.PublicNet.IPv4.IsUnspecified() {
		out.IPv4 = s.PublicNet.IPv4.IP.String()
	}
	for _, n := range s.PrivateNet {
		out.Private[n.Network.ID] = n.IP.String()
		out.MACs[n.Network.ID] = n.MACAddress
	}
	if s.PlacementGroup != nil {
		out.Placement = s.PlacementGroup.ID
	}
	for _, f := range s.PublicNet.Firewalls {
		out.Firewalls = append(out.Firewalls, f.Firewall.ID)
	}
	return out
}

func fromNetwork(n *hcloud.Network) *remote.Network {
	out := &remote.Network{ID: n.ID, Name: n.Name, Labels: n.Labels}
	if n.IPRange != nil {
		out.Range = n.IPRange.String()
	}
	for _, s := range n.Subnets {
		if s.IPRange != nil {
			out.Subnets = append(out.Subnets, s.IPRange.String())
		}
	}
	return out
}

func fromFirewall(f *hcloud.Firewall) *remote.Firewall {
	out := &remote.Firewall{ID: f.ID, Name: f.Name, Labels: f.Labels, Created: f.Created}
	for _, r := range f.Rules {
		if r.Direction != hcloud.FirewallRuleDirectionIn {
			continue
		}
		rule := remote.Rule{Protocol: string(r.Protocol)}
		if r.Port != nil {
			rule.Port = *r.Port
		}
		if r.Description != nil {
			rule.Note = *r.Description
		}
		for _, s := range r.SourceIPs {
			rule.Sources = append(rule.Sources, s.String())
		}
		out.Rules = append(out.Rules, rule)
	}
	for _, a := range f.AppliedTo {
		if a.Server != nil {
			out.Servers = append(out.Servers, a.Server.ID)
		}
	}
	return out
}

func toRules(rules []remote.Rule) ([]hcloud.FirewallRule, error) {
	out := []hcloud.FirewallRule{} // not nil: none means remove all
	for _, r := range rules {
		rule := hcloud.FirewallRule{Direction: hcloud.FirewallRuleDirectionIn, Protocol: hcloud.FirewallRuleProtocol(r.Protocol)}
		if r.Port != "" {
			rule.Port = &r.Port
		}
		if r.Note != "" {
			rule.Description = &r.Note
		}
		for _, s := range r.Sources {
			_, n, err := net.ParseCIDR(s)
			if err != nil {
				return nil, fmt.Errorf("source of a firewall rule: %w", err)
			}
			rule.SourceIPs = append(rule.SourceIPs, *n)
		}
		out = append(out, rule)
	}
	return out, nil
}

func fromPlacementGroup(g *hcloud.PlacementGroup) *remote.PlacementGroup {
	return &remote.PlacementGroup{ID: g.ID, Name: g.Name, Servers: g.Servers, Labels: g.Labels}
}

func fromSSHKey(k *hcloud.SSHKey) *remote.SSHKey {
	return &remote.SSHKey{ID: k.ID, Name: k.Name, PublicKey: k.PublicKey, Fingerprint: k.Fingerprint, Labels: k.Labels}
}

func fromImage(i *hcloud.Image) *remote.Image {
	return &remote.Image{
		ID: i.ID, Name: i.Name, Description: i.Description, Type: string(i.Type), Arch: string(i.Architecture), Labels: i.Labels,
	}
}

func fromServerType(t *hcloud.ServerType) *remote.ServerType {
	out := &remote.ServerType{
		Name: t.Name, Arch: string(t.Architecture), Cores: t.Cores, MemoryGB: float64(t.Memory),
		Available: map[string]bool{}, Deprecated: map[string]bool{}, Price: map[string]float64{},
	}
	for _, p := range t.Pricings {
		out.Price[p.Location.Name] = price(p.Monthly)
	}
	for _, l := range t.Locations {
		out.Available[l.Location.Name] = l.Available
		out.Deprecated[l.Location.Name] = l.IsDeprecated()
	}
	return out
}

type lbType struct {
	name   string
	prices map[string]float64
}

func fromLBType(t *hcloud.LoadBalancerType) *lbType {
	out := &lbType{t.Name, map[string]float64{}}
	for _, p := range t.Pricings {
		out.prices[p.Location.Name] = price(p.Monthly)
	}
	return out
}
