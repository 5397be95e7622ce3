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
	found := map[string]*tasks.Leaving{}
	at := func(name string, index int) *tasks.Leaving {
		if found[name] == nil {
			found[name] = &tasks.Leaving{Host: spec.Gone(c, name, index)}
		}
		return found[name]
	}
	if u := s.Unit(); u != nil {
		for n, r := range u.Hosts() {
			if r.ServerID != 0 {
				l := at(n, r.Index)
				l.ServerID, l.Addr = r.ServerID, r.Addr
			}
		}
	}
	if f := s.Found(); f != nil && f.Ours != nil {
		for i := range f.Ours.Servers {
			sv := &f.Ours.Servers[i]
			if n := sv.Labels[remote.LabelHost]; n != "" {
				l := at(n, index(sv))
				l.ServerID, l.Addr = sv.ID, sv.IPv4
			}
		}
	}
	for _, n := range spec.Names(c) {
		delete(found, n)
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
