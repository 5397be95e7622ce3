package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/hetznercloud/hcloud-go/v2/hcloud/schema"

	"hk/remote/lab/state"
)

// worker does what an action says. It may have run before, up to any point. It
// returns what is to change in the state together with the action's success.
type worker func(ctx context.Context, a *state.Action) (func(*state.Tx) error, error)

// begin writes an action down; run it with run once the change is committed.
// Two actions on one thing are done one after the other if the second says so.
func (s *Server) begin(tx *state.Tx, project, command string, args any, after int64, res ...state.Resource) (*state.Action, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	a := &state.Action{
		ID: tx.NewID(), Project: project, Command: command, Status: state.ActionRunning,
		Started: s.Now().UTC(), Resources: res, Args: raw, After: after,
	}
	state.Put(tx, tx.Actions, a.ID, a)
	return a, nil
}

// finished writes down an action whose work is the change it is in.
func (s *Server) finished(tx *state.Tx, project, command string, res ...state.Resource) *state.Action {
	now := s.Now().UTC()
	a := &state.Action{
		ID: tx.NewID(), Project: project, Command: command, Status: state.ActionSuccess,
		Started: now, Finished: now, Resources: res,
	}
	state.Put(tx, tx.Actions, a.ID, a)
	return a
}

// run does actions in the background.
func (s *Server) run(actions ...*state.Action) {
	for _, a := range actions {
		if a == nil || a.Status != state.ActionRunning {
			continue
		}
		s.wg.Go(func() { s.work(a) })
	}
}

func (s *Server) work(a *state.Action) {
	if !s.waitFor(a) {
		return
	}
	w, ok := s.workers()[a.Command]
	var commit func(*state.Tx) error
	var err error
	if !ok {
		err = fmt.Errorf("no worker for %s", a.Command)
	} else {
		commit, err = w(s.ctx, a)
	}
	if s.ctx.Err() != nil {
		return // a later Resume does it again
	}
	if err == nil && !s.pause(s.Latency(a.Command)-s.Now().Sub(a.Started)) {
		return
	}
	s.end(a, commit, err)
}

// waitFor waits for the action before this one; if that failed, this one fails
// too and is ended here.
func (s *Server) waitFor(a *state.Action) bool {
	for {
		ring := s.done.wait()
		status := state.ActionSuccess
		if a.After != 0 {
			s.Store.View(func(t *state.Tables) {
				if before, ok := t.Actions.Get(a.After); ok {
					status = before.Status
				}
			})
		}
		switch status {
		case state.ActionSuccess:
			return true
		case state.ActionError:
			s.end(a, nil, fail("action_failed", "an earlier action failed"))
			return false
		}
		select {
		case <-ring:
		case <-s.ctx.Done():
			return false
		}
	}
}

// pause waits for d; false means the lab is closing.
func (s *Server) pause(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// end writes an action's end down, with what it changed.
func (s *Server) end(a *state.Action, commit func(*state.Tx) error, err error) {
	uerr := s.Store.Update(func(tx *state.Tx) error {
		if err == nil && commit != nil {
			if err := commit(tx); err != nil {
				return err
			}
		}
		if err != nil {
			s.undone(tx, a)
		}
		return state.Edit(tx, tx.Actions, a.ID, func(row *state.Action) {
			row.Finished = s.Now().UTC()
			row.Status, row.Args = state.ActionSuccess, nil
			if err != nil {
				row.Status, row.ErrorCode, row.Error = state.ActionError, "action_failed", err.Error()
				if e, ok := errors.AsType[*Error](err); ok {
					row.ErrorCode, row.Error = e.Code, e.Message
				}
			}
		})
	})
	if uerr != nil {
		s.Log(fmt.Sprintf("action %d %s: %v", a.ID, a.Command, uerr))
	}
	if err != nil {
		s.Log(fmt.Sprintf("action %d %s failed: %v", a.ID, a.Command, err))
	}
	s.done.ring()
}

// undone leaves what a failed action was about in a state it can be used from.
func (s *Server) undone(tx *state.Tx, a *state.Action) {
	for _, r := range a.Resources {
		if r.Type != "server" {
			continue
		}
		if srv, ok := tx.Servers.Get(r.ID); ok && srv.Status != state.Deleting {
			status := state.Off
			if s.Backend.Power(r.ID) == PowerOn {
				status = state.Running
			}
			_ = state.Edit(tx, tx.Servers, r.ID, func(row *state.Server) { row.Status = status })
		}
	}
}

// locked reports whether an action is at work on a thing.
func locked(t *state.Tables, kind string, id int64) bool {
	busy := false
	t.Actions.Each(func(a *state.Action) bool {
		if a.Status == state.ActionRunning && slices.ContainsFunc(a.Resources, func(r state.Resource) bool {
			return r.Type == kind && r.ID == id && !r.Free
		}) {
			busy = true
		}
		return !busy
	})
	return busy
}

func errLocked(kind string) error {
	return fail("locked", "%s is locked, another action is running", kind)
}

// keepActions bounds how many ended actions are remembered.
const keepActions = 5000

// Prune forgets the oldest ended actions.
func (s *Server) Prune() error {
	return s.Store.Update(func(tx *state.Tx) error {
		if tx.Actions.Len() <= keepActions {
			return nil
		}
		drop := tx.Actions.Len() - keepActions
		for _, a := range tx.Actions.All() {
			if drop == 0 {
				break
			}
			if a.Status != state.ActionRunning {
				state.Delete(tx, tx.Actions, a.ID)
				drop--
			}
		}
		return nil
	})
}

// routesActions are the global and the per-resource action routes.
func (s *Server) routesActions() {
	s.handle("GET /actions", s.listActionsByID)
	s.handle("GET /actions/{id}", s.getAction(""))
	for path, kind := range map[string]string{
		"servers": "server", "networks": "network", "firewalls": "firewall", "load_balancers": "load_balancer", "images": "image",
	} {
		s.handle("GET /"+path+"/actions", s.listActions(kind, false))
		one, of := s.getAction(kind), s.listActions(kind, true)
		// PATH/actions/ID and PATH/ID/actions; the mux cannot tell the two apart.
		s.handle("GET /"+path+"/{first}/{second}", func(r *request) (int, any, error) {
			first, second := r.PathValue("first"), r.PathValue("second")
			switch {
			case first == "actions":
				r.SetPathValue("id", second)
				return one(r)
			case second == "actions":
				r.SetPathValue("id", first)
				return of(r)
			}
			return 0, nil, fail("not_found", "API endpoint not found: %s %s", r.Method, r.URL.Path)
		})
	}
}

func (s *Server) getAction(kind string) handler {
	return func(r *request) (int, any, error) {
		id, err := r.id("action")
		if err != nil {
			return 0, nil, err
		}
		var out *schema.ActionGetResponse
		s.Store.View(func(t *state.Tables) {
			if a, ok := t.Actions.Get(id); ok && a.Project == r.project && about(a, kind, 0) {
				out = &schema.ActionGetResponse{Action: viewAction(a)}
			}
		})
		if out == nil {
			return 0, nil, notFound("action", id)
		}
		return http.StatusOK, out, nil
	}
}

// about reports whether an action is about a kind of thing (or one of them).
func about(a *state.Action, kind string, id int64) bool {
	return kind == "" || slices.ContainsFunc(a.Resources, func(r state.Resource) bool {
		return r.Type == kind && (id == 0 || r.ID == id)
	})
}

// listActionsByID: without IDs the real API refuses since 2025-01-30.
func (s *Server) listActionsByID(r *request) (int, any, error) {
	if len(r.URL.Query()["id"]) == 0 {
		e := fail("deprecated_api_endpoint", "API functionality was removed")
		e.Details = map[string]string{"announcement": "https://docs.hetzner.cloud/changelog#2024-07-24-actions-endpoint-deprecated"}
		return 0, nil, e
	}
	return s.listActions("", false)(r)
}

func (s *Server) listActions(kind string, one bool) handler {
	return func(r *request) (int, any, error) {
		q := r.URL.Query()
		var want int64
		if one {
			id, err := r.id(kind)
			if err != nil {
				return 0, nil, err
			}
			want = id
		}
		var ids []int64
		for _, v := range q["id"] {
			id, err := strconv.ParseInt(v, 10, 64)
			if err != nil {
				return 0, nil, invalid("id", "must be a number")
			}
			ids = append(ids, id)
		}
		var rows []*state.Action
		s.Store.View(func(t *state.Tables) {
			for _, a := range t.Actions.All() {
				if a.Project == r.project && about(a, kind, want) &&
					(len(ids) == 0 || slices.Contains(ids, a.ID)) &&
					(len(q["status"]) == 0 || slices.Contains(q["status"], a.Status)) {
					rows = append(rows, a)
				}
			}
		})
		err := sortRows(q, rows, func(a *state.Action) sortKeys {
			return sortKeys{id: a.ID, created: a.Started, other: map[string]string{
				"command": a.Command, "status": a.Status, "progress": strconv.Itoa(len(a.Status)), "finished": a.Finished.Format(time.RFC3339Nano),
			}}
		}, "id", "command", "status", "progress", "started", "finished")
		if err != nil {
			return 0, nil, err
		}
		page, meta, err := paginate(q, rows)
		if err != nil {
			return 0, nil, err
		}
		return http.StatusOK, list("actions", meta, page, viewAction), nil
	}
}
