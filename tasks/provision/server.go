package provision

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/host"
)

type serverIn struct {
	Cluster   string  `part:"config:name"`
	Host      string  `part:"alloc:host"`
	Node      string  `part:"alloc:node"`
	Index     int     `part:"alloc:index"`
	Role      string  `part:"alloc:role"`
	Pool      string  `part:"alloc:pool"`
	Type      string  `part:"config:type"`
	Image     string  `part:"config:image"`
	Location  string  `part:"config:location"`
	Network   int64   `part:"out:network.id"` // 0: not attached
	Firewalls []int64 `part:"out:firewall.ids"`
	Group     string  `part:"alloc:group"` // placement group by name; "": none
	Key       int64   `part:"out:ssh-key.id"`
}

// serverKind makes the machine. Once there is one it is never made again here:
// what is gone is `hk node replace`'s business.
//
// Its placement group is known by name, and looked up when the server is made:
// the eleventh worker makes a new group, and that must not make ten other
// servers stale.
func serverKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "server", Scope: graph.OnHost, Pool: cloudPool, Recipe: 1, Once: true,
		Needs: []graph.Need{
			{Kind: NetworkKind, Via: graph.ToCluster, Why: "it is attached at creation"},
			{Kind: FirewallKind, Via: graph.ToCluster, Why: "it must never be up without its firewall"},
			{Kind: PlacementKind, Via: graph.ToCluster, Why: "a server joins its group at creation only"},
			{Kind: SSHKeyKind, Via: graph.ToCluster, Why: "the operator's key is handed over at creation"},
		},
		Title: "server",
	}, tasks.Def[serverIn]{
		Inputs: serverInputs,
		Run:    runServer,
		Verify: verifyServer,
		Watch: func(in serverIn, w *tasks.World) map[string]string {
			return watchObject(w, "cloud:server", in.pick(w.UID), in.value)
		},
	})
}

func serverInputs(v *tasks.View) (serverIn, error) {
	h := v.Host
	in := serverIn{
		Cluster: v.Spec.Name, Host: h.Name, Node: h.Node, Index: h.Index, Role: h.Role, Pool: h.Pool,
		Type: h.Type, Image: v.Spec.Image, Location: h.Location, Group: Group(v.Spec, h),
	}
	fw := v.Out(FirewallKind)
	keys := []string{"id"}
	if h.Has("master") && fw["masters_id"] != "" {
		keys = append(keys, "masters_id")
	}
	var err error
	take := func(o fp.Output, key string) int64 {
		id, e := outID(o, key)
		err = errors.Join(err, e)
		return id
	}
	for _, k := range keys {
		in.Firewalls = append(in.Firewalls, take(fw, k))
	}
	if h.Private {
		in.Network = take(v.Out(NetworkKind), "id")
	}
	in.Key = take(v.Out(SSHKeyKind), "id")
	return in, err
}

// outID reads an ID out of an output.
func outID(o fp.Output, key string) (int64, error) {
	id, err := strconv.ParseInt(o[key], 10, 64)
	if err != nil || id == 0 {
		return 0, fmt.Errorf("what is needed did not hand over %q", key)
	}
	return id, nil
}

// pick is the server that carries our UID and the host's name.
func (in serverIn) pick(uid string) func(*remote.Inventory) *remote.Server {
	return func(inv *remote.Inventory) *remote.Server {
		for i := range inv.Servers {
			if s := &inv.Servers[i]; ours(s.Labels, uid) && s.Labels[remote.LabelHost] == in.Host {
				return s
			}
		}
		return nil
	}
}

// value is what is watched of the server: that it is the same one and that its
// firewalls are on. Whether it runs is not: a machine somebody switched off is
// unreachable, and stays off until they say otherwise.
func (in serverIn) value(s *remote.Server) string {
	v := in.good(s.ID)
	if i := slices.IndexFunc(in.Firewalls, func(id int64) bool { return !slices.Contains(s.Firewalls, id) }); i >= 0 {
		v += " without firewall " + strconv.FormatInt(in.Firewalls[i], 10)
	}
	return v
}

// good is the watched value of a server that is as it should be.
func (in serverIn) good(id int64) string { return strconv.FormatInt(id, 10) }

func runServer(ctx context.Context, in serverIn, e *tasks.Env) error {
	var s *remote.Server
	if inv := e.Found(); inv != nil {
		s = in.pick(e.UID)(inv)
	}
	if s == nil {
		rec, err := in.intent(e)
		if err != nil {
			return err
		}
		if s, err = in.create(ctx, e, rec); err != nil {
			return err
		}
	}
	if err := in.claim(e, s); err != nil {
		return err
	}
	return in.repair(ctx, e, s)
}

// intent writes down what will be made before it is made: keys, installation ID
// and index, with no server ID yet. A record that is there with no server ID is
// an intent whose answer never came, and is used again as it is.
func (in serverIn) intent(e *tasks.Env) (tasks.HostRecord, error) {
	rec, ok := e.Vault.Host(in.Host)
	if ok && rec.ServerID == 0 && rec.ThrowawayPEM != "" {
		return rec, nil
	}
	if ok && rec.ServerID != 0 && e.Established {
		return rec, fmt.Errorf("server %d of host %s is gone and the cluster is established: it is not made anew here (hk node replace %s/%s)",
			rec.ServerID, in.Host, in.Cluster, in.Host)
	}
	rec, err := newHostRecord(in.Host, in.Index)
	if err != nil {
		return rec, err
	}
	if err := e.Vault.SaveHost(rec); err != nil {
		return rec, fmt.Errorf("writing the intent: %w", err)
	}
	return rec, nil
}

// create asks for the server. After an error it looks again: an answer that was
// lost leaves a server with our labels, and a name that is taken is either that
// or somebody else's.
func (in serverIn) create(ctx context.Context, e *tasks.Env, rec tasks.HostRecord) (*remote.Server, error) {
	l, err := in.labels(e, rec)
	if err != nil {
		return nil, err
	}
	spec := remote.ServerSpec{
		Name: in.Node, Type: in.Type, Image: in.Image, Location: in.Location, Labels: l,
		UserData: userData(rec), SSHKeys: []int64{in.Key}, Firewalls: in.Firewalls,
	}
	if in.Group != "" {
		g, err := found(ctx, e, "placement group "+in.Group, pickGroup(e.UID, in.Group))
		if err != nil {
			return nil, err
		}
		spec.Placement = g.ID
	}
	if in.Network != 0 {
		spec.Networks = []int64{in.Network}
	}
	s, err := e.Cloud.CreateServer(ctx, spec)
	if err == nil {
		return s, nil
	}
	if s, again := lookAgain(ctx, e, in.pick(e.UID)); again == nil && s != nil {
		e.Log("server " + in.Node + " was there already")
		return s, nil
	}
	return nil, notOurs("server "+in.Node, err)
}

func (in serverIn) labels(e *tasks.Env, rec tasks.HostRecord) (map[string]string, error) {
	key, err := host.KeyLabel(rec.HostKey)
	if err != nil {
		return nil, err
	}
	l := labels(e)
	l[remote.LabelRole], l[remote.LabelPool] = in.Role, in.Pool
	l[remote.LabelHost], l[remote.LabelIndex] = in.Host, strconv.Itoa(in.Index)
	l[remote.LabelHostKey] = key
	return l, nil
}

// claim writes the server's ID beside the intent, if it was made from it.
func (in serverIn) claim(e *tasks.Env, s *remote.Server) error {
	rec, ok := e.Vault.Host(in.Host)
	if !ok {
		return fmt.Errorf("server %s (%d) carries this cluster's UID, but the credential unit knows no host key for %s", s.Name, s.ID, in.Host)
	}
	key, err := host.KeyLabel(rec.HostKey)
	if err != nil {
		return err
	}
	if got := s.Labels[remote.LabelHostKey]; got != key {
		return fmt.Errorf("server %s (%d) was announced with another host key than the one kept for %s", s.Name, s.ID, in.Host)
	}
	if rec.ServerID == s.ID && rec.Addr == s.IPv4 && rec.Type != "" {
		return nil
	}
	if rec.ServerID != 0 && rec.ServerID != s.ID {
		return fmt.Errorf("host %s is kept as server %d, but the cloud has server %d for it", in.Host, rec.ServerID, s.ID)
	}
	rec.ServerID, rec.Addr, rec.Type, rec.Location = s.ID, s.IPv4, s.Type, s.Location
	if err := e.Vault.SaveHost(rec); err != nil {
		return fmt.Errorf("writing the server's ID: %w", err)
	}
	return nil
}

// repair brings an existing server to what is declared: firewalls on, attached,
// running.
func (in serverIn) repair(ctx context.Context, e *tasks.Env, s *remote.Server) error {
	s, err := in.settled(ctx, e, s)
	if err != nil {
		return err
	}
	for _, id := range in.Firewalls {
		if !slices.Contains(s.Firewalls, id) {
			if err := e.Cloud.ApplyFirewall(ctx, id, []int64{s.ID}); err != nil {
				return err
			}
		}
	}
	if in.Network != 0 && s.Private[in.Network] == "" {
		if err := e.Cloud.AttachNetwork(ctx, s.ID, in.Network); err != nil {
			return err
		}
	}
	if s.Status == "off" {
		return e.Cloud.PowerOn(ctx, s.ID)
	}
	return nil
}

// settled is the server as it is now, asked for anew only if what is known of
// it is not all that it should be.
func (in serverIn) settled(ctx context.Context, e *tasks.Env, s *remote.Server) (*remote.Server, error) {
	if s.Status == "running" && in.value(s) == in.good(s.ID) && (in.Network == 0 || s.Private[in.Network] != "") {
		return s, nil
	}
	return e.Cloud.Server(ctx, s.ID)
}

func verifyServer(ctx context.Context, in serverIn, e *tasks.Env) (fp.Output, error) {
	s, err := found(ctx, e, "server "+in.Node, in.pick(e.UID))
	if err != nil {
		return nil, err
	}
	rec, ok := e.Vault.Host(in.Host)
	if !ok || rec.ServerID != s.ID {
		return nil, fmt.Errorf("server %d answers for host %s, but %d is kept for it", s.ID, in.Host, rec.ServerID)
	}
	if s, err = in.settled(ctx, e, s); err != nil {
		return nil, err
	}
	if s.Status != "running" {
		return nil, tasks.Again("server %s is %s, not running", in.Node, s.Status)
	}
	if v := in.value(s); v != in.good(s.ID) {
		return nil, tasks.Again("server %s", v)
	}
	if in.Network != 0 && s.Private[in.Network] == "" {
		return nil, tasks.Again("server %s has no address in the private network yet", in.Node)
	}
	e.Note("cloud:server", in.good(s.ID))
	// The private address is not handed over: load balancers name the server,
	// and attaching a host later must not make all of its tasks stale.
	return fp.Output{"id": strconv.FormatInt(s.ID, 10), "ipv4": s.IPv4, "installation": rec.Installation}, nil
}
