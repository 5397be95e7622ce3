package api

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"hk/remote/lab/state"
)

// workCreate makes disk and interfaces; the firewalls act before it can start.
func (s *Server) workCreate(ctx context.Context, a *state.Action) (func(*state.Tx) error, error) {
	id := a.Resources[0].ID
	m, ok := s.machineByID(id)
	if !ok {
		return nil, notFound("server", id)
	}
	if err := s.Backend.Build(ctx, m); err != nil {
		return nil, err
	}
	for _, n := range m.NICs {
		if err := s.Backend.Join(ctx, id, n); err != nil {
			return nil, err
		}
	}
	if err := s.syncRules(ctx); err != nil {
		return nil, err
	}
	s.syncNames()
	return func(tx *state.Tx) error {
		return state.Edit(tx, tx.Servers, id, func(row *state.Server) {
			row.Status = state.Off
			if row.Power {
				row.Status = state.Starting
			}
		})
	}, nil
}

func (s *Server) machineByID(id int64) (m Machine, ok bool) {
	s.Store.View(func(t *state.Tables) { m, ok = s.machine(t, id) })
	return m, ok
}

// workStart starts a machine.
func (s *Server) workStart(ctx context.Context, a *state.Action) (func(*state.Tx) error, error) {
	id := a.Resources[0].ID
	m, ok := s.machineByID(id)
	if !ok {
		return nil, notFound("server", id)
	}
	unlock := s.power.of(id)
	err := s.Backend.Start(ctx, m)
	unlock()
	if err != nil {
		return nil, err
	}
	s.balancersOfServers()
	return s.running(id), nil
}

// running is the change after a machine was started.
func (s *Server) running(id int64) func(*state.Tx) error {
	return func(tx *state.Tx) error {
		return state.Edit(tx, tx.Servers, id, func(row *state.Server) {
			row.Status, row.Power = state.Running, true
			if s.Backend.Power(id) == PowerOff { // it went off again already
				row.Status, row.Power = state.Off, false
			}
		})
	}
}

// workDelete removes a machine and then all that names it.
func (s *Server) workDelete(ctx context.Context, a *state.Action) (func(*state.Tx) error, error) {
	id := a.Resources[0].ID
	m, ok := s.machineByID(id)
	if !ok {
		return nil, nil
	}
	for _, n := range m.NICs {
		if err := s.Backend.Leave(ctx, id, n.Network.ID); err != nil {
			return nil, err
		}
	}
	unlock := s.power.of(id)
	err := s.Backend.Remove(ctx, id)
	unlock()
	if err != nil {
		return nil, err
	}
	if err := s.syncRules(ctx); err != nil {
		return nil, err
	}
	s.syncNames()
	s.balancersOfServers()
	return func(tx *state.Tx) error {
		for _, f := range tx.Firewalls.All() {
			if slices.Contains(f.Servers, id) {
				err := state.Edit(tx, tx.Firewalls, f.ID, func(row *state.Firewall) {
					row.Servers = slices.DeleteFunc(row.Servers, func(x int64) bool { return x == id })
				})
				if err != nil {
					return err
				}
			}
		}
		for _, lb := range tx.LoadBalancers.All() {
			if slices.ContainsFunc(lb.Targets, func(x state.Target) bool { return x.Server == id }) {
				err := state.Edit(tx, tx.LoadBalancers, lb.ID, func(row *state.LoadBalancer) {
					row.Targets = slices.DeleteFunc(row.Targets, func(x state.Target) bool { return x.Server == id })
				})
				if err != nil {
					return err
				}
			}
		}
		state.Delete(tx, tx.Servers, id)
		return nil
	}, nil
}

// syncNames tells the name server who is there.
func (s *Server) syncNames() {
	names := map[string]netip.Addr{}
	s.Store.View(func(t *state.Tables) {
		for _, srv := range t.Servers.All() {
			if srv.Slot != 0 && srv.Status != state.Deleting {
				names[srv.Name] = s.Backend.Address(srv.Slot)
			}
		}
	})
	s.Backend.SyncNames(names)
}

// Exited is told that a machine ended by itself: it is off now, or is to be started
// again if it rebooted.
func (s *Server) Exited(id int64) {
	s.wg.Go(func() {
		if !s.waitUnlocked(id) {
			return
		}
		if err := s.exited(id); err != nil && s.ctx.Err() == nil {
			s.Log(fmt.Sprintf("server %d ended: %v", id, err))
		}
	})
}

// waitUnlocked waits until no action is at work on a server: until then that action
// says what the server is. False means the lab is closing.
func (s *Server) waitUnlocked(id int64) bool {
	for {
		ring := s.done.wait()
		busy := false
		s.Store.View(func(t *state.Tables) { busy = locked(t, "server", id) })
		if !busy {
			return true
		}
		select {
		case <-ring:
		case <-s.ctx.Done():
			return false
		}
	}
}

func (s *Server) exited(id int64) error {
	unlock := s.power.of(id)
	defer unlock()
	wanted := false
	s.Store.View(func(t *state.Tables) {
		if row, ok := t.Servers.Get(id); ok {
			wanted = row.Power
		}
	})
	power := s.Backend.Power(id)
	if power == PowerReboot && wanted {
		m, ok := s.machineByID(id)
		if !ok {
			return nil
		}
		return s.Backend.Start(s.ctx, m)
	}
	return s.Store.Update(func(tx *state.Tx) error {
		row, ok := tx.Servers.Get(id)
		if !ok || row.Status == state.Deleting || power == PowerOn || locked(tx.Tables, "server", id) {
			return nil
		}
		return state.Edit(tx, tx.Servers, id, func(row *state.Server) { row.Status, row.Power = state.Off, false })
	})
}
