package hcloud

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"hk/remote"
)

// CreateNetwork creates a network with its subnets in one zone.
func (c *Client) CreateNetwork(ctx context.Context, n remote.Network, zone string) (*remote.Network, error) {
	op := "create network " + n.Name
	_, all, err := net.ParseCIDR(n.Range)
	if err != nil {
		return nil, classifyInput(op, err)
	}
	opts := hcloud.NetworkCreateOpts{Name: n.Name, IPRange: all, Labels: n.Labels}
	for _, s := range n.Subnets {
		_, r, err := net.ParseCIDR(s)
		if err != nil {
			return nil, classifyInput(op, err)
		}
		opts.Subnets = append(opts.Subnets, hcloud.NetworkSubnet{
			Type: hcloud.NetworkSubnetTypeCloud, IPRange: r, NetworkZone: hcloud.NetworkZone(zone),
		})
	}
	var out *remote.Network
	err = c.write(ctx, op, func(ctx context.Context) error {
		got, _, err := c.api.Network.Create(ctx, opts)
		if err == nil {
			out = fromNetwork(got)
		}
		return err
	})
	return out, err
}

func classifyInput(op string, err error) error {
	return &remote.CloudError{Op: op, Code: "invalid_input", Message: err.Error(), Err: err}
}

// DeleteNetwork deletes a network, or finds it gone.
func (c *Client) DeleteNetwork(ctx context.Context, id int64) error {
	return quiet(c.write(ctx, fmt.Sprintf("delete network %d", id), func(ctx context.Context) error {
		_, err := c.api.Network.Delete(ctx, &hcloud.Network{ID: id})
		return err
	}), hcloud.ErrorCodeNotFound)
}

// CreateFirewall creates a firewall and applies it to its servers.
func (c *Client) CreateFirewall(ctx context.Context, f remote.Firewall) (*remote.Firewall, error) {
	op := "create firewall " + f.Name
	rules, err := toRules(f.Rules)
	if err != nil {
		return nil, classifyInput(op, err)
	}
	opts := hcloud.FirewallCreateOpts{Name: f.Name, Labels: f.Labels, Rules: rules, ApplyTo: resources(f.Servers)}
	var r hcloud.FirewallCreateResult
	err = c.write(ctx, op, func(ctx context.Context) (err error) {
		r, _, err = c.api.Firewall.Create(ctx, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return fromFirewall(r.Firewall), c.wait.all(ctx, op, r.Actions...)
}

func resources(servers []int64) []hcloud.FirewallResource {
	var out []hcloud.FirewallResource
	for _, id := range servers {
		out = append(out, hcloud.FirewallResource{Type: hcloud.FirewallResourceTypeServer, Server: &hcloud.FirewallResourceServer{ID: id}})
	}
	return out
}

// SetFirewallRules makes the inbound rules exactly these.
func (c *Client) SetFirewallRules(ctx context.Context, id int64, rules []remote.Rule) error {
	op := fmt.Sprintf("set rules of firewall %d", id)
	r, err := toRules(rules)
	if err != nil {
		return classifyInput(op, err)
	}
	return c.acts(ctx, op, func(ctx context.Context) ([]*hcloud.Action, error) {
		a, _, err := c.api.Firewall.SetRules(ctx, &hcloud.Firewall{ID: id}, hcloud.FirewallSetRulesOpts{Rules: r})
		return a, err
	})
}

// ApplyFirewall applies a firewall to servers; those that have it stay.
func (c *Client) ApplyFirewall(ctx context.Context, id int64, servers []int64) error {
	if len(servers) == 0 {
		return nil
	}
	op := fmt.Sprintf("apply firewall %d", id)
	apply := func(servers []int64) error {
		return c.acts(ctx, op, func(ctx context.Context) ([]*hcloud.Action, error) {
			a, _, err := c.api.Firewall.ApplyResources(ctx, &hcloud.Firewall{ID: id}, resources(servers))
			return a, err
		})
	}
	err := apply(servers)
	var ce *remote.CloudError
	if !errors.As(err, &ce) || ce.Code != string(hcloud.ErrorCodeFirewallAlreadyApplied) {
		return err
	}
	// One of them has it, and the API refuses all: apply it to the others.
	var now *remote.Firewall
	err = c.read(ctx, op, func(ctx context.Context) error {
		f, _, err := c.api.Firewall.GetByID(ctx, id)
		if err == nil && f == nil {
			return notFound(op)
		}
		if err == nil {
			now = fromFirewall(f)
		}
		return err
	})
	if err != nil {
		return err
	}
	var left []int64
	for _, s := range servers {
		if !slices.Contains(now.Servers, s) {
			left = append(left, s)
		}
	}
	if len(left) == 0 {
		return nil
	}
	return quiet(apply(left), hcloud.ErrorCodeFirewallAlreadyApplied)
}

// LabelFirewall makes the firewall's labels exactly these.
func (c *Client) LabelFirewall(ctx context.Context, id int64, labels map[string]string) error {
	return c.write(ctx, fmt.Sprintf("label firewall %d", id), func(ctx context.Context) error {
		_, _, err := c.api.Firewall.Update(ctx, &hcloud.Firewall{ID: id}, hcloud.FirewallUpdateOpts{Labels: labels})
		return err
	})
}

// DeleteFirewall deletes a firewall, or finds it gone.
func (c *Client) DeleteFirewall(ctx context.Context, id int64) error {
	return quiet(c.write(ctx, fmt.Sprintf("delete firewall %d", id), func(ctx context.Context) error {
		_, err := c.api.Firewall.Delete(ctx, &hcloud.Firewall{ID: id})
		return err
	}), hcloud.ErrorCodeNotFound)
}

// CreatePlacementGroup creates a group that spreads its servers.
func (c *Client) CreatePlacementGroup(ctx context.Context, g remote.PlacementGroup) (*remote.PlacementGroup, error) {
	op := "create placement group " + g.Name
	var r hcloud.PlacementGroupCreateResult
	err := c.write(ctx, op, func(ctx context.Context) (err error) {
		r, _, err = c.api.PlacementGroup.Create(ctx, hcloud.PlacementGroupCreateOpts{
			Name: g.Name, Labels: g.Labels, Type: hcloud.PlacementGroupTypeSpread,
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return fromPlacementGroup(r.PlacementGroup), c.wait.all(ctx, op, r.Action)
}

// DeletePlacementGroup deletes a placement group, or finds it gone.
func (c *Client) DeletePlacementGroup(ctx context.Context, id int64) error {
	return quiet(c.write(ctx, fmt.Sprintf("delete placement group %d", id), func(ctx context.Context) error {
		_, err := c.api.PlacementGroup.Delete(ctx, &hcloud.PlacementGroup{ID: id})
		return err
	}), hcloud.ErrorCodeNotFound)
}

// CreateSSHKey makes a public key known to the cloud.
func (c *Client) CreateSSHKey(ctx context.Context, k remote.SSHKey) (*remote.SSHKey, error) {
	var out *remote.SSHKey
	err := c.write(ctx, "create SSH key "+k.Name, func(ctx context.Context) error {
		got, _, err := c.api.SSHKey.Create(ctx, hcloud.SSHKeyCreateOpts{
			// Blanks at its end would make the key differ from ours for ever.
			Name: k.Name, PublicKey: strings.TrimSpace(k.PublicKey), Labels: k.Labels,
		})
		if err == nil {
			out = fromSSHKey(got)
		}
		return err
	})
	return out, err
}

// DeleteSSHKey deletes a public key, or finds it gone.
func (c *Client) DeleteSSHKey(ctx context.Context, id int64) error {
	return quiet(c.write(ctx, fmt.Sprintf("delete SSH key %d", id), func(ctx context.Context) error {
		_, err := c.api.SSHKey.Delete(ctx, &hcloud.SSHKey{ID: id})
		return err
	}), hcloud.ErrorCodeNotFound)
}
