package hcloud

import (
	"context"
	"fmt"
	"strconv"

	"github.com/hetznercloud/hcloud-go/v2/hcloud"

	"hk/remote"
)

// CreateServer creates a server and waits for its actions. If they fail after
// the server came into being, it is returned beside the error.
func (c *Client) CreateServer(ctx context.Context, s remote.ServerSpec) (*remote.Server, error) {
	op := "create server " + s.Name
	if len(s.SSHKeys) == 0 {
		// Hetzner would mail a root password to the project's owner.
		return nil, &remote.CloudError{Op: op, Code: "invalid_input", Message: "bug: a server without an SSH key"}
	}
	opts := hcloud.ServerCreateOpts{
		Name: s.Name, ServerType: &hcloud.ServerType{Name: s.Type}, Image: imageOf(s.Image),
		Location: &hcloud.Location{Name: s.Location}, Labels: s.Labels, UserData: s.UserData,
	}
	for _, id := range s.SSHKeys {
		opts.SSHKeys = append(opts.SSHKeys, &hcloud.SSHKey{ID: id})
	}
	for _, id := range s.Networks {
		opts.Networks = append(opts.Networks, &hcloud.Network{ID: id})
	}
	for _, id := range s.Firewalls {
		opts.Firewalls = append(opts.Firewalls, &hcloud.ServerCreateFirewall{Firewall: hcloud.Firewall{ID: id}})
	}
	if s.Placement != 0 {
		opts.PlacementGroup = &hcloud.PlacementGroup{ID: s.Placement}
	}
	var r hcloud.ServerCreateResult
	err := c.write(ctx, op, func(ctx context.Context) (err error) {
		r, _, err = c.api.Server.Create(ctx, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := fromServer(r.Server)
	if err := c.wait.all(ctx, op, append(r.NextActions, r.Action)...); err != nil {
		return out, err
	}
	if len(s.Networks) == 0 {
		return out, nil
	}
	// Private addresses are there only after the attach action.
	now, err := c.Server(ctx, out.ID)
	if err != nil {
		return out, err
	}
	return now, nil
}

// imageOf is an image by ID, as snapshots have no name, or by name.
func imageOf(image string) *hcloud.Image {
	if id, err := strconv.ParseInt(image, 10, 64); err == nil {
		return &hcloud.Image{ID: id}
	}
	return &hcloud.Image{Name: image}
}

// LabelServer makes the server's labels exactly these.
func (c *Client) LabelServer(ctx context.Context, id int64, labels map[string]string) error {
	return c.write(ctx, fmt.Sprintf("label server %d", id), func(ctx context.Context) error {
		_, _, err := c.api.Server.Update(ctx, &hcloud.Server{ID: id}, hcloud.ServerUpdateOpts{Labels: labels})
		return err
	})
}

// DeleteServer deletes a server and waits until it is gone.
func (c *Client) DeleteServer(ctx context.Context, id int64) error {
	op := fmt.Sprintf("delete server %d", id)
	return quiet(c.act(ctx, op, func(ctx context.Context) (*hcloud.Action, error) {
		r, _, err := c.api.Server.DeleteWithResult(ctx, &hcloud.Server{ID: id})
		if err != nil {
			return nil, err
		}
		return r.Action, nil
	}), hcloud.ErrorCodeNotFound)
}

// PowerOn starts a server.
func (c *Client) PowerOn(ctx context.Context, id int64) error {
	return c.act(ctx, fmt.Sprintf("power on server %d", id), func(ctx context.Context) (*hcloud.Action, error) {
		a, _, err := c.api.Server.Poweron(ctx, &hcloud.Server{ID: id})
		return a, err
	})
}

// AttachNetwork attaches a server to a network, or finds it attached.
func (c *Client) AttachNetwork(ctx context.Context, server, network int64) error {
	op := fmt.Sprintf("attach server %d to network %d", server, network)
	return quiet(c.act(ctx, op, func(ctx context.Context) (*hcloud.Action, error) {
		a, _, err := c.api.Server.AttachToNetwork(ctx, &hcloud.Server{ID: server}, hcloud.ServerAttachToNetworkOpts{Network: &hcloud.Network{ID: network}})
		return a, err
	}), hcloud.ErrorCodeServerAlreadyAttached)
}

// act does what answers with one action and waits for it.
func (c *Client) act(ctx context.Context, op string, f func(context.Context) (*hcloud.Action, error)) error {
	return c.acts(ctx, op, func(ctx context.Context) ([]*hcloud.Action, error) {
		a, err := f(ctx)
		return []*hcloud.Action{a}, err
	})
}

// acts does what answers with actions and waits for all of them.
func (c *Client) acts(ctx context.Context, op string, f func(context.Context) ([]*hcloud.Action, error)) error {
	var a []*hcloud.Action
	err := c.write(ctx, op, func(ctx context.Context) (err error) {
		a, err = f(ctx)
		return err
	})
	if err != nil {
		return err
	}
	return c.wait.all(ctx, op, a...)
}
