package sim

import (
	"context"
	"crypto/md5" //nolint:gosec // the cloud identifies SSH keys by MD5
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"hk/remote"
)

// Cloud is the simulated cloud of one project.
type Cloud struct {
	w     *World
	calls atomic.Int64
}

// Cloud returns the world's cloud.
func (w *World) Cloud() *Cloud { return &Cloud{w: w} }

var _ remote.Cloud = (*Cloud)(nil)

// server is a machine as the world keeps it.
type server struct {
	remote.Server
	UserData string
	Boot     int // counts starts
	Disk     int // counts disks: a rebuild makes a new one
}

func cloudErr(op, code string, status int, format string, args ...any) error {
	again := code == "locked" || code == "conflict" || code == "rate_limit_exceeded"
	return &remote.CloudError{Op: op, Code: code, Status: status, Again: again, Message: fmt.Sprintf(format, args...)}
}

func notFound(op string) error {
	return &remote.CloudError{Op: op, Code: "not_found", Status: 404, Message: "not found", Err: remote.ErrNotFound}
}

// Inventory counts as the six calls it is on the real one.
func (c *Cloud) Inventory(ctx context.Context) (*remote.Inventory, error) {
	c.calls.Add(6)
	inv := &remote.Inventory{Time: c.w.now()}
	err := c.w.view(ctx, "cloud list", func(t *tx) error {
		for _, k := range t.keys("server/") {
			s, _ := load[server](t, k)
			inv.Servers = append(inv.Servers, s.Server)
		}
		inv.Networks = all[remote.Network](t, "network/")
		inv.Firewalls = all[remote.Firewall](t, "firewall/")
		inv.PlacementGroups = all[remote.PlacementGroup](t, "placement/")
		inv.LoadBalancers = all[remote.LoadBalancer](t, "lb/")
		inv.SSHKeys = all[remote.SSHKey](t, "sshkey/")
		return nil
	})
	for i := range inv.LoadBalancers {
		c.health(ctx, &inv.LoadBalancers[i])
	}
	return inv, err
}

func all[T any](t *tx, prefix string) []T {
	var out []T
	for _, k := range t.keys(prefix) {
		v, _ := load[T](t, k)
		out = append(out, v)
	}
	return out
}

// Catalog is a small one with real names.
func (c *Cloud) Catalog(context.Context) (*remote.Catalog, error) {
	c.calls.Add(4)
	locations := map[string]string{"fsn1": "eu-central", "nbg1": "eu-central", "hel1": "eu-central", "ash": "us-east", "hil": "us-west", "sin": "ap-southeast"}
	cat := &remote.Catalog{Locations: locations, Currency: "EUR", ServerTypes: map[string]remote.ServerType{}, LBTypes: map[string]map[string]float64{"lb11": {}}}
	for name, spec := range map[string][3]float64{"cx23": {2, 4, 3.49}, "cx33": {4, 8, 5.49}, "cx43": {8, 16, 9.49}, "cpx22": {2, 4, 6.49}} {
		st := remote.ServerType{Name: name, Arch: "x86", Cores: int(spec[0]), MemoryGB: spec[1], Available: map[string]bool{}, Deprecated: map[string]bool{}, Price: map[string]float64{}}
		for l := range locations {
			st.Available[l], st.Price[l] = true, spec[2]
		}
		cat.ServerTypes[name] = st
	}
	for l := range locations {
		cat.LBTypes["lb11"][l] = 5.39
	}
	cat.Images = []remote.Image{
		{ID: 1, Name: "debian-12", Type: "system", Arch: "x86", Description: "Debian 12"},
		{ID: 2, Type: "snapshot", Arch: "x86", Description: "hk-snapshot", Labels: map[string]string{"name": "hk-snapshot"}},
	}
	return cat, nil
}

// Usage counts the requests the real client would have sent.
func (c *Cloud) Usage() remote.Usage {
	n := c.calls.Load()
	return remote.Usage{Calls: n, Limit: 3600, Remaining: int(max(0, 3600-n))}
}

// unique refuses a name that an object of the same kind has.
func unique(t *tx, prefix, name, op string, nameOf func(key string) string) error {
	for _, k := range t.keys(prefix) {
		if nameOf(k) == name {
			return cloudErr(op, "uniqueness_error", 409, "name %q is already used", name)
		}
	}
	return nil
}

func named[T any](t *tx, name func(T) string) func(string) string {
	return func(key string) string { v, _ := load[T](t, key); return name(v) }
}

// CreateServer makes a machine that is running when it returns.
func (c *Cloud) CreateServer(ctx context.Context, s remote.ServerSpec) (*remote.Server, error) {
	c.calls.Add(3)
	var out remote.Server
	op := "create server " + s.Name
	err := c.w.update(ctx, "create-server", func(t *tx) error {
		if err := unique(t, "server/", s.Name, op, named(t, func(v server) string { return v.Name })); err != nil {
			return err
		}
		if len(s.UserData) > 32<<10 {
			return cloudErr(op, "invalid_input", 422, "user_data is too long")
		}
		if s.Image != "debian-12" && s.Image != "hk-snapshot" {
			return cloudErr(op, "invalid_input", 422, "image %q not found", s.Image)
		}
		id := t.next()
		v := server{UserData: s.UserData, Boot: 1, Disk: 1, Server: remote.Server{
			ID: id, Name: s.Name, Status: "running", Type: s.Type, Image: s.Image, Location: s.Location,
			Labels: maps.Clone(s.Labels), IPv4: fmt.Sprintf("198.18.%d.%d", id/250%250, id%250+1),
			Private: map[int64]string{}, MACs: map[int64]string{}, Created: c.w.now(), Placement: s.Placement,
			Firewalls: slices.Clone(s.Firewalls),
		}}
		for _, n := range s.Networks {
			if !t.has(key("network", n)) {
				return cloudErr(op, "invalid_input", 422, "network %d not found", n)
			}
			attach(t, &v, n)
		}
		for _, f := range s.Firewalls {
			if !t.has(key("firewall", f)) {
				return cloudErr(op, "invalid_input", 422, "firewall %d not found", f)
			}
		}
		if err := place(t, op, s.Placement, id); err != nil {
			return err
		}
		store(t, key("server", id), v)
		bootHost(t, &v)
		out = v.Server
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

func key(kind string, id int64) string { return fmt.Sprintf("%s/%d", kind, id) }

func attach(t *tx, v *server, network int64) {
	n, _ := load[remote.Network](t, key("network", network))
	octets := strings.Split(strings.Split(n.Range, "/")[0], ".")
	v.Private[network] = fmt.Sprintf("%s.%s.%d.%d", octets[0], octets[1], v.ID/250%250, v.ID%250+2)
	v.MACs[network] = fmt.Sprintf("86:00:00:%02x:%02x:%02x", v.ID>>16&0xff, v.ID>>8&0xff, v.ID&0xff)
}

// place puts a server into a spread group, which takes ten.
func place(t *tx, op string, group, id int64) error {
	if group == 0 {
		return nil
	}
	g, ok := load[remote.PlacementGroup](t, key("placement", group))
	if !ok {
		return cloudErr(op, "invalid_input", 422, "placement group %d not found", group)
	}
	if len(g.Servers) >= 10 {
		return cloudErr(op, "placement_error", 422, "the placement group is full")
	}
	g.Servers = append(g.Servers, id)
	store(t, key("placement", group), g)
	return nil
}

// Server returns one machine.
func (c *Cloud) Server(ctx context.Context, id int64) (*remote.Server, error) {
	c.calls.Add(1)
	var out *remote.Server
	err := c.w.view(ctx, "get-server", func(t *tx) error {
		if v, ok := load[server](t, key("server", id)); ok {
			out = &v.Server
			return nil
		}
		return notFound("get server")
	})
	return out, err
}

func (c *Cloud) onServer(ctx context.Context, call string, id int64, fn func(*tx, *server) error) error {
	c.calls.Add(1)
	return c.w.update(ctx, call, func(t *tx) error {
		v, ok := load[server](t, key("server", id))
		if !ok {
			return notFound(call)
		}
		if err := fn(t, &v); err != nil {
			return err
		}
		store(t, key("server", id), v)
		return nil
	})
}

// LabelServer sets labels and keeps the others.
func (c *Cloud) LabelServer(ctx context.Context, id int64, labels map[string]string) error {
	return c.onServer(ctx, "label-server", id, func(_ *tx, v *server) error {
		if v.Labels == nil {
			v.Labels = map[string]string{}
		}
		maps.Copy(v.Labels, labels)
		return nil
	})
}

// DeleteServer removes a machine with its disk.
func (c *Cloud) DeleteServer(ctx context.Context, id int64) error {
	c.calls.Add(2)
	return c.w.update(ctx, "delete-server", func(t *tx) error {
		if !t.has(key("server", id)) {
			return nil
		}
		t.del(key("server", id))
		wipe(t, id)
		for _, k := range t.keys("placement/") {
			g, _ := load[remote.PlacementGroup](t, k)
			g.Servers = slices.DeleteFunc(g.Servers, func(s int64) bool { return s == id })
			store(t, k, g)
		}
		return nil
	})
}

// PowerOn starts a machine that is off.
func (c *Cloud) PowerOn(ctx context.Context, id int64) error {
	return c.onServer(ctx, "poweron", id, func(t *tx, v *server) error {
		if v.Status != "running" {
			v.Status = "running"
			v.Boot++
			bootHost(t, v)
		}
		return nil
	})
}

// AttachNetwork attaches a machine to a network.
func (c *Cloud) AttachNetwork(ctx context.Context, id, network int64) error {
	return c.onServer(ctx, "attach-network", id, func(t *tx, v *server) error {
		if _, ok := v.Private[network]; !ok {
			attach(t, v, network)
		}
		return nil
	})
}

// create stores a new object under a fresh ID.
func create[T any](ctx context.Context, c *Cloud, kind, name string, nameOf func(T) string, fill func(t *tx, id int64) T) (*T, error) {
	c.calls.Add(1)
	var out T
	op := "create " + kind + " " + name
	err := c.w.update(ctx, "create-"+kind, func(t *tx) error {
		if err := unique(t, kind+"/", name, op, named(t, nameOf)); err != nil {
			return err
		}
		id := t.next()
		out = fill(t, id)
		store(t, key(kind, id), out)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &out, nil
}

func (c *Cloud) remove(ctx context.Context, kind string, id int64, used func(*tx) bool) error {
	c.calls.Add(1)
	return c.w.update(ctx, "delete-"+kind, func(t *tx) error {
		if t.has(key(kind, id)) && used != nil && used(t) {
			return cloudErr("delete "+kind, "resource_in_use", 422, "%s %d is still in use", kind, id)
		}
		t.del(key(kind, id))
		return nil
	})
}

// CreateNetwork makes a network with its subnets.
func (c *Cloud) CreateNetwork(ctx context.Context, n remote.Network, _ string) (*remote.Network, error) {
	return create(ctx, c, "network", n.Name, func(v remote.Network) string { return v.Name },
		func(_ *tx, id int64) remote.Network { n.ID = id; return n })
}

// DeleteNetwork refuses while something is attached.
func (c *Cloud) DeleteNetwork(ctx context.Context, id int64) error {
	return c.remove(ctx, "network", id, func(t *tx) bool {
		for _, k := range t.keys("server/") {
			if v, _ := load[server](t, k); v.Private[id] != "" {
				return true
			}
		}
		for _, lb := range all[remote.LoadBalancer](t, "lb/") {
			if slices.Contains(lb.Networks, id) {
				return true
			}
		}
		return false
	})
}

// CreateFirewall makes a firewall.
func (c *Cloud) CreateFirewall(ctx context.Context, f remote.Firewall) (*remote.Firewall, error) {
	return create(ctx, c, "firewall", f.Name, func(v remote.Firewall) string { return v.Name },
		func(_ *tx, id int64) remote.Firewall { f.ID, f.Created = id, c.w.now(); return f })
}

func (c *Cloud) onFirewall(ctx context.Context, call string, id int64, fn func(*tx, *remote.Firewall)) error {
	c.calls.Add(1)
	return c.w.update(ctx, call, func(t *tx) error {
		f, ok := load[remote.Firewall](t, key("firewall", id))
		if !ok {
			return notFound(call)
		}
		fn(t, &f)
		store(t, key("firewall", id), f)
		return nil
	})
}

// SetFirewallRules replaces the rules.
func (c *Cloud) SetFirewallRules(ctx context.Context, id int64, rules []remote.Rule) error {
	return c.onFirewall(ctx, "set-rules", id, func(_ *tx, f *remote.Firewall) { f.Rules = slices.Clone(rules) })
}

// ApplyFirewall applies a firewall to servers.
func (c *Cloud) ApplyFirewall(ctx context.Context, id int64, servers []int64) error {
	return c.onFirewall(ctx, "apply-firewall", id, func(t *tx, f *remote.Firewall) {
		for _, s := range servers {
			if v, ok := load[server](t, key("server", s)); ok && !slices.Contains(v.Firewalls, id) {
				v.Firewalls = append(v.Firewalls, id)
				store(t, key("server", s), v)
			}
			if !slices.Contains(f.Servers, s) {
				f.Servers = append(f.Servers, s)
			}
		}
	})
}

// LabelFirewall sets labels and keeps the others.
func (c *Cloud) LabelFirewall(ctx context.Context, id int64, labels map[string]string) error {
	return c.onFirewall(ctx, "label-firewall", id, func(_ *tx, f *remote.Firewall) {
		if f.Labels == nil {
			f.Labels = map[string]string{}
		}
		maps.Copy(f.Labels, labels)
	})
}

// DeleteFirewall refuses while a server has it.
func (c *Cloud) DeleteFirewall(ctx context.Context, id int64) error {
	return c.remove(ctx, "firewall", id, func(t *tx) bool {
		for _, k := range t.keys("server/") {
			if v, _ := load[server](t, k); slices.Contains(v.Firewalls, id) {
				return true
			}
		}
		return false
	})
}

// CreatePlacementGroup makes a spread group.
func (c *Cloud) CreatePlacementGroup(ctx context.Context, g remote.PlacementGroup) (*remote.PlacementGroup, error) {
	return create(ctx, c, "placement", g.Name, func(v remote.PlacementGroup) string { return v.Name },
		func(_ *tx, id int64) remote.PlacementGroup { g.ID = id; return g })
}

// DeletePlacementGroup removes a group.
func (c *Cloud) DeletePlacementGroup(ctx context.Context, id int64) error {
	return c.remove(ctx, "placement", id, nil)
}

// CreateSSHKey refuses a name or a key that is there already.
func (c *Cloud) CreateSSHKey(ctx context.Context, k remote.SSHKey) (*remote.SSHKey, error) {
	fields := strings.Fields(k.PublicKey)
	if len(fields) < 2 {
		return nil, cloudErr("create ssh key", "invalid_input", 422, "the public key is not valid")
	}
	k.Fingerprint = fmt.Sprintf("%x", md5.Sum([]byte(fields[1]))) //nolint:gosec // as the cloud does
	var dup error
	out, err := create(ctx, c, "sshkey", k.Name, func(v remote.SSHKey) string { return v.Name },
		func(t *tx, id int64) remote.SSHKey {
			for _, o := range all[remote.SSHKey](t, "sshkey/") {
				if o.Fingerprint == k.Fingerprint {
					dup = cloudErr("create ssh key "+k.Name, "uniqueness_error", 409, "the key is already used")
				}
			}
			k.ID = id
			return k
		})
	if dup != nil {
		_ = c.DeleteSSHKey(ctx, out.ID)
		return nil, dup
	}
	return out, err
}

// DeleteSSHKey removes a key.
func (c *Cloud) DeleteSSHKey(ctx context.Context, id int64) error {
	return c.remove(ctx, "sshkey", id, nil)
}

// CreateLoadBalancer makes a load balancer.
func (c *Cloud) CreateLoadBalancer(ctx context.Context, lb remote.LoadBalancer) (*remote.LoadBalancer, error) {
	return create(ctx, c, "lb", lb.Name, func(v remote.LoadBalancer) string { return v.Name },
		func(_ *tx, id int64) remote.LoadBalancer {
			lb.ID, lb.IPv4 = id, fmt.Sprintf("198.19.%d.%d", id/250%250, id%250+1)
			return lb
		})
}

// LoadBalancer returns one, with the health of its targets.
func (c *Cloud) LoadBalancer(ctx context.Context, id int64) (*remote.LoadBalancer, error) {
	c.calls.Add(1)
	var out remote.LoadBalancer
	err := c.w.view(ctx, "get-lb", func(t *tx) error {
		v, ok := load[remote.LoadBalancer](t, key("lb", id))
		if !ok {
			return notFound("get load balancer")
		}
		out = v
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.health(ctx, &out)
	return &out, nil
}

// health is what the load balancer sees of each target.
func (c *Cloud) health(ctx context.Context, lb *remote.LoadBalancer) {
	_ = c.w.view(ctx, "lb-health", func(t *tx) error {
		for i := range lb.Targets {
			lb.Targets[i].Health = map[int]string{}
			for _, s := range lb.Services {
				state := "unhealthy"
				if apiUp(t, lb.Targets[i].Server) {
					state = "healthy"
				}
				lb.Targets[i].Health[s.Dest] = state
			}
		}
		return nil
	})
}

// SetLoadBalancer makes services and targets what lb says.
func (c *Cloud) SetLoadBalancer(ctx context.Context, lb remote.LoadBalancer) error {
	c.calls.Add(2)
	return c.w.update(ctx, "set-lb", func(t *tx) error {
		v, ok := load[remote.LoadBalancer](t, key("lb", lb.ID))
		if !ok {
			return notFound("set load balancer")
		}
		v.Services, v.Targets = lb.Services, lb.Targets
		if lb.Networks != nil {
			v.Networks = lb.Networks
		}
		store(t, key("lb", lb.ID), v)
		return nil
	})
}

// DeleteLoadBalancer removes one.
func (c *Cloud) DeleteLoadBalancer(ctx context.Context, id int64) error {
	return c.remove(ctx, "lb", id, nil)
}
