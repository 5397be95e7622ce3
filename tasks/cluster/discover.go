package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"hk/remote"
	"hk/tasks"
	"hk/tasks/spec"
)

// Journal entries and files of hk's own on hosts that discovery reads.
const (
	// JournalBorn and JournalEtcdBorn are the marks in a host's journal.
	JournalBorn     = "born"
	JournalEtcdBorn = "etcd-born"
	// HostUnitFile is the copy of the credential unit on a master.
	HostUnitFile = HostUnitDir + "/unit.tar"
)

// Look says how to look.
type Look struct {
	// Query is what to ask each host besides what discovery needs; nil asks no
	// more.
	Query func(host string) remote.FactsQuery
	// Journal: read every host's journal.
	Journal bool
	// NoHosts: ask the cloud only.
	NoHosts bool
	// Limit ends the wait for a host's answer; 0 means as long as the others
	// take, see hostLimit.
	Limit time.Duration
}

// Found is what one look found. It is never changed.
type Found struct {
	Name string
	UID  string // of the local unit, else of the only such cluster in the cloud; ""
	// Inventory is everything in the project; nil with CloudErr.
	Inventory *remote.Inventory
	CloudErr  error
	// Ours is the part of the inventory that carries UID.
	Ours *remote.Inventory
	// UIDs of all objects labelled with the cluster's name, sorted.
	UIDs []string
	// Foreign are objects with names the cluster needs and without its UID.
	Foreign []string
	Hosts   map[string]*HostFound
	// Established and EtcdBorn: a mark was read, or the cloud could not be.
	Established, EtcdBorn bool
	Version               string // newest hk named by a label or the unit
	Lock                  *LockInfo
	Took                  time.Duration
	// Skew is how far this computer's clock is ahead of the cloud's.
	Skew time.Duration
}

// HostFound is what was found of one host, wanted or not.
type HostFound struct {
	Host   string
	Server *remote.Server    // nil: there is none with our UID
	Record *tasks.HostRecord // nil: the unit does not know it
	Facts  *remote.Facts     // nil: not asked, or no answer
	// Down is why there are no facts although the host was contacted before.
	Down string
	// Rebuilt is why its disk must be taken for a new one.
	Rebuilt string
	// BadKey is set when it shows a key that is not pinned.
	BadKey string
}

// Facts are those of all hosts that answered, by host.
func (f *Found) Facts() map[string]*remote.Facts {
	out := map[string]*remote.Facts{}
	for n, h := range f.Hosts {
		if h.Facts != nil {
			out[n] = h.Facts
		}
	}
	return out
}

// Unreachable are the reasons of hosts that did not answer, by host.
func (f *Found) Unreachable() map[string]string {
	out := map[string]string{}
	for n, h := range f.Hosts {
		if h.Down != "" {
			out[n] = h.Down
		}
	}
	return out
}

// Objects is the number of cloud objects with the cluster's UID.
func (f *Found) Objects() int {
	o := f.Ours
	if o == nil {
		return 0
	}
	return len(o.Servers) + len(o.Networks) + len(o.Firewalls) + len(o.PlacementGroups) + len(o.LoadBalancers) + len(o.SSHKeys)
}

// discover looks at the cloud and, at the same time, at every host the unit has
// an address of. It changes nothing. An error of the cloud is part of what was
// found; only a cancelled context is an error.
//
// With inv, the cloud was asked already.
func (s *Session) discover(ctx context.Context, look Look, inv *remote.Inventory) (*Found, error) {
	f := &Found{Name: s.o.Name, Hosts: map[string]*HostFound{}}
	unit := s.Unit()
	if unit != nil {
		f.UID = unit.UID()
		for n, r := range unit.Hosts() {
			f.Hosts[n] = &HostFound{Host: n, Record: &r}
		}
	}
	before := s.o.Timer.Boot()
	asked := map[string]*asking{}
	if !look.NoHosts {
		// The addresses are known already, so the hosts are asked while the
		// cloud is.
		marks := unit == nil || unit.Manifest().Born == nil
		masters := map[string]bool{}
		for _, h := range s.Wanted() {
			masters[h.Name] = h.Has(spec.Master)
		}
		for n, h := range f.Hosts {
			if h.Record.Seen && h.Record.Addr != "" {
				asked[n] = s.ask(ctx, h, query(n, look, marks, masters[n]))
			}
		}
	}
	f.Inventory = inv
	if inv == nil {
		if f.Inventory, f.CloudErr = s.o.World.Cloud.Inventory(ctx); f.CloudErr == nil {
			s.setAnchor(f.Inventory.Time, before)
			if !f.Inventory.Time.IsZero() {
				f.Skew = s.o.World.Clock().Sub(f.Inventory.Time)
			}
		}
	}
	if err := ctx.Err(); err != nil {
		finish(s.o.Timer, asked, 0)
		return nil, err
	}
	if f.CloudErr == nil {
		f.sort(s.Wanted())
		f.Lock = lockOf(f.Inventory, s.o.Name)
	}
	f.off(asked)
	finish(s.o.Timer, asked, look.Limit)
	for n, a := range asked {
		a.into(f.Hosts[n])
	}
	f.judgeServers()
	f.marks(unit)
	if unit != nil {
		f.Version = newest(unit.Manifest().Version, f.Version)
	}
	f.Took = s.o.Timer.Boot() - before
	return f, ctx.Err()
}

// query is what one host is asked.
func query(host string, look Look, marks, master bool) remote.FactsQuery {
	var q remote.FactsQuery
	if look.Query != nil {
		q = look.Query(host)
	}
	q.Journal = q.Journal || look.Journal || marks
	if master {
		q.Paths = append(slices.Clone(q.Paths), HostUnitFile)
	}
	return q
}

// sort files the inventory: what is ours, what only has our names.
func (f *Found) sort(wanted []spec.Host) {
	inv := f.Inventory
	uids := map[string]bool{}
	for _, l := range allLabels(inv) {
		if l[remote.LabelCluster] == f.Name && l[remote.LabelUID] != "" {
			uids[l[remote.LabelUID]] = true
		}
	}
	for u := range uids {
		f.UIDs = append(f.UIDs, u)
	}
	slices.Sort(f.UIDs)
	if f.UID == "" && len(f.UIDs) == 1 {
		f.UID = f.UIDs[0]
	}
	f.Ours = Mine(inv, f.UID)
	f.Foreign = foreignObjects(inv, f.UID, f.Name, wanted)
	for i := range f.Ours.Servers {
		sv := &f.Ours.Servers[i]
		n := sv.Labels[remote.LabelHost]
		if n == "" {
			continue
		}
		h := f.Hosts[n]
		if h == nil {
			h = &HostFound{Host: n}
			f.Hosts[n] = h
		}
		h.Server = sv
		if v := sv.Labels[remote.LabelVersion]; v != "" {
			f.Version = newest(v, f.Version)
		}
	}
}

// judgeServers compares servers and facts with what the unit knows.
func (f *Found) judgeServers() {
	for _, h := range f.Hosts {
		r := h.Record
		if r == nil {
			continue
		}
		switch {
		case h.Server != nil && r.ServerID != 0 && h.Server.ID != r.ServerID:
			h.Rebuilt = fmt.Sprintf("server %d is known, the cloud has server %d", r.ServerID, h.Server.ID)
		case h.Facts == nil || !r.Seen || h.Rebuilt != "":
		case h.Facts.Host.Installation == "":
			h.Rebuilt = "its installation file is gone"
		case h.Facts.Host.UID != f.UID:
			h.Rebuilt = "it belongs to the cluster with UID " + h.Facts.Host.UID
		case r.Installation != "" && h.Facts.Host.Installation != r.Installation:
			h.Rebuilt = "its installation file is another one"
		case h.Facts.Host.Host != h.Host:
			h.Rebuilt = "it says it is " + h.Facts.Host.Host
		}
		if h.Rebuilt != "" {
			h.Facts = nil // nothing on such a disk counts for the host
		}
	}
}

// marks reads the born marks: any readable one counts. If the cloud could not
// be read they are taken as set (ENGINE, Deciding).
func (f *Found) marks(unit *Unit) {
	if unit != nil {
		m := unit.Manifest()
		f.Established, f.EtcdBorn = m.Born != nil, m.EtcdBorn != nil
	}
	if f.CloudErr != nil {
		f.Established, f.EtcdBorn = true, true
		return
	}
	for i := range f.Ours.Servers {
		l := f.Ours.Servers[i].Labels
		f.Established = f.Established || l[remote.LabelBorn] != ""
		f.EtcdBorn = f.EtcdBorn || l[remote.LabelEtcd] != ""
	}
	for _, h := range f.Hosts {
		if h.Facts != nil {
			f.Established = f.Established || h.Facts.Journal[JournalBorn] != nil
			f.EtcdBorn = f.EtcdBorn || h.Facts.Journal[JournalEtcdBorn] != nil
		}
	}
	f.EtcdBorn = f.EtcdBorn || f.Established
}

// off spares hosts whose servers are not running the wait for an answer.
func (f *Found) off(asked map[string]*asking) {
	if f.CloudErr != nil {
		return
	}
	for n, a := range asked {
		h := f.Hosts[n]
		switch {
		case h.Server == nil && len(f.Ours.Servers) > 0:
			a.stop("its server is gone")
		case h.Server != nil && slices.Contains([]string{"off", "stopping", "deleting"}, h.Server.Status):
			a.stop("its server is " + h.Server.Status)
		}
	}
}

// State reduces what was found of a host to what the decision needs.
func (h *HostFound) State(wanted *spec.Host) HostState {
	st := HostState{
		Host: h.Host, Exists: h.Server != nil, Known: h.Record != nil && h.Record.ServerID != 0,
		Rebuilt: h.Rebuilt, BadKey: h.BadKey, Down: h.Down,
	}
	if wanted != nil {
		st.Wanted, st.Roles = true, wanted.Roles
	} else {
		st.Roles = []string{spec.RoleOf(h.Host)}
	}
	return st
}

// index is the index a server's label carries; 0 if it has none.
func index(s *remote.Server) int {
	n, err := strconv.Atoi(s.Labels[remote.LabelIndex])
	if err != nil {
		return 0
	}
	return n
}
