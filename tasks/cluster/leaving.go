package cluster

import (
	"cmp"
	"slices"

	"hk/remote"
	"hk/tasks"
	"hk/tasks/spec"
)

// Leaving are the hosts that exist and that the config does not ask for: those
// the credential unit knows a server of, and those whose servers carry the
// cluster's UID. Records say nothing about that. The highest numbers come first,
// as they go first.
func (s *Session) Leaving() []tasks.Leaving {
	c := s.Spec()
	if c == nil {
		return nil
	}
	wanted, found := map[string]bool{}, map[string]*tasks.Leaving{}
	for _, n := range spec.Names(c) {
		wanted[n] = true
	}
	see := func(name string, index int, server int64, addr string) {
		if name == "" || wanted[name] {
			return
		}
		if found[name] == nil {
			found[name] = &tasks.Leaving{Host: spec.Gone(c, name, index)}
		}
		found[name].ServerID, found[name].Addr = server, addr
	}
	if u := s.Unit(); u != nil {
		for n, r := range u.Hosts() {
			if r.ServerID != 0 {
				see(n, r.Index, r.ServerID, r.Addr)
			}
		}
	}
	if f := s.Found(); f != nil && f.Ours != nil {
		for i := range f.Ours.Servers {
			sv := &f.Ours.Servers[i]
			see(sv.Labels[remote.LabelHost], index(sv), sv.ID, sv.IPv4)
		}
	}
	var out []tasks.Leaving
	for _, l := range found {
		out = append(out, *l)
	}
	slices.SortFunc(out, func(a, b tasks.Leaving) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(b.Number, a.Number))
	})
	return out
}
