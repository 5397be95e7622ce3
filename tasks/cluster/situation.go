package cluster

import (
	"slices"
)

// Situation gathers what Decide needs.
func (s *Session) Situation(ask Ask) Situation {
	f, unit := s.Found(), s.Unit()
	st := Situation{
		Name: s.o.Name, Version: s.o.Version, Ask: ask, HasConfig: s.Spec() != nil,
		LocalPlace: s.o.Store.Place(s.o.Name), Tried: []string{s.o.Store.Place(s.o.Name)},
		Established: s.Established(),
	}
	if unit != nil {
		m := unit.Manifest()
		st.Local, st.LocalUID, st.Intent, st.BuiltBy = true, m.UID, m.Intent, m.Version
		st.Started = m.Born != nil || m.EtcdBorn != nil || len(unit.Hosts()) > 0
		st.Destroying = m.Destroying != nil
	}
	if c := s.Spec(); c != nil {
		st.ConfigDigest = ConfigDigest(c)
		if a := s.Applied(); a != nil {
			st.Diff = DiffConfig(a, c, s.o.Source)
		}
	}
	if f == nil {
		st.Objects = 1 // nobody looked (--verify=off): the records' word counts
		return st
	}
	st.CloudErr, st.CloudUIDs, st.Foreign, st.Objects = f.CloudErr, f.UIDs, f.Foreign, f.Objects()
	st.BuiltBy, st.Lock = newest(f.Version, st.BuiltBy), f.Lock
	wanted := s.Wanted()
	seen := map[string]bool{}
	for i := range wanted {
		seen[wanted[i].Name] = true
		h := f.Hosts[wanted[i].Name]
		if h == nil {
			h = &HostFound{Host: wanted[i].Name}
		}
		st.Hosts = append(st.Hosts, h.State(&wanted[i]))
	}
	var more []string
	for n := range f.Hosts {
		if !seen[n] {
			more = append(more, n)
		}
	}
	slices.Sort(more)
	for _, n := range more {
		st.Hosts = append(st.Hosts, f.Hosts[n].State(nil))
	}
	return st
}
