package api

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"slices"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"hk/remote/lab/catalog"
	"hk/remote/lab/state"
)

// noWork says that an action has nothing to do and is done as it is written.
type noWork struct{}

func (s *Server) routesServerActions() {
	power := func(name, command, status string) {
		s.handle("POST /servers/{id}/actions/"+name, func(r *request) (int, any, error) {
			return s.serverAction(r, nil, command, func(_ *state.Tx, row *state.Server) (any, error) {
				if status != "" {
					row.Status = status
				}
				return nil, nil
			})
		})
	}
	power("poweron", "start_server", state.Starting)
	power("poweroff", "stop_server", state.Stopping)
	power("reset", "reset_server", "")
	power("shutdown", "shutdown_server", "")
	power("reboot", "reboot_server", "")
	s.handle("POST /servers/{id}/actions/rebuild", s.rebuild)
	s.handle("POST /servers/{id}/actions/change_type", s.changeType)
	s.handle("POST /servers/{id}/actions/change_protection", s.protectServer)
	s.handle("POST /servers/{id}/actions/change_dns_ptr", s.serverDNSPtr)
	s.handle("POST /servers/{id}/actions/attach_to_network", s.attachServer)
	s.handle("POST /servers/{id}/actions/detach_from_network", s.detachServer)
	s.handle("POST /servers/{id}/actions/change_alias_ips", s.changeAlias)
	s.handle("POST /servers/{id}/actions/add_to_placement_group", s.joinGroup)
	s.handle("POST /servers/{id}/actions/remove_from_placement_group", s.leaveGroup)
	for _, name := range []string{
		"reset_password", "create_image", "enable_rescue", "disable_rescue", "attach_iso", "detach_iso",
		"enable_backup", "disable_backup", "request_console",
	} {
		s.handle("POST /servers/{id}/actions/"+name, func(r *request) (int, any, error) {
			if _, err := s.findServer(r); err != nil {
				return 0, nil, err
			}
			return 0, nil, fail("unsupported_error", "the lab cannot %s yet", name)
		})
	}
}

func (s *Server) findServer(r *request) (row *state.Server, err error) {
	id, err := r.id("server")
	if err != nil {
		return nil, err
	}
	s.Store.View(func(t *state.Tables) { row, err = getRow(t, serverKind(), r.project, id) })
	return row, err
}

// serverAction judges and writes down an action on a server and starts it. plan
// changes a copy of the row and returns the worker's arguments; noWork{} means
// that the change of the row was all.
func (s *Server) serverAction(r *request, req any, command string, plan func(*state.Tx, *state.Server) (any, error)) (int, any, error) {
	id, err := r.id("server")
	if err != nil {
		return 0, nil, err
	}
	if req != nil {
		if err := r.decode(req); err != nil {
			return 0, nil, err
		}
	}
	var a *state.Action
	err = s.Store.Update(func(tx *state.Tx) error {
		row, err := getRow(tx.Tables, serverKind(), r.project, id)
		if err != nil {
			return err
		}
		if row.Status == state.Deleting || locked(tx.Tables, "server", id) {
			return errLocked("server")
		}
		var args any
		var perr error
		err = state.Edit(tx, tx.Servers, id, func(row *state.Server) { args, perr = plan(tx, row) })
		if err := firstErr(perr, err); err != nil {
			return err
		}
		res := state.Resource{Type: "server", ID: id}
		if _, none := args.(noWork); none {
			a = s.finished(tx, r.project, command, res)
			return nil
		}
		a, err = s.begin(tx, r.project, command, args, 0, res)
		return err
	})
	if err != nil {
		return 0, nil, err
	}
	s.run(a)
	return http.StatusCreated, map[string]any{"action": viewAction(a)}, nil
}

func (s *Server) workStop(ctx context.Context, a *state.Action) (func(*state.Tx) error, error) {
	id := a.Resources[0].ID
	if err := s.cut(ctx, id); err != nil {
		return nil, err
	}
	return func(tx *state.Tx) error {
		return state.Edit(tx, tx.Servers, id, func(row *state.Server) { row.Status, row.Power = state.Off, false })
	}, nil
}

func (s *Server) workReset(ctx context.Context, a *state.Action) (func(*state.Tx) error, error) {
	if err := s.cut(ctx, a.Resources[0].ID); err != nil {
		return nil, err
	}
	return s.workStart(ctx, a)
}

func (s *Server) cut(ctx context.Context, id int64) error {
	defer s.power.of(id)()
	return s.Backend.Cut(ctx, id)
}

// workShutdown only asks: as on the real cloud, the action is done when the
// machine was told, and the server is off when the machine says so.
func (s *Server) workShutdown(_ context.Context, a *state.Action) (func(*state.Tx) error, error) {
	id := a.Resources[0].ID
	if s.Backend.Power(id) != PowerOn {
		return nil, nil
	}
	return nil, s.Backend.Shutdown(id)
}

func (s *Server) workReboot(_ context.Context, a *state.Action) (func(*state.Tx) error, error) {
	id := a.Resources[0].ID
	if s.Backend.Power(id) != PowerOn {
		return nil, fail("unsupported_error", "server is not running")
	}
	return nil, s.Backend.Reboot(id)
}

func (s *Server) rebuild(r *request) (int, any, error) {
	var req schema.ServerActionRebuildRequest
	status, body, err := s.serverAction(r, &req, "rebuild_server", func(_ *state.Tx, row *state.Server) (any, error) {
		if row.ProtectRebuild {
			return nil, fail("protected", "server rebuild is protected")
		}
		img, ok := catalog.Image(req.Image.ID, req.Image.Name)
		if !ok {
			return nil, invalid("image", "image not found")
		}
		if req.UserData != nil {
			if len(*req.UserData) > maxUserData {
				return nil, invalid("user_data", "must not be longer than %d bytes", maxUserData)
			}
			row.UserData = *req.UserData
		}
		row.ImageID, row.Status, row.Power = img.ID, state.Rebuilding, true
		return nil, nil
	})
	if m, ok := body.(map[string]any); ok {
		m["root_password"] = nil
	}
	return status, body, err
}

func (s *Server) workRebuild(ctx context.Context, a *state.Action) (func(*state.Tx) error, error) {
	id := a.Resources[0].ID
	m, ok := s.machineByID(id)
	if !ok {
		return nil, notFound("server", id)
	}
	unlock := s.power.of(id)
	err := s.Backend.Wipe(ctx, id)
	unlock()
	if err != nil {
		return nil, err
	}
	if err := s.Backend.Build(ctx, m); err != nil {
		return nil, err
	}
	for _, n := range m.NICs {
		if err := s.Backend.Join(ctx, id, n); err != nil {
			return nil, err
		}
	}
	return s.workStart(ctx, a)
}

type changeTypeArgs struct {
	Type string
	Disk int
}

func (s *Server) changeType(r *request) (int, any, error) {
	var req schema.ServerActionChangeTypeRequest
	return s.serverAction(r, &req, "change_server_type", func(_ *state.Tx, row *state.Server) (any, error) {
		if row.Status != state.Off {
			return nil, fail("server_not_stopped", "server must be stopped before changing its type")
		}
		typ, _, err := placeServer(req.ServerType, row.Location)
		if err != nil {
			return nil, err
		}
		old, _ := catalog.ServerType(0, row.Type)
		if typ.Name == old.Name {
			return nil, fail("invalid_server_type", "server has this type already")
		}
		if typ.Disk < row.DiskGB || typ.Architecture != old.Architecture {
			return nil, fail("invalid_server_type", "the server type's disk is too small, or its architecture another")
		}
		args := changeTypeArgs{Type: typ.Name, Disk: row.DiskGB}
		if req.UpgradeDisk {
			args.Disk = typ.Disk
		}
		row.Status = state.Migrating
		return args, nil
	})
}

func (s *Server) workChangeType(_ context.Context, a *state.Action) (func(*state.Tx) error, error) {
	var args changeTypeArgs
	if err := json.Unmarshal(a.Args, &args); err != nil {
		return nil, err
	}
	return func(tx *state.Tx) error {
		return state.Edit(tx, tx.Servers, a.Resources[0].ID, func(row *state.Server) {
			row.Type, row.DiskGB, row.Status = args.Type, args.Disk, state.Off
		})
	}, nil
}

func (s *Server) protectServer(r *request) (int, any, error) {
	var req schema.ServerActionChangeProtectionRequest
	return s.serverAction(r, &req, "change_protection", func(_ *state.Tx, row *state.Server) (any, error) {
		if req.Delete != nil {
			row.ProtectDelete = *req.Delete
		}
		if req.Rebuild != nil {
			row.ProtectRebuild = *req.Rebuild
		}
		return noWork{}, nil
	})
}

func (s *Server) serverDNSPtr(r *request) (int, any, error) {
	var req schema.ServerActionChangeDNSPtrRequest
	return s.serverAction(r, &req, "change_dns_ptr", func(_ *state.Tx, row *state.Server) (any, error) {
		if row.Slot == 0 || req.IP != s.Backend.Address(row.Slot).String() {
			return nil, invalid("ip", "is not an address of the server")
		}
		row.DNSPtr = ""
		if req.DNSPtr != nil {
			row.DNSPtr = *req.DNSPtr
		}
		return noWork{}, nil
	})
}

type nicArgs struct{ Network int64 }

func (s *Server) attachServer(r *request) (int, any, error) {
	var req schema.ServerActionAttachToNetworkRequest
	return s.serverAction(r, &req, "attach_to_network", func(tx *state.Tx, row *state.Server) (any, error) {
		var alias []string
		for _, a := range req.AliasIPs {
			if a != nil {
				alias = append(alias, *a)
			}
		}
		err := s.planNIC(tx.Tables, r.project, row, req.Network, deref(req.IP), deref(req.IPRange), alias)
		return nicArgs{req.Network}, err
	})
}

func deref(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}

func (s *Server) workAttach(ctx context.Context, a *state.Action) (func(*state.Tx) error, error) {
	id := a.Resources[0].ID
	var args nicArgs
	if err := json.Unmarshal(a.Args, &args); err != nil {
		return nil, err
	}
	m, _ := s.machineByID(id)
	for _, n := range m.NICs {
		if n.Network.ID == args.Network {
			if err := s.Backend.Join(ctx, id, n); err != nil {
				return nil, err
			}
		}
	}
	s.balancersOfServers()
	return nil, nil
}

func (s *Server) detachServer(r *request) (int, any, error) {
	var req schema.ServerActionDetachFromNetworkRequest
	return s.serverAction(r, &req, "detach_from_network", func(_ *state.Tx, row *state.Server) (any, error) {
		if !slices.ContainsFunc(row.NICs, func(n state.NIC) bool { return n.Network == req.Network }) {
			return nil, invalid("network", "server is not attached to the network")
		}
		return nicArgs{req.Network}, nil
	})
}

func (s *Server) workDetach(ctx context.Context, a *state.Action) (func(*state.Tx) error, error) {
	id := a.Resources[0].ID
	var args nicArgs
	if err := json.Unmarshal(a.Args, &args); err != nil {
		return nil, err
	}
	if err := s.Backend.Leave(ctx, id, args.Network); err != nil {
		return nil, err
	}
	return func(tx *state.Tx) error {
		return state.Edit(tx, tx.Servers, id, func(row *state.Server) {
			row.NICs = slices.DeleteFunc(row.NICs, func(n state.NIC) bool { return n.Network == args.Network })
		})
	}, nil
}

func (s *Server) changeAlias(r *request) (int, any, error) {
	var req schema.ServerActionChangeAliasIPsRequest
	return s.serverAction(r, &req, "change_alias_ips", func(tx *state.Tx, row *state.Server) (any, error) {
		i := slices.IndexFunc(row.NICs, func(n state.NIC) bool { return n.Network == req.Network })
		n, ok := tx.Networks.Get(req.Network)
		if i < 0 || !ok {
			return nil, invalid("network", "server is not attached to the network")
		}
		if err := checkAlias(tx.Tables, n, row.NICs[i].IP, req.AliasIPs, row.NICs[i].Alias); err != nil {
			return nil, err
		}
		row.NICs[i].Alias = req.AliasIPs
		return noWork{}, nil
	})
}

func (s *Server) joinGroup(r *request) (int, any, error) {
	var req struct {
		PlacementGroup int64 `json:"placement_group"`
	}
	return s.serverAction(r, &req, "add_to_placement_group", func(tx *state.Tx, row *state.Server) (any, error) {
		if row.Status != state.Off {
			return nil, fail("server_not_stopped", "server must be stopped")
		}
		if row.PlacementGroup != 0 {
			return nil, invalid("placement_group", "server is already in a placement group")
		}
		if req.PlacementGroup == 0 {
			return nil, invalid("placement_group", "is required")
		}
		return noWork{}, planGroup(tx.Tables, r, row, req.PlacementGroup)
	})
}

func (s *Server) leaveGroup(r *request) (int, any, error) {
	return s.serverAction(r, nil, "remove_from_placement_group", func(_ *state.Tx, row *state.Server) (any, error) {
		row.PlacementGroup = 0
		return noWork{}, nil
	})
}

// addrOf is a server's address as a load balancer sees it.
func (s *Server) addrOf(row *state.Server, private bool, network int64) (netip.Addr, bool) {
	if !private {
		return s.Backend.Address(row.Slot), row.Slot != 0
	}
	for _, n := range row.NICs {
		if n.Network == network {
			a, err := netip.ParseAddr(n.IP)
			return a, err == nil
		}
	}
	return netip.Addr{}, false
}
