package cluster

import (
	"context"
	"maps"
	"slices"
	"sync"

	"hk/remote"
)

// guard stands before every write of a build: none starts without a lease, and
// no probe of a build either once the lease is lost.
type guard struct {
	check func() error // for writes
	alive func() error // for probes

	mu  sync.Mutex
	inv *remote.Inventory         // as discovered, with what was made since
	log []func(*remote.Inventory) // what was made, in order
}

func (g *guard) found() *remote.Inventory {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.inv
}

func (g *guard) saw(inv *remote.Inventory) {
	g.mu.Lock()
	g.inv = inv
	g.mu.Unlock()
}

// looking begins a look; its end takes the answer and adds what was made
// meanwhile, which the answer may be too old to hold.
func (g *guard) looking() (end func(*remote.Inventory)) {
	g.mu.Lock()
	from := len(g.log)
	g.mu.Unlock()
	return func(answer *remote.Inventory) {
		g.mu.Lock()
		defer g.mu.Unlock()
		inv := *answer
		for _, add := range g.log[from:] {
			add(&inv)
		}
		g.inv = &inv
	}
}

// made adds to what is known, without touching what others may be reading.
func (g *guard) made(add func(inv *remote.Inventory)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.log = append(g.log, add)
	if g.inv == nil {
		return
	}
	inv := *g.inv
	add(&inv)
	g.inv = &inv
}

// guardedCloud asks the guard before each write and keeps the inventory up to
// date, so that finding what was just made takes no call.
type guardedCloud struct {
	remote.Cloud
	g *guard
}

func with[T any](list []T, id func(*T) int64, o T) []T {
	out := slices.DeleteFunc(slices.Clone(list), func(e T) bool { return id(&e) == id(&o) })
	return append(out, o)
}

func without[T any](list []T, id func(*T) int64, gone int64) []T {
	return slices.DeleteFunc(slices.Clone(list), func(e T) bool { return id(&e) == gone })
}

func serverID(o *remote.Server) int64         { return o.ID }
func networkID(o *remote.Network) int64       { return o.ID }
func firewallID(o *remote.Firewall) int64     { return o.ID }
func groupID(o *remote.PlacementGroup) int64  { return o.ID }
func sshKeyID(o *remote.SSHKey) int64         { return o.ID }
func balancerID(o *remote.LoadBalancer) int64 { return o.ID }

// Inventory keeps what it sees.
func (c *guardedCloud) Inventory(ctx context.Context) (*remote.Inventory, error) {
	end := c.g.looking()
	inv, err := c.Cloud.Inventory(ctx)
	if err == nil {
		end(inv)
	}
	return inv, err
}

// Server keeps what it sees.
func (c *guardedCloud) Server(ctx context.Context, id int64) (*remote.Server, error) {
	s, err := c.Cloud.Server(ctx, id)
	if err == nil {
		c.g.made(func(inv *remote.Inventory) { inv.Servers = with(inv.Servers, serverID, *s) })
	}
	return s, err
}

func (c *guardedCloud) CreateServer(ctx context.Context, spec remote.ServerSpec) (*remote.Server, error) {
	if err := c.g.check(); err != nil {
		return nil, err
	}
	s, err := c.Cloud.CreateServer(ctx, spec)
	if err == nil {
		c.g.made(func(inv *remote.Inventory) { inv.Servers = with(inv.Servers, serverID, *s) })
	}
	return s, err
}

func (c *guardedCloud) LabelServer(ctx context.Context, id int64, labels map[string]string) error {
	if err := c.g.check(); err != nil {
		return err
	}
	err := c.Cloud.LabelServer(ctx, id, labels)
	if err == nil {
		c.g.made(func(inv *remote.Inventory) {
			for i := range inv.Servers {
				if inv.Servers[i].ID == id {
					s := inv.Servers[i]
					s.Labels = maps.Clone(labels)
					inv.Servers = with(inv.Servers, serverID, s)
					return
				}
			}
		})
	}
	return err
}

func (c *guardedCloud) DeleteServer(ctx context.Context, id int64) error {
	return c.write(func() error { return c.Cloud.DeleteServer(ctx, id) }, func(inv *remote.Inventory) {
		inv.Servers = without(inv.Servers, serverID, id)
	})
}

// write is a guarded call. What it changes of an object that stays is not
// written into the inventory: whoever must know looks at the cloud again, and
// the object must not seem to be gone meanwhile.
func (c *guardedCloud) write(call func() error, then func(*remote.Inventory)) error {
	if err := c.g.check(); err != nil {
		return err
	}
	err := call()
	if err == nil && then != nil {
		c.g.made(then)
	}
	return err
}

func (c *guardedCloud) PowerOn(ctx context.Context, id int64) error {
	return c.write(func() error { return c.Cloud.PowerOn(ctx, id) }, nil)
}

func (c *guardedCloud) AttachNetwork(ctx context.Context, server, network int64) error {
	return c.write(func() error { return c.Cloud.AttachNetwork(ctx, server, network) }, nil)
}

func (c *guardedCloud) CreateNetwork(ctx context.Context, n remote.Network, zone string) (*remote.Network, error) {
	if err := c.g.check(); err != nil {
		return nil, err
	}
	o, err := c.Cloud.CreateNetwork(ctx, n, zone)
	if err == nil {
		c.g.made(func(inv *remote.Inventory) { inv.Networks = with(inv.Networks, networkID, *o) })
	}
	return o, err
}

func (c *guardedCloud) DeleteNetwork(ctx context.Context, id int64) error {
	return c.write(func() error { return c.Cloud.DeleteNetwork(ctx, id) }, func(inv *remote.Inventory) {
		inv.Networks = without(inv.Networks, networkID, id)
	})
}

func (c *guardedCloud) CreateFirewall(ctx context.Context, f remote.Firewall) (*remote.Firewall, error) {
	if err := c.g.check(); err != nil {
		return nil, err
	}
	o, err := c.Cloud.CreateFirewall(ctx, f)
	if err == nil {
		c.g.made(func(inv *remote.Inventory) { inv.Firewalls = with(inv.Firewalls, firewallID, *o) })
	}
	return o, err
}

func (c *guardedCloud) SetFirewallRules(ctx context.Context, id int64, rules []remote.Rule) error {
	return c.write(func() error { return c.Cloud.SetFirewallRules(ctx, id, rules) }, nil)
}

func (c *guardedCloud) ApplyFirewall(ctx context.Context, id int64, servers []int64) error {
	return c.write(func() error { return c.Cloud.ApplyFirewall(ctx, id, servers) }, nil)
}

func (c *guardedCloud) LabelFirewall(ctx context.Context, id int64, labels map[string]string) error {
	return c.write(func() error { return c.Cloud.LabelFirewall(ctx, id, labels) }, nil)
}

func (c *guardedCloud) DeleteFirewall(ctx context.Context, id int64) error {
	return c.write(func() error { return c.Cloud.DeleteFirewall(ctx, id) }, func(inv *remote.Inventory) {
		inv.Firewalls = without(inv.Firewalls, firewallID, id)
	})
}

func (c *guardedCloud) CreatePlacementGroup(ctx context.Context, p remote.PlacementGroup) (*remote.PlacementGroup, error) {
	if err := c.g.check(); err != nil {
		return nil, err
	}
	o, err := c.Cloud.CreatePlacementGroup(ctx, p)
	if err == nil {
		c.g.made(func(inv *remote.Inventory) { inv.PlacementGroups = with(inv.PlacementGroups, groupID, *o) })
	}
	return o, err
}

func (c *guardedCloud) DeletePlacementGroup(ctx context.Context, id int64) error {
	return c.write(func() error { return c.Cloud.DeletePlacementGroup(ctx, id) }, func(inv *remote.Inventory) {
		inv.PlacementGroups = without(inv.PlacementGroups, groupID, id)
	})
}

func (c *guardedCloud) CreateSSHKey(ctx context.Context, k remote.SSHKey) (*remote.SSHKey, error) {
	if err := c.g.check(); err != nil {
		return nil, err
	}
	o, err := c.Cloud.CreateSSHKey(ctx, k)
	if err == nil {
		c.g.made(func(inv *remote.Inventory) { inv.SSHKeys = with(inv.SSHKeys, sshKeyID, *o) })
	}
	return o, err
}

func (c *guardedCloud) DeleteSSHKey(ctx context.Context, id int64) error {
	return c.write(func() error { return c.Cloud.DeleteSSHKey(ctx, id) }, func(inv *remote.Inventory) {
		inv.SSHKeys = without(inv.SSHKeys, sshKeyID, id)
	})
}

func (c *guardedCloud) CreateLoadBalancer(ctx context.Context, lb remote.LoadBalancer) (*remote.LoadBalancer, error) {
	if err := c.g.check(); err != nil {
		return nil, err
	}
	o, err := c.Cloud.CreateLoadBalancer(ctx, lb)
	if err == nil {
		c.g.made(func(inv *remote.Inventory) { inv.LoadBalancers = with(inv.LoadBalancers, balancerID, *o) })
	}
	return o, err
}

func (c *guardedCloud) SetLoadBalancer(ctx context.Context, lb remote.LoadBalancer) error {
	return c.write(func() error { return c.Cloud.SetLoadBalancer(ctx, lb) }, nil)
}

func (c *guardedCloud) DeleteLoadBalancer(ctx context.Context, id int64) error {
	return c.write(func() error { return c.Cloud.DeleteLoadBalancer(ctx, id) }, func(inv *remote.Inventory) {
		inv.LoadBalancers = without(inv.LoadBalancers, balancerID, id)
	})
}
