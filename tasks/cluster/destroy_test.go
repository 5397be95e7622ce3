package cluster

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"hk/remote"
)

// foreigners are objects that a destroy of demo must not touch.
func foreigners(g *stage) {
	other := map[string]string{remote.LabelCluster: "other", remote.LabelUID: "ee"}
	g.cloud.inv.Servers = append(g.cloud.inv.Servers, remote.Server{ID: 1, Name: "demo-extra-1"}, remote.Server{ID: 2, Name: "other-master-1", Labels: other})
	g.cloud.inv.SSHKeys = append(g.cloud.inv.SSHKeys, remote.SSHKey{ID: 3, Name: "me"})
	g.cloud.inv.Networks = append(g.cloud.inv.Networks, remote.Network{ID: 4, Name: "other", Labels: other})
	g.cloud.inv.Firewalls = append(g.cloud.inv.Firewalls, remote.Firewall{ID: 5, Name: "hk-lock-other", Labels: map[string]string{remote.LabelLock: "other"}})
}

// left is what is in the project, by ID.
func (g *stage) left() []int64 {
	var out []int64
	for _, o := range g.cloud.inv.Servers {
		out = append(out, o.ID)
	}
	for _, o := range g.cloud.inv.SSHKeys {
		out = append(out, o.ID)
	}
	for _, o := range g.cloud.inv.Networks {
		out = append(out, o.ID)
	}
	for _, o := range g.cloud.inv.Firewalls {
		out = append(out, o.ID)
	}
	for _, o := range g.cloud.inv.PlacementGroups {
		out = append(out, o.ID)
	}
	for _, o := range g.cloud.inv.LoadBalancers {
		out = append(out, o.ID)
	}
	slices.Sort(out)
	return out
}

func TestDestroy(t *testing.T) {
	g := newStage(t)
	g.up()
	foreigners(g)
	g.cfg = nil // the config file is not needed
	s, _ := g.look(Look{NoHosts: true})
	p, err := s.PlanDestroy()
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, o := range p.Objects {
		kinds = append(kinds, o.Kind)
	}
	if want := []string{"load balancer", "server", "server", "server", "server", "server", "placement group", "firewall", "network", "ssh key"}; !slices.Equal(kinds, want) {
		t.Errorf("planned %v", kinds)
	}
	calls := len(g.cloud.calls)
	var gone []string
	if err := s.Destroy(t.Context(), func(o Object) { gone = append(gone, o.Kind) }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if left := g.left(); !slices.Equal(left, []int64{1, 2, 3, 4, 5}) {
		t.Errorf("left: %v", left)
	}
	if len(gone) != len(p.Objects) {
		t.Errorf("told of %d objects, planned %d", len(gone), len(p.Objects))
	}
	order := g.cloud.calls[calls:]
	if i, j := slices.Index(order, "delete load balancer"), slices.Index(order, "delete network"); i > j || i < 0 {
		t.Errorf("order %v", order)
	}
	if units, _ := g.store.List(); len(units) != 0 || len(g.store.retired) != 1 {
		t.Errorf("units %v, retired %v", units, g.store.retired)
	}
	for as := range g.store.retired {
		if !strings.HasPrefix(as, "demo-2") {
			t.Errorf("retired as %s", as)
		}
	}
	s, _ = g.look(Look{NoHosts: true})
	if p, err := s.PlanDestroy(); err != nil || !p.Empty() {
		t.Errorf("after it: %+v, %v", p, err)
	}
}

// Killed at any write, before its effect or before its answer, a destroy made
// again ends the same way.
func TestDestroyIsResumable(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n := 0; ; n++ {
			g := newStage(t)
			g.up()
			foreigners(g)
			left, dead := n, false
			g.cloud.fault = func(op string, a bool) error {
				if a != after {
					return nil
				}
				if left--; left < 0 {
					dead = true
					return &remote.CloudError{Op: op, Message: "killed"} // and everything after it
				}
				return nil
			}
			s, _ := g.look(Look{NoHosts: true})
			err := s.Destroy(t.Context(), nil)
			if dead != (err != nil) {
				t.Fatalf("write %d: %v", n, err)
			}
			_ = s.Close() // a dead process's lease is left to expire
			g.cloud.fault = nil
			g.cloud.now = func() time.Time { return time.Now().Add(2 * leaseTime) }
			s, _ = g.look(Look{NoHosts: true})
			p, err := s.PlanDestroy()
			if err != nil {
				t.Fatalf("write %d (after=%t): %v", n, after, err)
			}
			if !p.Empty() {
				if err := s.Destroy(t.Context(), nil); err != nil {
					t.Fatalf("write %d (after=%t): again: %v", n, after, err)
				}
			}
			if l := g.left(); !slices.Equal(l, []int64{1, 2, 3, 4, 5}) {
				t.Fatalf("write %d (after=%t): left %v", n, after, l)
			}
			if units, _ := g.store.List(); len(units) != 0 {
				t.Fatalf("write %d: the unit is left", n)
			}
			if !dead {
				if n < 10 {
					t.Errorf("only %d writes", n)
				}
				break
			}
		}
	}
}

// The store dies instead: between the last object and the unit's move.
func TestDestroyWhenTheStoreDies(t *testing.T) {
	for n := 0; ; n++ {
		g := newStage(t)
		g.up()
		left, dead := n, false
		g.store.Step = func(string) error {
			if left--; left < 0 {
				dead = true
				return errCrash
			}
			return nil
		}
		s, _ := g.look(Look{NoHosts: true})
		err := s.Destroy(t.Context(), nil)
		g.store.Step = nil
		if dead && !errors.Is(err, errCrash) || !dead && err != nil {
			t.Fatalf("step %d: %v", n, err)
		}
		if !dead {
			return
		}
		// The process died with the store: its lock is still there.
		g.cloud.inv.Firewalls = append(g.cloud.inv.Firewalls, remote.Firewall{ID: 99, Name: "hk-lock-demo", Labels: map[string]string{
			remote.LabelLock: "demo", remote.LabelUID: s.UID(), labelUntil: "1",
		}})
		s, _ = g.look(Look{NoHosts: true})
		if err := s.Destroy(t.Context(), nil); err != nil {
			t.Fatalf("step %d: again: %v", n, err)
		}
		if l := g.left(); len(l) != 0 {
			t.Fatalf("step %d: left %v", n, l)
		}
	}
}

func TestDestroyRefuses(t *testing.T) {
	tests := []struct {
		name string
		do   func(g *stage)
		exit int
		says string
	}{
		{"wrong project", func(g *stage) { g.cloud.inv = remote.Inventory{} }, ExitCloud, "wrong project"},
		{"wrong project, destroy begun elsewhere", func(g *stage) {
			g.cloud.inv = remote.Inventory{}
			u, err := OpenUnit(g.store, "demo", unitOptions(nil))
			if err != nil {
				g.t.Fatal(err)
			}
			if err := u.change(func(st *state) error { now := time.Now(); st.m.Destroying = &now; return nil }); err != nil {
				g.t.Fatal(err)
			}
		}, ExitCloud, "wrong project"},
		{"cloud down", func(g *stage) { g.cloud.down = errors.New("401 unauthorized") }, ExitCloud, "401"},
		{"protected", func(g *stage) { g.cloud.inv.Servers[0].Protected = true }, ExitCloud, "protected"},
		{"other UID", func(g *stage) {
			g.cloud.inv.Servers = append(g.cloud.inv.Servers, remote.Server{ID: 1, Labels: map[string]string{remote.LabelCluster: "demo", remote.LabelUID: "ff"}})
		}, ExitCloud, "another cluster called demo"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newStage(t)
			g.up()
			tt.do(g)
			before := len(g.cloud.calls)
			s, _ := g.look(Look{NoHosts: true})
			if r := refusal(t, s.Destroy(t.Context(), nil), tt.exit); !strings.Contains(r.Message, tt.says) {
				t.Errorf("message %q", r.Message)
			}
			if len(g.cloud.calls) != before {
				t.Errorf("calls %v", g.cloud.calls[before:])
			}
			if units, _ := g.store.List(); len(units) != 1 {
				t.Error("the unit was moved")
			}
		})
	}
}

// Without credentials a cluster is destroyed by what its labels say.
func TestDestroyWithoutAUnit(t *testing.T) {
	g := newStage(t)
	g.up()
	g.store = NewMem()
	s, _ := g.look(Look{NoHosts: true})
	if err := s.Destroy(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if l := g.left(); len(l) != 0 {
		t.Errorf("left %v", l)
	}
}

// A cluster that was begun and never asked for a server goes too.
func TestDestroyOfAlmostNothing(t *testing.T) {
	g := newStage(t)
	s, _ := g.look(Look{})
	if _, err := s.Write(t.Context(), Ask{}, Look{}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s, _ = g.look(Look{NoHosts: true})
	if err := s.Destroy(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if len(g.store.retired) != 1 || len(g.left()) != 0 {
		t.Errorf("retired %v, left %v", g.store.retired, g.left())
	}
}
