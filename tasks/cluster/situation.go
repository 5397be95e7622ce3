package cluster

import (
	"slices"

	"hk/remote"
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
		// Nobody looked (--verify=off): what is known here counts.
		st.Objects = 1
		st.Hosts = s.states(known(unit))
		return st
	}
	st.CloudErr, st.CloudUIDs, st.Foreign, st.Objects = f.CloudErr, f.UIDs, f.Foreign, f.Objects()
	st.BuiltBy, st.Lock = newest(f.Version, st.BuiltBy), f.Lock
	st.Hosts = s.states(f.Hosts)
	return st
}

// known are the hosts as the unit has them, whose servers are believed to be
// there.
func known(unit *Unit) map[string]*HostFound {
	out := map[string]*HostFound{}
	if unit == nil {
		return out
	}
	for n, r := range unit.Hosts() {
		h := &HostFound{Host: n, Record: &r}
		if r.ServerID != 0 {
			h.Server = &remote.Server{ID: r.ServerID}
		}
		out[n] = h
	}
	return out
}

// states reduces hosts to what the decision needs: the wanted ones in their
// order, then the others by name.
func (s *Session) states(hosts map[string]*HostFound) []HostState {
	var out []HostState
	wanted := s.Wanted()
	seen := map[string]bool{}
	for i := range wanted {
		seen[wanted[i].Name] = true
		h := hosts[wanted[i].Name]
		if h == nil {
			h = &HostFound{Host: wanted[i].Name}
		}
		out = append(out, h.State(&wanted[i]))
	}
	var more []string
	for n := range hosts {
		if !seen[n] {
			more = append(more, n)
		}
	}
	slices.Sort(more)
	for _, n := range more {
		out = append(out, hosts[n].State(nil))
	}
	return out
}
