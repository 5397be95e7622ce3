package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"hk/remote"
)

// Object is a cloud object that a destroy deletes.
type Object struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	ID   int64  `json:"id"`

	host string // of a server
}

// DestroyPlan is what a destroy would do.
type DestroyPlan struct {
	Name    string   `json:"cluster"`
	UID     string   `json:"uid"`
	Objects []Object `json:"objects"` // in the order they go
	Unit    string   `json:"unit"`    // the credential unit, moved away; "" if there is none
	Locks   int      `json:"-"`       // expired locks that are left over
}

// Empty reports whether there is nothing to do.
func (p *DestroyPlan) Empty() bool { return len(p.Objects) == 0 && p.Unit == "" && p.Locks == 0 }

// Kinds of objects in the order they are deleted: what sends traffic first, then
// what uses the others.
var destroyOrder = []string{"load balancer", "server", "placement group", "firewall", "network", "ssh key"}

// PlanDestroy lists what carries the cluster's UID and nothing else. It needs a
// look at the cloud and no config.
func (s *Session) PlanDestroy() (*DestroyPlan, error) {
	f, u := s.Found(), s.Unit()
	if f == nil {
		return nil, errors.New("bug: a destroy without a look")
	}
	st := s.Situation(Ask{})
	for _, rule := range []func(*Situation) (Decision, bool){cloudUnreadable, otherUID} {
		if d, ok := rule(&st); ok {
			d.Action = Refuse
			return nil, d.Err()
		}
	}
	p := &DestroyPlan{Name: s.o.Name, UID: f.UID}
	if u != nil {
		p.Unit = u.Place()
	}
	var protected []string
	for i := range f.Ours.Servers {
		if o := &f.Ours.Servers[i]; o.Protected {
			protected = append(protected, fmt.Sprintf("server %s (%d)", o.Name, o.ID))
		}
	}
	if len(protected) > 0 {
		return nil, &Refusal{
			Exit: ExitCloud, World: "cloud", Message: "servers of " + s.o.Name + " are protected from deletion",
			Details: protected, Hints: []string{"take the protection away in the cloud console first"},
		}
	}
	p.Objects = objects(f.Ours)
	locks := locksOf(f.Inventory, s.o.Name)
	p.Locks = len(locks)
	if len(p.Objects) == 0 && u != nil && !s.maybeHere(locks) {
		d, _ := wrongProject(&st)
		return nil, d.Err()
	}
	return p, nil
}

// maybeHere reports whether the cluster's objects, of which none is left, were
// in this project: none was ever asked for, or a destroy was begun here, whose
// lock tells.
func (s *Session) maybeHere(locks []LockInfo) bool {
	m := s.Unit().Manifest()
	if m.Born == nil && m.EtcdBorn == nil && len(s.Unit().Hosts()) == 0 {
		return true
	}
	return m.Destroying != nil && slices.ContainsFunc(locks, func(l LockInfo) bool { return l.uid == m.UID })
}

func objects(inv *remote.Inventory) []Object {
	var out []Object
	for i := range inv.LoadBalancers {
		o := &inv.LoadBalancers[i]
		out = append(out, Object{Kind: "load balancer", Name: o.Name, ID: o.ID})
	}
	for i := range inv.Servers {
		o := &inv.Servers[i]
		out = append(out, Object{Kind: "server", Name: o.Name, ID: o.ID, host: o.Labels[remote.LabelHost]})
	}
	for i := range inv.PlacementGroups {
		o := &inv.PlacementGroups[i]
		out = append(out, Object{Kind: "placement group", Name: o.Name, ID: o.ID})
	}
	for i := range inv.Firewalls {
		o := &inv.Firewalls[i]
		out = append(out, Object{Kind: "firewall", Name: o.Name, ID: o.ID})
	}
	for i := range inv.Networks {
		o := &inv.Networks[i]
		out = append(out, Object{Kind: "network", Name: o.Name, ID: o.ID})
	}
	for i := range inv.SSHKeys {
		o := &inv.SSHKeys[i]
		out = append(out, Object{Kind: "ssh key", Name: o.Name, ID: o.ID})
	}
	slices.SortStableFunc(out, func(a, b Object) int {
		if a.Kind != b.Kind {
			return slices.Index(destroyOrder, a.Kind) - slices.Index(destroyOrder, b.Kind)
		}
		return strings.Compare(a.Name, b.Name)
	})
	return out
}

// Destroy deletes what carries the cluster's UID, then moves the credential unit
// to destroyed/, then gives the lock back, in this order: whatever is left after
// a crash is found by the next destroy. As for Write, the caller holds the local
// run lock. told hears of each object that is gone;
// it may be nil.
func (s *Session) Destroy(ctx context.Context, told func(Object)) error {
	if told == nil {
		told = func(Object) {}
	}
	begun, err := s.destroy(ctx, told)
	how := (*Lease).Release
	if err != nil && begun {
		how = (*Lease).Expire // the next one must see that it was begun here
	}
	return errors.Join(err, s.giveBack(how)) //nolint:contextcheck // also after ctx has ended
}

func (s *Session) destroy(ctx context.Context, told func(Object)) (begun bool, err error) {
	if s.Found() == nil {
		if _, err := s.Discover(ctx, Look{NoHosts: true}); err != nil {
			return begun, err
		}
	}
	// Planned before the lock is taken, too: afterwards a lock with our UID is
	// there in any project, the wrong one included.
	first, err := s.PlanDestroy()
	if err != nil {
		return begun, err
	}
	if len(first.Objects) == 0 && first.Unit != "" {
		// Nothing but the unit is left. It goes before the old lock does, which
		// alone tells that the rest was here.
		if l := s.Found().Lock; l != nil && !l.Expired {
			return begun, locked(s.o.Name, l)
		}
		if err := s.retire(); err != nil {
			return begun, err
		}
	}
	ctx, _, err = s.lock(ctx, Look{NoHosts: true})
	if err != nil {
		return begun, err
	}
	p, err := s.PlanDestroy() // on what was seen under the lease
	if err != nil {
		return begun, err
	}
	if u := s.Unit(); u != nil {
		err := u.change(func(st *state) error {
			if st.m.Destroying == nil {
				now := u.now().UTC()
				st.m.Destroying = &now
			}
			return nil
		})
		if err != nil {
			return begun, err
		}
		begun = true
	}
	if err := s.deleteAll(ctx, p.Objects, told); err != nil {
		return begun, err
	}
	// An answer may have lied, and a create of before may have come late.
	inv, err := s.cloud.Inventory(ctx)
	if err != nil {
		return begun, fmt.Errorf("making sure that nothing of %s is left: %w", s.o.Name, err)
	}
	if left := objects(Mine(inv, p.UID)); len(left) > 0 {
		return begun, fmt.Errorf("%s (%d) and %d more objects of %s are still there; run the same command again", left[0].Kind, left[0].ID, len(left)-1, s.o.Name)
	}
	return begun, s.retire()
}

// retire moves the credential unit away, if there is one.
func (s *Session) retire() error {
	if s.Unit() == nil {
		return nil
	}
	now := s.o.World.Clock().UTC().Format("20060102T150405Z")
	if err := s.o.Store.Retire(s.o.Name, s.o.Name+"-"+now); err != nil {
		return err
	}
	return s.setUnit(nil)
}

// deletes is how many objects are deleted at a time; the cloud client paces
// itself.
const deletes = 16

// deleteAll deletes kind by kind, all objects of a kind at a time. What cannot
// be deleted does not keep the others of its kind; the next kind waits for it.
func (s *Session) deleteAll(ctx context.Context, all []Object, told func(Object)) error {
	var tell sync.Mutex
	for _, kind := range destroyOrder {
		var mu sync.Mutex
		var errs []error
		var g errgroup.Group
		g.SetLimit(deletes)
		for _, o := range all {
			if o.Kind != kind {
				continue
			}
			g.Go(func() error {
				err := s.deleteOne(ctx, o)
				if err == nil && o.host != "" {
					err = s.dropHost(o.host)
				}
				if err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
					return nil
				}
				tell.Lock()
				told(o)
				tell.Unlock()
				return nil
			})
		}
		_ = g.Wait() // errors are in errs, all of them
		if len(errs) > 0 {
			slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
			return errors.Join(errs...)
		}
	}
	return nil
}

func (s *Session) dropHost(host string) error {
	u := s.Unit()
	if u == nil {
		return nil
	}
	return u.DropHost(host)
}

// An object may be in use for a moment after what used it is gone.
const (
	inUseTries = 15
	inUsePause = 2 * time.Second
)

func (s *Session) deleteOne(ctx context.Context, o Object) error {
	var err error
	for try := range inUseTries {
		if try > 0 {
			if werr := s.o.Timer.Wait(ctx, inUsePause); werr != nil {
				return errors.Join(err, context.Cause(ctx))
			}
		}
		if err = s.deleteCall(ctx, o); err == nil {
			return nil
		}
		var ce *remote.CloudError
		if !errors.As(err, &ce) || !ce.Again && ce.Code != "resource_in_use" && ce.Code != "locked" && ce.Code != "conflict" {
			break
		}
	}
	return fmt.Errorf("deleting %s %s: %w", o.Kind, o.Name, err)
}

func (s *Session) deleteCall(ctx context.Context, o Object) error {
	switch o.Kind {
	case "load balancer":
		return s.cloud.DeleteLoadBalancer(ctx, o.ID)
	case "server":
		return s.cloud.DeleteServer(ctx, o.ID)
	case "placement group":
		return s.cloud.DeletePlacementGroup(ctx, o.ID)
	case "firewall":
		return s.cloud.DeleteFirewall(ctx, o.ID)
	case "network":
		return s.cloud.DeleteNetwork(ctx, o.ID)
	case "ssh key":
		return s.cloud.DeleteSSHKey(ctx, o.ID)
	}
	return errors.New("bug: nobody deletes a " + o.Kind)
}
