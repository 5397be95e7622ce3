package api

import (
	"errors"
	"fmt"

	"hk/remote/lab/state"
)

// Resume brings the world to what the state says and takes up all actions that
// were under way when the last daemon ended. It is called once, before serving.
func (s *Server) Resume() error {
	var networks, balancers []int64
	var running []*state.Action
	s.Store.View(func(t *state.Tables) {
		for _, n := range t.Networks.All() {
			networks = append(networks, n.ID)
		}
		for _, lb := range t.LoadBalancers.All() {
			if !lb.Deleting {
				balancers = append(balancers, lb.ID)
			}
		}
		for _, a := range t.Actions.All() {
			if a.Status == state.ActionRunning {
				running = append(running, a)
			}
		}
	})
	var errs []error
	for _, id := range networks {
		errs = append(errs, s.syncNetwork(s.ctx, id))
	}
	errs = append(errs, s.syncRules(s.ctx), s.resumeServers())
	for _, id := range balancers {
		errs = append(errs, s.syncBalancer(s.ctx, id))
	}
	s.syncNames()
	s.run(running...)
	return errors.Join(errs...)
}

// resumeServers finds out how each server is that no action is about to change.
func (s *Server) resumeServers() error {
	var rows []*state.Server
	s.Store.View(func(t *state.Tables) {
		for _, r := range t.Servers.All() {
			if !locked(t, "server", r.ID) {
				rows = append(rows, r)
			}
		}
	})
	var errs []error
	for _, r := range rows {
		m, ok := s.machineByID(r.ID)
		if !ok {
			continue
		}
		power := s.Backend.Power(r.ID)
		if (power == PowerLost || power == PowerReboot) && r.Power {
			// The computer went down under it, or it rebooted while nobody was here.
			s.Log(fmt.Sprintf("server %d (%s) does not run but should, starting it", r.ID, r.Name))
			errs = append(errs, s.revive(m))
			power = s.Backend.Power(r.ID)
		}
		status := state.Off
		if power == PowerOn {
			status = state.Running
		}
		if status == r.Status && r.Power == (power == PowerOn) {
			continue
		}
		errs = append(errs, s.Store.Update(func(tx *state.Tx) error {
			return state.Edit(tx, tx.Servers, r.ID, func(row *state.Server) { row.Status, row.Power = status, power == PowerOn })
		}))
	}
	return errors.Join(errs...)
}

func (s *Server) revive(m Machine) error {
	if err := s.Backend.Build(s.ctx, m); err != nil {
		return err
	}
	for _, n := range m.NICs {
		if err := s.Backend.Join(s.ctx, m.ID, n); err != nil {
			return err
		}
	}
	return s.Backend.Start(s.ctx, m)
}
