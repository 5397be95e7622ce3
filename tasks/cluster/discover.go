package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
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
	start := time.Now()
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
		finish(asked, 0)
		return nil, err
	}
	if f.CloudErr == nil {
		f.sort(s.Wanted())
		f.Lock = lockOf(f.Inventory, s.o.Name)
	}
	f.off(asked)
	finish(asked, look.Limit)
	for n, a := range asked {
		a.into(f.Hosts[n])
	}
	f.judgeServers()
	f.marks(unit)
	if unit != nil {
		f.Version = newest(unit.Manifest().Version, f.Version)
	}
	f.Took = time.Since(start)
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

// Mine is the part of an inventory that carries a UID.
func Mine(inv *remote.Inventory, uid string) *remote.Inventory {
	return &remote.Inventory{
		Time:            inv.Time,
		Servers:         keepUID(inv.Servers, uid, func(o *remote.Server) map[string]string { return o.Labels }),
		Networks:        keepUID(inv.Networks, uid, func(o *remote.Network) map[string]string { return o.Labels }),
		Firewalls:       keepUID(inv.Firewalls, uid, func(o *remote.Firewall) map[string]string { return o.Labels }),
		PlacementGroups: keepUID(inv.PlacementGroups, uid, func(o *remote.PlacementGroup) map[string]string { return o.Labels }),
		LoadBalancers:   keepUID(inv.LoadBalancers, uid, func(o *remote.LoadBalancer) map[string]string { return o.Labels }),
		SSHKeys:         keepUID(inv.SSHKeys, uid, func(o *remote.SSHKey) map[string]string { return o.Labels }),
	}
}

func keepUID[T any](all []T, uid string, labels func(*T) map[string]string) []T {
	var out []T
	for i := range all {
		l := labels(&all[i])
		if uid != "" && l[remote.LabelUID] == uid && l[remote.LabelLock] == "" {
			out = append(out, all[i])
		}
	}
	return out
}

func allLabels(inv *remote.Inventory) []map[string]string {
	var out []map[string]string
	for i := range inv.Servers {
		out = append(out, inv.Servers[i].Labels)
	}
	for i := range inv.Networks {
		out = append(out, inv.Networks[i].Labels)
	}
	for i := range inv.Firewalls {
		if inv.Firewalls[i].Labels[remote.LabelLock] == "" {
			out = append(out, inv.Firewalls[i].Labels)
		}
	}
	for i := range inv.PlacementGroups {
		out = append(out, inv.PlacementGroups[i].Labels)
	}
	for i := range inv.LoadBalancers {
		out = append(out, inv.LoadBalancers[i].Labels)
	}
	for i := range inv.SSHKeys {
		out = append(out, inv.SSHKeys[i].Labels)
	}
	return out
}

// foreignObjects names what has a name the cluster needs and is not its own.
// Objects of another cluster of the same name are told apart by their label.
func foreignObjects(inv *remote.Inventory, uid, name string, wanted []spec.Host) []string {
	need := map[string]bool{}
	for i := range wanted {
		need[wanted[i].Node] = true
	}
	var out []string
	see := func(kind string, id int64, n string, want bool, l map[string]string) {
		if want && (uid == "" || l[remote.LabelUID] != uid) && l[remote.LabelCluster] != name {
			out = append(out, fmt.Sprintf("%s %s (%d)", kind, n, id))
		}
	}
	for i := range inv.Servers {
		o := &inv.Servers[i]
		see("server", o.ID, o.Name, need[o.Name], o.Labels)
	}
	for i := range inv.Networks {
		o := &inv.Networks[i]
		see("network", o.ID, o.Name, o.Name == name, o.Labels)
	}
	for i := range inv.Firewalls {
		o := &inv.Firewalls[i]
		see("firewall", o.ID, o.Name, o.Name == name || o.Name == name+"-masters", o.Labels)
	}
	for i := range inv.LoadBalancers {
		o := &inv.LoadBalancers[i]
		see("load balancer", o.ID, o.Name, o.Name == name, o.Labels)
	}
	return out
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

// asking is a question to one host under way.
type asking struct {
	cancel context.CancelFunc
	start  time.Time

	done  chan struct{} // closed when facts, err and took are set
	facts *remote.Facts
	err   error
	took  time.Duration

	mu  sync.Mutex
	why string // it was given up for this reason
}

// hostLimit bounds the wait for a host: at least least, so that a dead host
// costs little; up to factor times what the slowest answer took, so that a
// computer under load does not make healthy hosts look dead; never over most.
const (
	hostLimitLeast  = 2500 * time.Millisecond
	hostLimitFactor = 4
	hostLimitMost   = 15 * time.Second
)

func (s *Session) ask(ctx context.Context, h *HostFound, q remote.FactsQuery) *asking {
	ctx, cancel := context.WithTimeout(ctx, hostLimitMost)
	a := &asking{cancel: cancel, start: time.Now(), done: make(chan struct{})}
	host := s.open(*h.Record)
	go func() {
		defer close(a.done)
		a.facts, a.err = host.Facts(ctx, q)
		a.took = time.Since(a.start)
	}()
	return a
}

func (a *asking) stop(why string) {
	a.mu.Lock()
	if a.why == "" {
		a.why = why
	}
	a.mu.Unlock()
	a.cancel()
}

// finish waits for all answers and gives up on those that take too long. A
// limit of 0 adapts to the slowest answer.
func finish(asked map[string]*asking, limit time.Duration) {
	if len(asked) == 0 {
		return
	}
	first := time.Now()
	for _, a := range asked {
		if a.start.Before(first) {
			first = a.start
		}
	}
	answers := make(chan time.Duration, len(asked))
	var wg sync.WaitGroup
	for _, a := range asked {
		wg.Go(func() {
			<-a.done
			if a.err == nil {
				answers <- a.took
			} else {
				answers <- 0
			}
		})
	}
	adapt := limit == 0
	if adapt {
		limit = hostLimitLeast
	}
	slowest := time.Duration(0)
	timer := time.NewTimer(time.Until(first.Add(limit)))
	defer timer.Stop()
	for left := len(asked); left > 0; {
		select {
		case t := <-answers:
			left--
			slowest = max(slowest, t)
		case <-timer.C:
			more := min(max(limit, hostLimitFactor*slowest), hostLimitMost)
			if adapt && slowest == 0 {
				more = hostLimitMost / 2 // nobody answered yet: all may be slow
			}
			if wait := time.Until(first.Add(more)); adapt && wait > 0 {
				timer.Reset(wait)
				continue
			}
			for _, a := range asked {
				select {
				case <-a.done:
				default:
					a.stop("no answer within " + time.Since(first).Round(100*time.Millisecond).String())
				}
			}
		}
	}
	wg.Wait()
	for _, a := range asked {
		a.cancel()
	}
}

// into files an answer.
func (a *asking) into(h *HostFound) {
	switch {
	case a.err == nil:
		h.Facts = a.facts
	case errors.Is(a.err, remote.ErrRebuilt):
		h.Rebuilt = "it shows the throw-away host key of its creation again"
	case errors.Is(a.err, remote.ErrHostKey):
		h.BadKey = a.err.Error()
	default:
		h.Down = a.err.Error()
		a.mu.Lock()
		if a.why != "" {
			h.Down = a.why
		}
		a.mu.Unlock()
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
	} else if h.Server != nil {
		st.Roles = []string{h.Server.Labels[remote.LabelRole]}
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
