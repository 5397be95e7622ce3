package lab

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"

	"hk/remote/lab/state"
)

// Finding is one difference between what a lab remembers and what there is.
type Finding struct {
	Kind   string `json:"kind"`   // process, mount, interface, netns, cgroup, file, firewall, daemon
	Object string `json:"object"` // e.g. server 12
	Detail string `json:"detail"`
}

// Doctor compares a lab's state with processes, mounts, interfaces, cgroups and
// files, and returns every difference. Objects an action is at work on are left
// out: they are about to change.
func Doctor(ctx context.Context, o Options) ([]Finding, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	dir := o.dir()
	c, err := readConfig(dir)
	if err != nil {
		return nil, err
	}
	store, err := state.Read(filepath.Join(dir, "state.log"))
	if err != nil {
		return nil, err
	}
	d := &doctor{dir: dir, b: newBackend(dir, c, o.Log), busy: map[int64]bool{}}
	if serving(dir) == 0 {
		d.add("daemon", "lab "+c.Name, "does not run; `hk lab up` starts it")
	}
	store.View(func(t *state.Tables) { err = d.examine(ctx, t) })
	return d.found, err
}

type doctor struct {
	dir   string
	b     *backend
	busy  map[int64]bool
	found []Finding
}

func (d *doctor) add(kind, object, format string, a ...any) {
	d.found = append(d.found, Finding{Kind: kind, Object: object, Detail: fmt.Sprintf(format, a...)})
}

func (d *doctor) examine(ctx context.Context, t *state.Tables) error {
	t.Actions.Each(func(a *state.Action) bool {
		if a.Status == state.ActionRunning {
			for _, r := range a.Resources {
				d.busy[r.ID] = true
			}
		}
		return true
	})
	want := map[string]bool{} // namespaces
	d.servers(t, want)
	d.balancers(t, want)
	for _, n := range t.Networks.All() {
		want[d.b.fabric.NetworkNS(n.ID)] = true
	}
	want[d.b.fabric.RouterNS()] = true
	if err := d.extra(t); err != nil {
		return err
	}
	return d.network(ctx, want)
}

func (d *doctor) servers(t *state.Tables, want map[string]bool) {
	for _, s := range t.Servers.All() {
		want[d.b.fabric.ServerNS(s.ID)] = true
		if d.busy[s.ID] {
			continue
		}
		name := fmt.Sprintf("server %d", s.ID)
		running := d.b.host.Running(s.ID)
		if running != (s.Status == state.Running) {
			d.add("process", name, "status is %s, but running is %t", s.Status, running)
		}
		if !d.b.host.Built(s.ID) {
			d.add("file", name, "has no whole disk")
		}
		if running && !d.b.host.Mounted(s.ID) {
			d.add("mount", name, "its disk is not mounted")
		}
		for _, n := range s.NICs {
			if m, err := d.b.fabric.Members(n.Network); err == nil && !slices.Contains(m, s.ID) {
				d.add("interface", name, "has no interface in network %d", n.Network)
			}
		}
	}
}

func (d *doctor) balancers(t *state.Tables, want map[string]bool) {
	for _, lb := range t.LoadBalancers.All() {
		want[d.b.fabric.BalancerNS(lb.ID)] = true
		if n := len(balancerPIDs(d.b.balancerDir(lb.ID))); n != 1 && !d.busy[lb.ID] {
			d.add("process", fmt.Sprintf("load balancer %d", lb.ID), "has %d processes", n)
		}
	}
}

// extra finds machines that the state does not know.
func (d *doctor) extra(t *state.Tables) error {
	known := func(id int64) bool {
		_, ok := t.Servers.Get(id)
		return ok || d.busy[id]
	}
	ids, err := d.b.host.IDs()
	if err != nil {
		return err
	}
	for _, id := range ids {
		if !known(id) {
			d.add("file", "server "+strconv.FormatInt(id, 10), "a disk of a server that is not there")
		}
	}
	groups, err := d.b.host.Groups()
	if err != nil {
		return err
	}
	for _, id := range groups {
		if !known(id) {
			d.add("cgroup", "server "+strconv.FormatInt(id, 10), "control groups of a server that is not there")
		}
	}
	mounts, err := mountsBelow(d.dir)
	if err != nil {
		return err
	}
	for _, m := range mounts {
		id, err := strconv.ParseInt(filepath.Base(filepath.Dir(m)), 10, 64)
		if err != nil || !known(id) {
			d.add("mount", m, "mounted, but of no server that is there")
		}
	}
	return nil
}

func (d *doctor) network(ctx context.Context, want map[string]bool) error {
	left, err := d.b.fabric.Left(ctx)
	if err != nil {
		return err
	}
	have := map[string]bool{}
	for _, ns := range left["netns"] {
		have[ns] = true
		if !want[ns] && !d.busy[d.b.fabric.NSOwner(ns)] {
			d.add("netns", ns, "of nothing that is there")
		}
	}
	for ns := range want {
		if !have[ns] && !d.busy[d.b.fabric.NSOwner(ns)] {
			d.add("netns", ns, "is missing")
		}
	}
	for _, l := range left["interface"] {
		if id, ok := d.b.fabric.PortOwner(l); ok && !d.busy[id] && !want[d.b.fabric.ServerNS(id)] && !want[d.b.fabric.BalancerNS(id)] {
			d.add("interface", l, "of nothing that is there")
		}
	}
	if len(left["firewall"]) == 0 {
		d.add("firewall", d.b.fabric.Name, "this computer's guard table is missing")
	}
	return nil
}
