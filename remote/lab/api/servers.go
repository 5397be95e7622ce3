package api

import (
	"net/http"
	"net/netip"
	"slices"
	"strconv"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"hk/remote/lab/catalog"
	"hk/remote/lab/state"
)

// maxUserData is the real API's limit.
const maxUserData = 32 << 10

func serverKind() kind[state.Server] {
	return kind[state.Server]{
		path: "servers", one: "server", many: "servers", title: "server",
		table:     func(t *state.Tables) *state.Table[state.Server] { return t.Servers },
		meta:      func(r *state.Server) *state.Meta { return &r.Meta },
		view:      func(v *view, r *state.Server) any { return v.server(r) },
		checkName: checkHostname, sorts: []string{"id", "name", "created"},
		extra: func(q map[string][]string, r *state.Server) bool {
			return len(q["status"]) == 0 || slices.Contains(q["status"], r.Status)
		},
	}
}

func (s *Server) routesServers() {
	s.handle("POST /servers", s.createServer)
	s.handle("DELETE /servers/{id}", s.deleteServer)
	s.routesServerActions()
}

// serverRequest is schema.ServerCreateRequest with SSH keys by name too, as the
// real API takes them.
type serverRequest struct {
	schema.ServerCreateRequest
	SSHKeys []schema.IDOrName `json:"ssh_keys"`
}

func (s *Server) createServer(r *request) (int, any, error) {
	var req serverRequest
	if err := r.decode(&req); err != nil {
		return 0, nil, err
	}
	labels, err := givenLabels(req.Labels)
	if err != nil {
		return 0, nil, err
	}
	if len(req.UserData) > maxUserData {
		return 0, nil, invalid("user_data", "must not be longer than %d bytes", maxUserData)
	}
	if len(req.Volumes) > 0 {
		return 0, nil, fail("unsupported_error", "the lab has no volumes yet")
	}
	var create *state.Action
	var next []*state.Action
	var id int64
	err = s.Store.Update(func(tx *state.Tx) error {
		row, err := s.planServer(tx, r, req, labels)
		if err != nil {
			return err
		}
		id = row.ID
		state.Put(tx, tx.Servers, row.ID, row)
		for _, f := range req.Firewalls {
			err := state.Edit(tx, tx.Firewalls, f.Firewall, func(fw *state.Firewall) { fw.Servers = append(fw.Servers, id) })
			if err != nil {
				return err
			}
		}
		res := state.Resource{Type: "server", ID: row.ID}
		if create, err = s.begin(tx, r.project, "create_server", nil, 0, res); err != nil {
			return err
		}
		if row.Power {
			start, err := s.begin(tx, r.project, "start_server", nil, create.ID, res)
			next = append(next, start)
			return err
		}
		return nil
	})
	if err != nil {
		return 0, nil, err
	}
	body := map[string]any{"action": viewAction(create), "root_password": nil}
	if len(req.SSHKeys) == 0 {
		body["root_password"] = "no-password-in-the-lab" // as the real one: mailed, and shown once
	}
	actions := []schema.Action{}
	for _, a := range next {
		actions = append(actions, viewAction(a))
	}
	body["next_actions"] = actions
	s.Store.View(func(t *state.Tables) {
		if row, ok := t.Servers.Get(id); ok {
			body["server"] = s.newView(t).server(row)
		}
	})
	s.run(append(next, create)...)
	return http.StatusCreated, body, nil
}

// planServer judges a request and makes the row.
func (s *Server) planServer(tx *state.Tx, r *request, req serverRequest, labels map[string]string) (*state.Server, error) {
	if err := freeName(tx.Tables, serverKind(), r.project, req.Name, 0); err != nil {
		return nil, err
	}
	typ, loc, err := placeServer(req.ServerType, req.Location)
	if err != nil {
		return nil, err
	}
	img, ok := catalog.Image(req.Image.ID, req.Image.Name)
	if !ok {
		return nil, invalid("image", "image not found")
	}
	if img.Architecture != typ.Architecture {
		return nil, fail("unsupported_error", "the lab has no machines with architecture %s", typ.Architecture)
	}
	row := &state.Server{
		Meta: state.Meta{ID: tx.NewID(), Project: r.project, Name: req.Name, Created: now(s), Labels: labels}, Status: state.Initializing,
		Power: req.StartAfterCreate == nil || *req.StartAfterCreate,
		Type:  typ.Name, Location: loc.Name, ImageID: img.ID, DiskGB: typ.Disk, UserData: req.UserData,
	}
	if err := s.planKeys(tx, r, row, req.SSHKeys); err != nil {
		return nil, err
	}
	if err := planGroup(tx.Tables, r, row, req.PlacementGroup); err != nil {
		return nil, err
	}
	for _, f := range req.Firewalls {
		if _, err := getRow(tx.Tables, firewallKind(), r.project, f.Firewall); err != nil {
			return nil, err
		}
	}
	// IPv6 alone is a public interface on the real cloud; the lab has none yet.
	if req.PublicNet == nil || req.PublicNet.EnableIPv4 {
		if row.Slot, err = s.freeSlot(tx.Tables, row.ID); err != nil {
			return nil, err
		}
		row.IPv4ID = tx.NewID()
	} else if len(req.Networks) == 0 && row.Power {
		return nil, invalid("public_net", "the server needs a public or a private interface to start")
	}
	for _, id := range req.Networks {
		if err := s.planNIC(tx.Tables, r.project, row, id, "", "", nil); err != nil {
			return nil, err
		}
	}
	return row, nil
}

// placeServer finds type and location and judges whether one is sold in the other.
func placeServer(want schema.IDOrName, where string) (schema.ServerType, schema.Location, error) {
	var loc schema.Location
	typ, ok := catalog.ServerType(want.ID, want.Name)
	if !ok {
		return typ, loc, invalid("server_type", "server type not found")
	}
	if where == "" { // the real one chooses too
		for _, l := range typ.Locations {
			if l.Available {
				where = l.Name
				break
			}
		}
	}
	if loc, ok = findLocation(where); !ok {
		return typ, loc, invalid("location", "location '%s' not found", where)
	}
	for _, l := range typ.Locations {
		if l.Name != loc.Name {
			continue
		}
		if !l.Available {
			return typ, loc, fail("resource_unavailable", "we are unable to provision servers for this location, try with a different location or try later")
		}
		return typ, loc, nil
	}
	return typ, loc, invalid("server_type", "unsupported location for server type")
}

// findLocation takes a name or an ID.
func findLocation(text string) (schema.Location, bool) {
	if id, err := strconv.ParseInt(text, 10, 64); err == nil {
		for _, l := range catalog.Locations() {
			if l.ID == id {
				return l, true
			}
		}
	}
	return catalog.LocationByName(text)
}

func (s *Server) planKeys(tx *state.Tx, r *request, row *state.Server, want []schema.IDOrName) error {
	for _, w := range want {
		found := false
		for _, k := range tx.SSHKeys.All() {
			if k.Project == r.project && (k.ID == w.ID && w.ID != 0 || k.Name == w.Name && w.Name != "") {
				row.Keys, found = append(row.Keys, k.PublicKey), true
			}
		}
		if !found {
			return invalid("ssh_keys", "SSH key not found")
		}
	}
	return nil
}

func planGroup(t *state.Tables, r *request, row *state.Server, id int64) error {
	if id == 0 {
		return nil
	}
	if _, err := getRow(t, placementGroupKind(), r.project, id); err != nil {
		return err
	}
	if groupSize(t, id) >= maxPerGroup {
		return fail("placement_error", "placement group has reached its limit of %d servers", maxPerGroup)
	}
	row.PlacementGroup = id
	return nil
}

// freeSlot finds a free public address. It begins where the ID says, so that an
// address that was given back is not the next to be given out.
func (s *Server) freeSlot(t *state.Tables, id int64) (int, error) {
	first, last := s.Backend.Slots()
	used := map[int]bool{}
	t.Servers.Each(func(r *state.Server) bool { used[r.Slot] = true; return true })
	t.LoadBalancers.Each(func(r *state.LoadBalancer) bool { used[r.Slot] = true; return true })
	n := last - first + 1
	for i := range n {
		if slot := first + int((id+int64(i))%int64(n)); !used[slot] {
			return slot, nil
		}
	}
	return 0, fail("resource_limit_exceeded", "primary IP limit exceeded")
}

// planNIC reserves a private interface for a server.
func (s *Server) planNIC(t *state.Tables, project string, row *state.Server, network int64, ip, ipRange string, alias []string) error {
	n, err := getRow(t, networkKind(), project, network)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(row.NICs, func(x state.NIC) bool { return x.Network == network }) {
		return fail("server_already_attached", "server is already attached to the network")
	}
	if len(row.NICs) >= 3 {
		return fail("resource_limit_exceeded", "a server can be attached to at most 3 networks")
	}
	mine := netip.MustParsePrefix(n.Range)
	for _, x := range row.NICs {
		if other, ok := t.Networks.Get(x.Network); ok && netip.MustParsePrefix(other.Range).Overlaps(mine) {
			return fail("networks_overlap", "the network overlaps with another network of the server")
		}
	}
	loc, _ := catalog.LocationByName(row.Location)
	addr, err := pickAddress(t, n, loc.NetworkZone, ip, ipRange)
	if err != nil {
		return err
	}
	if err := checkAlias(t, n, addr, alias, nil); err != nil {
		return err
	}
	row.Attachments++
	row.NICs = append(row.NICs, state.NIC{
		Network: network, IP: addr, Alias: alias, Name: freeNICName(row),
		MAC: s.Backend.MAC(network, row.ID, row.Attachments),
	})
	return nil
}

// checkAlias judges alias addresses; have are those the member has already.
func checkAlias(t *state.Tables, n *state.Network, own string, alias, have []string) error {
	used := usedAddresses(t, n.ID)
	for _, a := range alias {
		addr, err := netip.ParseAddr(a)
		if err != nil || subnetOf(n, a) == "" || a == gatewayOf(n.Range) || a == own || used[addr] && !slices.Contains(have, a) {
			return fail("ip_not_available", "the alias IP %s is not available in the network", a)
		}
	}
	return nil
}

func freeNICName(row *state.Server) string {
	for i := 0; ; i++ {
		name := "enp" + strconv.Itoa(7+i) + "s0"
		if !slices.ContainsFunc(row.NICs, func(n state.NIC) bool { return n.Name == name }) {
			return name
		}
	}
}

// machine works out what the backend makes a server from.
func (s *Server) machine(t *state.Tables, id int64) (Machine, bool) {
	row, ok := t.Servers.Get(id)
	if !ok {
		return Machine{}, false
	}
	typ, _ := catalog.ServerType(0, row.Type)
	img, _ := catalog.Image(row.ImageID, "")
	m := Machine{
		ID: row.ID, Name: row.Name, Image: catalog.ImageName(img), Slot: row.Slot, UserData: row.UserData,
		Keys: row.Keys, MemoryGB: float64(typ.Memory), Cores: typ.Cores,
	}
	for _, n := range row.NICs {
		if nic, ok := nicSpec(t, n); ok {
			m.NICs = append(m.NICs, nic)
		}
	}
	return m, true
}

func nicSpec(t *state.Tables, n state.NIC) (NIC, bool) {
	net, ok := t.Networks.Get(n.Network)
	addr, err := netip.ParseAddr(n.IP)
	if !ok || err != nil {
		return NIC{}, false
	}
	return NIC{Network: networkSpec(net), Name: n.Name, Addr: addr, MAC: n.MAC}, true
}

func (s *Server) deleteServer(r *request) (int, any, error) {
	id, err := r.id("server")
	if err != nil {
		return 0, nil, err
	}
	var a *state.Action
	err = s.Store.Update(func(tx *state.Tx) error {
		row, err := getRow(tx.Tables, serverKind(), r.project, id)
		if err != nil {
			return err
		}
		if row.ProtectDelete {
			return fail("protected", "server deletion is protected")
		}
		if locked(tx.Tables, "server", id) {
			return errLocked("server")
		}
		err = state.Edit(tx, tx.Servers, id, func(row *state.Server) { row.Status, row.Power = state.Deleting, false })
		if err != nil {
			return err
		}
		a, err = s.begin(tx, r.project, "delete_server", nil, 0, state.Resource{Type: "server", ID: id})
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	s.run(a)
	return http.StatusOK, map[string]any{"action": viewAction(a)}, nil
}
