package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"time"

	"hk/remote"
	"hk/tasks/spec"
)

// OperatorKey is the unit's name for the operator's public SSH key.
const OperatorKey = "ssh.pub"

// Written is the result of the write step.
type Written struct {
	// Ctx is what the build goes on with; it dies with ErrLeaseLost as its cause
	// when the lease is lost.
	Ctx context.Context
	// Found was looked at while the lease was held; what was decided before is
	// decided anew on it.
	Found    *Found
	Decision Decision
	// Generation is the cluster's; records of another one count for nothing.
	Generation uint64
	// New: the unit was made in this step.
	New bool
}

// Write is the step after which there is no "nothing was changed": it takes the
// lease, looks again, decides again, and writes the credential unit. It is
// called only when something is to run, and while the local run lock of the
// cluster is held. On error nothing is held.
func (s *Session) Write(ctx context.Context, ask Ask, look Look) (*Written, error) {
	w, err := s.write(ctx, ask, look)
	if err != nil {
		return nil, errors.Join(err, s.giveBack((*Lease).Release)) //nolint:contextcheck // also after ctx has ended
	}
	return w, nil
}

// giveBack ends the lease, if one is held. It works after the command's context
// has ended.
func (s *Session) giveBack(how func(*Lease, context.Context) error) error {
	s.mu.Lock()
	l := s.lease
	s.lease = nil
	s.mu.Unlock()
	if l == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return how(l, ctx)
}

func (s *Session) write(ctx context.Context, ask Ask, look Look) (*Written, error) {
	ctx, f, err := s.lock(ctx, look)
	if err != nil {
		return nil, err
	}
	d := s.Decide(ask)
	if err := d.Err(); err != nil {
		return nil, err
	}
	w := &Written{Ctx: ctx, Found: f, Decision: d}
	if s.Unit() == nil {
		w.New = true
		err = s.createUnit()
	} else {
		err = s.updateUnit(ask, &d)
	}
	if err != nil {
		return nil, err
	}
	w.Generation = s.Generation()
	return w, nil
}

// lock takes the lease and looks at everything again under it.
func (s *Session) lock(ctx context.Context, look Look) (context.Context, *Found, error) {
	nonce, err := s.nonce()
	if err != nil {
		return ctx, nil, err
	}
	id, err := s.o.Store.ID()
	if err != nil {
		return ctx, nil, err
	}
	o := LeaseOptions{
		Home:  homeName(id, s.o.Holder),
		Cloud: s.o.World.Cloud, Cluster: s.o.Name, UID: s.UID(), Holder: s.o.Holder, Run: s.o.RunID,
		Nonce: nonce, Timer: s.o.Timer,
	}
	if f := s.Found(); f != nil {
		s.mu.Lock()
		o.Seen, o.At = f.Inventory, s.apiBoot
		s.mu.Unlock()
		o.Least = f.newestLease()
	}
	l, ctx, inv, err := Acquire(ctx, o)
	if err != nil {
		return ctx, nil, err
	}
	s.mu.Lock()
	s.lease = l
	s.mu.Unlock()
	// Another hk may have worked between our look and our lease.
	if u := s.Unit(); u == nil {
		fresh, err := OpenUnit(s.o.Store, s.o.Name, s.unitOptions())
		if err == nil {
			err = s.setUnit(fresh)
		}
		if err != nil && !errors.Is(err, remote.ErrNotFound) {
			return ctx, nil, err
		}
	}
	f, err := s.discover(ctx, look, inv)
	if err != nil {
		return ctx, nil, err
	}
	if n := f.newestLease(); n > l.Generation() {
		return ctx, nil, &Refusal{
			Exit: ExitLocked, World: "state", Err: ErrLocked,
			Message: fmt.Sprintf("a host of %s has seen a newer lease (%d) than the one just taken (%d)", s.o.Name, n, l.Generation()),
			Hints:   []string{"the cloud's clock went back; wait until it is right, then run the same command again"},
		}
	}
	s.mu.Lock()
	s.found, s.look = f, look
	s.mu.Unlock()
	s.g.saw(f.Inventory)
	return ctx, f, nil
}

// homeName names a state directory on one computer: the same directory seen from
// two, as over a network file system, is two.
func homeName(id, holder string) string {
	_, host, _ := strings.Cut(holder, "@")
	host, _, _ = strings.Cut(host, ":")
	return sumOf([]byte(id + "\n" + host))[:20]
}

// newestLease is the newest lease generation any host has seen.
func (f *Found) newestLease() uint64 {
	var n uint64
	for _, h := range f.Hosts {
		if h.Facts != nil {
			n = max(n, h.Facts.Host.Lease)
		}
	}
	return n
}

// createUnit draws the identity of a new cluster and makes its unit.
func (s *Session) createUnit() error {
	c := s.Spec()
	if c == nil {
		return errors.New("bug: a new cluster without a config")
	}
	uid, err := NewUID(s.o.Rand)
	if err != nil {
		return err
	}
	alloc, err := allocate(spec.Names(c), nil, nil)
	if err != nil {
		return err
	}
	if _, err := layout(c, alloc); err != nil {
		return err
	}
	text, err := spec.Marshal(c)
	if err != nil {
		return err
	}
	u, err := CreateUnit(s.o.Store, s.o.Name, NewUnit{
		UID: uid, Alloc: alloc, Lock: s.LockText(), Applied: text, SSHKey: s.o.SSHKey,
	}, s.unitOptions())
	if errors.Is(err, fs.ErrExist) {
		return &Refusal{
			Exit: ExitLocked, World: "state", Err: err,
			Message: "another hk on this computer just made " + s.o.Store.Place(s.o.Name),
			Hints:   []string{"run the same command again: it goes on with what is there"},
		}
	}
	if err != nil {
		return err
	}
	return s.setUnit(u)
}

// updateUnit writes what this run set out to do, in one change.
func (s *Session) updateUnit(ask Ask, d *Decision) error {
	u, c := s.Unit(), s.Spec()
	if c == nil {
		return errors.New("bug: a build without a config")
	}
	alloc, err := s.allocate(c)
	if err != nil {
		return err
	}
	if _, err := layout(c, alloc); err != nil {
		return err
	}
	text, err := spec.Marshal(c)
	if err != nil {
		return err
	}
	established := s.Established()
	lock := s.LockText()
	wanted, servers := map[string]bool{}, map[string]*remote.Server{}
	for _, n := range spec.Names(c) {
		wanted[n] = true
	}
	for n, h := range s.Found().Hosts {
		servers[n] = h.Server
	}
	err = u.change(func(st *state) error {
		st.m.Version = s.o.Version
		st.alloc = alloc
		if len(lock) > 0 {
			st.files[fileLock] = lock
		}
		if s.o.SSHKey != "" {
			st.files[OperatorKey] = []byte(strings.TrimSpace(s.o.SSHKey) + "\n")
		}
		if in := st.m.Intent; in != nil && in.RunID == ask.Abandon {
			st.m.Intent = nil
		}
		if !established {
			st.files[fileApplied] = text
		}
		for _, h := range d.Replace {
			delete(st.hosts, h)
		}
		for n, r := range st.hosts {
			// Asked for once, never made, and not wanted any more: no server to
			// remove it with.
			if r.ServerID == 0 && !wanted[n] && servers[n] == nil {
				delete(st.hosts, n)
			}
		}
		if !d.Consented {
			return nil
		}
		st.m.Generation++
		st.m.Intent = &Intent{
			RunID: s.o.RunID, Tasks: slices.Clone(ask.Forced), Generation: st.m.Generation,
			Digest: ConfigDigest(c), Config: string(text), Started: u.now().UTC(),
		}
		return nil
	})
	if err != nil {
		return err
	}
	return s.setUnit(u)
}

// Outcome is how a build ended.
type Outcome struct {
	// OK: every selected task is good. It ends the run's intent and makes its
	// config the applied one.
	OK bool
	// Whole: all tasks of the cluster were selected.
	Whole bool
	// Journal is what became of cluster tasks, by name, for the masters'
	// journals; nil data removes an entry.
	Journal map[string][]byte
}

// Finish ends a build that wrote: it closes the intent and refreshes what every
// master keeps of the unit and of the cluster's journal. What a master could
// not be told comes back as lines for people; the next build tells it.
func (s *Session) Finish(ctx context.Context, o Outcome) (warnings []string, err error) {
	u, c := s.Unit(), s.Spec()
	if u == nil {
		return nil, nil
	}
	if o.OK && c != nil {
		text, err := spec.Marshal(c)
		if err != nil {
			return nil, err
		}
		digest := ConfigDigest(c)
		a := s.Applied()
		same := a != nil && ConfigDigest(a) == digest // forced tasks were all there was to do
		err = u.change(func(st *state) error {
			// A run that only forced some tasks has no more to do. One that goes
			// on with another's, on a part of the cluster, may have left some out.
			in := st.m.Intent
			if in != nil && in.Digest == digest && (o.Whole || in.RunID == s.o.RunID && len(in.Tasks) > 0 && same) {
				st.m.Intent = nil
			}
			if o.Whole {
				st.files[fileApplied] = text
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if err := s.setUnit(u); err != nil {
			return nil, err
		}
	}
	return s.refresh(ctx, o.Journal), nil
}
