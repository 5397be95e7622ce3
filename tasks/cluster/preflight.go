package cluster

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"hk/remote"
	"hk/tasks/spec"
)

// Limits of the cloud that a config can run into before anything is made.
const (
	networkMost = 100 // servers and load balancers in one network
	groupMost   = 50  // placement groups in one project
	groupSize   = 10  // servers in one spread placement group
	skewMost    = 60 * time.Second
)

// balancerType is the load balancer hk makes.
const balancerType = "lb11"

// Gate is one thing that must be right before the first object is made.
type Gate struct {
	Name    string   `json:"name"`
	OK      bool     `json:"ok"`
	Warning bool     `json:"warning"` // not right, and not in the way
	Message string   `json:"message"`
	Hints   []string `json:"hints"`

	exit  int
	world string
}

// Cost is what the cluster costs a month, gross.
type Cost struct {
	Before   *float64 `json:"before"` // of what exists; null if a price is not known
	After    *float64 `json:"after"`
	Currency string   `json:"currency"`
}

// Preflight is the result of all gates.
type Preflight struct {
	Gates []Gate `json:"gates"`
	Cost  *Cost  `json:"cost"`
}

// Err is the first failing gate as a Refusal that names all of them; nil if
// none fails.
func (p *Preflight) Err() error {
	var r *Refusal
	for i := range p.Gates {
		g := &p.Gates[i]
		if g.OK || g.Warning {
			continue
		}
		if r == nil {
			r = &Refusal{Exit: g.exit, World: g.world, Message: "preflight: " + g.Message, Hints: g.Hints}
			continue
		}
		r.Details = append(r.Details, "also: "+g.Message)
	}
	if r == nil {
		return nil
	}
	return r
}

// PreflightOptions say what to check besides what was found.
type PreflightOptions struct {
	// SSH tells whether the operator's key can sign; nil skips the gate.
	SSH func() error
	// Live checks the project with all that reading it can tell, also where
	// nothing is to be created.
	Live bool
}

// Preflight evaluates the gates on what would have to be created. It reads the
// catalog and creates nothing.
func (s *Session) Preflight(ctx context.Context, o PreflightOptions) (*Preflight, error) {
	c, f := s.Spec(), s.Found()
	if c == nil || f == nil {
		return nil, fmt.Errorf("bug: preflight without a config or a look")
	}
	p := &Preflight{}
	if f.CloudErr != nil {
		p.fail("token", ExitCloud, "cloud", fmt.Sprintf("the project cannot be read: %v", f.CloudErr),
			"check the token (HCLOUD_TOKEN, HCLOUD_CONTEXT) and the endpoint")
		return p, nil //nolint:nilerr // a gate that fails is an answer
	}
	p.pass("token", fmt.Sprintf("the project can be read: %d servers, %d of %s", len(f.Inventory.Servers), len(f.Ours.Servers), c.Name))
	cat, err := s.o.World.Cloud.Catalog(ctx)
	if err != nil {
		p.fail("catalog", ExitCloud, "cloud", fmt.Sprintf("the catalog cannot be read: %v", err))
		return p, nil
	}
	g := gates{p: p, c: c, f: f, cat: cat, wanted: s.Wanted(), create: s.toCreate(o.Live)}
	g.sshKey(o)
	g.names()
	g.exist()
	g.locations()
	g.types()
	g.image()
	g.networks()
	g.limits()
	g.clock()
	if o.Live {
		g.budget(s.o.World.Cloud.Usage())
	}
	p.Cost = g.cost()
	return p, nil
}

// toCreate are the wanted hosts without a server; all of them with all.
func (s *Session) toCreate(all bool) []spec.Host {
	f := s.Found()
	var out []spec.Host
	for _, h := range s.Wanted() {
		if hf := f.Hosts[h.Name]; all || hf == nil || hf.Server == nil {
			out = append(out, h)
		}
	}
	return out
}

func (p *Preflight) pass(name, msg string) {
	p.Gates = append(p.Gates, Gate{Name: name, OK: true, Message: msg})
}

func (p *Preflight) warn(name, msg string) {
	p.Gates = append(p.Gates, Gate{Name: name, Warning: true, Message: msg})
}

func (p *Preflight) fail(name string, exit int, world, msg string, hints ...string) {
	p.Gates = append(p.Gates, Gate{Name: name, Message: msg, Hints: hints, exit: exit, world: world})
}

// gates holds what all gates look at.
type gates struct {
	p      *Preflight
	c      *spec.Cluster
	f      *Found
	cat    *remote.Catalog
	wanted []spec.Host
	create []spec.Host
}

func (g *gates) sshKey(o PreflightOptions) {
	if o.SSH == nil {
		return
	}
	if err := o.SSH(); err != nil {
		g.p.fail("ssh-key", ExitConfig, "config", fmt.Sprintf("the SSH key cannot be used: %v", err),
			"ssh.key names the private key, ssh.agent: true takes it from the agent; hk init makes one")
		return
	}
	g.p.pass("ssh-key", "the SSH key can sign")
}

func (g *gates) names() {
	if len(g.f.Foreign) > 0 {
		g.p.fail("names", ExitCloud, "cloud", "the project holds objects with names of this cluster that are not its own: "+strings.Join(g.f.Foreign, ", "),
			"rename or delete them, or give the cluster another name")
		return
	}
	g.p.pass("names", "no name is taken by others")
}

// exist checks every type and location of the config by name, also where no
// server is to be made of it now: the config is kept, and used one day.
func (g *gates) exist() {
	for i := range g.wanted {
		h := &g.wanted[i]
		if _, ok := g.cat.Locations[h.Location]; !ok {
			g.p.fail("location", ExitConfig, "config", fmt.Sprintf("there is no location %s", h.Location),
				"there are "+strings.Join(slices.Sorted(maps.Keys(g.cat.Locations)), ", "))
			return
		}
		if _, ok := g.cat.ServerTypes[h.Type]; !ok {
			g.p.fail("type", ExitConfig, "config", fmt.Sprintf("there is no server type %s (%s)", h.Type, h.Name),
				"in "+h.Location+" there are "+strings.Join(g.typesAt(h.Location), ", "))
			return
		}
	}
}

// places are the locations of what is to be created, sorted.
func (g *gates) places() []string {
	set := map[string]bool{}
	for i := range g.create {
		set[g.create[i].Location] = true
	}
	return slices.Sorted(maps.Keys(set))
}

func (g *gates) locations() {
	for i := range g.create {
		h := &g.create[i]
		home, z := g.cat.Locations[g.c.Location], g.cat.Locations[h.Location]
		if h.Private && home != "" && home != z {
			g.p.fail("location", ExitConfig, "config",
				fmt.Sprintf("%s joins the private network, which is in zone %s, but its location %s is in zone %s", h.Name, home, h.Location, z),
				"set load_balanced: false for its pool, or choose a location in "+home)
			return
		}
	}
	if len(g.create) == 0 {
		g.p.pass("location", "no server is to be created")
		return
	}
	g.p.pass("location", "locations exist: "+strings.Join(g.places(), ", "))
}

func (g *gates) types() {
	seen := map[string]bool{}
	ok := true
	for i := range g.create {
		h := &g.create[i]
		if seen[h.Type+"@"+h.Location] {
			continue
		}
		seen[h.Type+"@"+h.Location] = true
		t, found := g.cat.ServerTypes[h.Type]
		switch {
		case !found: // told by exist
			ok = false
		case !t.Available[h.Location]:
			g.p.fail("type", ExitConfig, "config", fmt.Sprintf("server type %s cannot be had in %s now (%s)", h.Type, h.Location, h.Name),
				"in "+h.Location+" there are "+strings.Join(g.typesAt(h.Location), ", "))
			ok = false
		case t.Deprecated[h.Location]:
			g.p.warn("type", fmt.Sprintf("server type %s is being phased out in %s", h.Type, h.Location))
			ok = false
		}
	}
	if ok {
		g.p.pass("type", fmt.Sprintf("server types exist and can be had (%d servers looked at)", len(g.create)))
	}
}

func (g *gates) typesAt(location string) []string {
	var out []string
	for n, t := range g.cat.ServerTypes {
		if t.Available[location] && !t.Deprecated[location] {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	if len(out) == 0 {
		return []string{"none"}
	}
	return out
}

func (g *gates) image() {
	archs := map[string]string{}
	for i := range g.create {
		if t, ok := g.cat.ServerTypes[g.create[i].Type]; ok {
			archs[t.Arch] = t.Name
		}
	}
	for _, arch := range slices.Sorted(maps.Keys(archs)) {
		if !slices.ContainsFunc(g.cat.Images, func(i remote.Image) bool { return imageIs(&i, g.c.Image) && i.Arch == arch }) {
			var names []string
			for i := range g.cat.Images {
				if g.cat.Images[i].Arch == arch && g.cat.Images[i].Name != "" {
					names = append(names, g.cat.Images[i].Name)
				}
			}
			slices.Sort(names)
			g.p.fail("image", ExitConfig, "config", fmt.Sprintf("there is no image %s for %s (%s)", g.c.Image, arch, archs[arch]),
				"there are "+strings.Join(slices.Compact(names), ", "))
			return
		}
	}
	g.p.pass("image", "image "+g.c.Image+" exists")
}

// imageIs matches an image by name, ID, or a snapshot's description.
func imageIs(i *remote.Image, want string) bool {
	return i.Name == want || fmt.Sprint(i.ID) == want || i.Type == "snapshot" && i.Description == want
}

// networks checks that the cluster's own ranges are disjoint, and says which
// other networks of the project overlap: those are apart from ours, and matter
// only to who wants to join them one day.
func (g *gates) networks() {
	type named struct {
		name string
		p    netip.Prefix
	}
	n := g.c.Network
	var own []named
	for _, f := range []named{{name: "mesh"}, {name: "private"}, {name: "pods"}, {name: "services"}} {
		text := map[string]string{"mesh": n.Mesh, "private": n.Private, "pods": n.Pods, "services": n.Services}[f.name]
		p, err := netip.ParsePrefix(text)
		if err != nil {
			g.p.fail("network", ExitConfig, "config", fmt.Sprintf("network.%s: %v", f.name, err))
			return
		}
		for _, o := range own {
			if o.p.Overlaps(p) {
				g.p.fail("network", ExitConfig, "config", fmt.Sprintf("network.%s (%s) and network.%s (%s) overlap", o.name, o.p, f.name, p))
				return
			}
		}
		own = append(own, named{f.name, p})
	}
	for i := range g.f.Inventory.Networks {
		o := &g.f.Inventory.Networks[i]
		p, err := netip.ParsePrefix(o.Range)
		if err != nil || o.Labels[remote.LabelUID] == g.f.UID && g.f.UID != "" {
			continue
		}
		for _, w := range own {
			if w.p.Overlaps(p) {
				g.p.warn("network", fmt.Sprintf("network.%s (%s) overlaps network %s (%s) of the project; the two are apart and cannot be joined later", w.name, w.p, o.Name, p))
			}
		}
	}
	g.p.pass("network", "ranges are disjoint")
}

func (g *gates) limits() {
	private, wanted := 0, g.wanted
	groups := map[string]bool{}
	for i := range wanted {
		if wanted[i].Private {
			private++
		}
		groups[fmt.Sprint(wanted[i].Pool, (wanted[i].Number-1)/groupSize)] = true
	}
	if g.c.Endpoint.Kind() == spec.EndpointLoadBalancer {
		private++
	}
	if private > networkMost {
		g.p.fail("limits", ExitConfig, "config", fmt.Sprintf("%d hosts and load balancers would join the private network, which holds %d", private, networkMost),
			"set load_balanced: false for pools that no load balancer sends to")
		return
	}
	others := 0
	for i := range g.f.Inventory.PlacementGroups {
		if g.f.Inventory.PlacementGroups[i].Labels[remote.LabelUID] != g.f.UID {
			others++
		}
	}
	if others+len(groups) > groupMost {
		g.p.warn("limits", fmt.Sprintf("the cluster wants %d placement groups and the project has %d others, of %d; the last hosts are not spread", len(groups), others, groupMost))
		return
	}
	g.p.pass("limits", fmt.Sprintf("%d in the private network, %d placement groups", private, len(groups)))
}

func (g *gates) clock() {
	if skew := g.f.Skew.Round(time.Second); skew.Abs() > skewMost {
		g.p.fail("clock", ExitConfig, "config", fmt.Sprintf("this computer's clock is %s away from the cloud's", skew),
			"certificates would not be valid yet, or no more; set the clock")
		return
	}
	g.p.pass("clock", "the clock is right")
}

func (g *gates) budget(u remote.Usage) {
	need := 20 + 4*len(g.create)
	if u.Limit > 0 && u.Remaining < need {
		g.p.warn("api-budget", fmt.Sprintf("%d of %d API requests an hour are left, the build needs about %d and will wait", u.Remaining, u.Limit, need))
		return
	}
	g.p.pass("api-budget", fmt.Sprintf("%d of %d API requests an hour are left", u.Remaining, u.Limit))
}

// cost adds up monthly prices. One price that is not known makes a sum unknown.
func (g *gates) cost() *Cost {
	c := &Cost{Currency: g.cat.Currency}
	before, after := 0.0, 0.0
	bok, aok := true, true
	price := func(typ, location string) (float64, bool) {
		p, ok := g.cat.ServerTypes[typ].Price[location]
		return p, ok
	}
	for i := range g.f.Ours.Servers {
		s := &g.f.Ours.Servers[i]
		p, ok := price(s.Type, s.Location)
		before, bok = before+p, bok && ok
	}
	for i := range g.f.Ours.LoadBalancers {
		l := &g.f.Ours.LoadBalancers[i]
		p, ok := g.cat.LBTypes[l.Type][l.Location]
		before, bok = before+p, bok && ok
	}
	for i := range g.wanted {
		typ, location := g.wanted[i].Type, g.wanted[i].Location
		if h := g.f.Hosts[g.wanted[i].Name]; h != nil && h.Server != nil {
			typ, location = h.Server.Type, h.Server.Location
		}
		p, ok := price(typ, location)
		after, aok = after+p, aok && ok
	}
	if g.c.Endpoint.Kind() == spec.EndpointLoadBalancer {
		p, ok := g.cat.LBTypes[balancerType][g.c.Location]
		after, aok = after+p, aok && ok
	}
	if bok {
		c.Before = &before
	}
	if aok {
		c.After = &after
	}
	return c
}
