package cluster

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"hk/remote"
	"hk/tasks/spec"
)

// Status is the answer of `hk status -o json` (DESIGN §7), field for field:
// absent values are null, not missing.
type Status struct {
	V            int           `json:"v"`
	Cluster      string        `json:"cluster"`
	UID          *string       `json:"uid"`
	Established  *bool         `json:"established"`
	Ready        *bool         `json:"ready"` // every wanted host's Node is Ready; null if nobody could tell
	Nodes        []NodeStatus  `json:"nodes"`
	Hosts        []HostStatus  `json:"hosts"`
	Etcd         *EtcdStatus   `json:"etcd"`
	Phases       []PhaseStatus `json:"phases"`
	Credentials  Credentials   `json:"credentials"`
	Certificates []Certificate `json:"certificates"`
	Versions     Versions      `json:"versions"`
	Lock         *LockInfo     `json:"lock"`
	LastRun      any           `json:"last_run"`
	APIBudget    *APIBudget    `json:"api_budget"`
	Warnings     []string      `json:"warnings"`
}

// NodeStatus is a Kubernetes Node.
type NodeStatus struct {
	Name    string   `json:"name"`
	Ready   bool     `json:"ready"`
	Version string   `json:"version"`
	Reason  *string  `json:"reason"` // why it is not Ready
	Roles   []string `json:"roles"`
	Bad     []string `json:"bad_conditions"`
}

// HostStatus is a host.
type HostStatus struct {
	Host     string   `json:"host"`
	ServerID *int64   `json:"server_id"`
	State    string   `json:"state"` // of the server; unreachable, rebuilt, missing or unknown where that says more
	Address  *string  `json:"address"`
	Type     *string  `json:"type"`
	Price    *float64 `json:"price"` // monthly, gross
	Problem  *string  `json:"problem"`
}

// EtcdStatus is etcd as its members tell.
type EtcdStatus struct {
	Healthy bool         `json:"healthy"` // a quorum answers
	Members []EtcdMember `json:"members"`
	Alarms  []string     `json:"alarms"`
}

// EtcdMember is one member.
type EtcdMember struct {
	Name    string  `json:"name"`
	ID      string  `json:"id"`
	Learner bool    `json:"learner"`
	Leader  bool    `json:"leader"`
	Version *string `json:"version"`
	DBSize  *int64  `json:"db_size"`
	Quota   *int64  `json:"quota"`
	Problem *string `json:"problem"`
}

// PhaseStatus is a phase; whoever has the records fills it in.
type PhaseStatus struct {
	Phase string `json:"phase"`
	State string `json:"state"` // fresh, stale, drifted, unknown
}

// Credentials says where the credentials come from.
type Credentials struct {
	Source *string `json:"source"`
}

// Versions are the versions in use.
type Versions struct {
	HK         *string  `json:"hk"`         // that built the cluster last
	Kubernetes *string  `json:"kubernetes"` // of the config
	APIServer  *string  `json:"api_server"`
	Kubelets   []string `json:"kubelets"`
	Etcd       []string `json:"etcd"`
}

// APIBudget is what is left of the cloud API's requests.
type APIBudget struct {
	Limit     int `json:"limit"`
	Remaining int `json:"remaining"`
}

// statusTime bounds the whole status: a dead host costs its own line.
const statusTime = 2500 * time.Millisecond

// Status looks at everything at once and never takes longer than three seconds.
// It writes nothing. Phases and LastRun are the caller's.
func (s *Session) Status(ctx context.Context) (*Status, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTime)
	defer cancel()
	st := &Status{
		V: 1, Cluster: s.o.Name, Nodes: nil, Hosts: []HostStatus{}, Phases: []PhaseStatus{},
		Certificates: []Certificate{}, Warnings: []string{},
	}
	var mu sync.Mutex
	warn := func(format string, args ...any) {
		mu.Lock()
		st.Warnings = append(st.Warnings, fmt.Sprintf(format, args...))
		mu.Unlock()
	}
	var wg sync.WaitGroup
	var found *Found
	var catalog *remote.Catalog
	wg.Go(func() {
		f, err := s.Discover(ctx, Look{Query: s.o.Query, Limit: statusTime - 300*time.Millisecond})
		if err != nil {
			warn("looking at the cluster: %v", err)
			return
		}
		found = f
	})
	wg.Go(func() {
		c, err := s.o.World.Cloud.Catalog(ctx)
		if err != nil {
			warn("prices are not known: %v", err)
			return
		}
		catalog = c
	})
	if s.Unit() != nil {
		wg.Go(func() { s.statusKube(ctx, st, warn) })
		wg.Go(func() { s.statusEtcd(ctx, st, warn) })
	}
	wg.Wait()
	s.fillIdentity(st, found)
	s.fillHosts(st, found, catalog)
	s.fillCertificates(st)
	if u := s.o.World.Cloud.Usage(); u.Limit > 0 {
		st.APIBudget = &APIBudget{Limit: u.Limit, Remaining: u.Remaining}
	}
	st.Ready = s.ready(st)
	slices.Sort(st.Warnings)
	return st, nil
}

func (s *Session) fillIdentity(st *Status, f *Found) {
	if uid := s.UID(); uid != "" {
		st.UID = &uid
	}
	if c := s.Spec(); c != nil {
		st.Versions.Kubernetes = new(c.Kubernetes.Version)
	}
	if u := s.Unit(); u != nil {
		st.Credentials.Source = new(u.Place())
		st.Versions.HK = new(u.Manifest().Version)
		st.Warnings = append(st.Warnings, u.Warnings()...)
		if in := u.Manifest().Intent; in != nil {
			st.Warnings = append(st.Warnings, "run "+in.RunID+" was agreed to and has not ended; hk build "+s.o.Name+" goes on with it")
		}
	}
	if f == nil {
		return
	}
	st.Lock = f.Lock
	if f.CloudErr != nil {
		st.Warnings = append(st.Warnings, "the cloud cannot be read: "+f.CloudErr.Error())
		if u := s.Unit(); u != nil {
			st.Established = new(u.Manifest().Born != nil)
		}
		return
	}
	st.Established = new(f.Established)
	for _, o := range f.Foreign {
		st.Warnings = append(st.Warnings, "has a name of this cluster and is not its own: "+o)
	}
	for _, u := range f.UIDs {
		if u != f.UID {
			st.Warnings = append(st.Warnings, "there is another cluster called "+s.o.Name+" in this project, UID "+u)
		}
	}
}

func (s *Session) fillHosts(st *Status, f *Found, cat *remote.Catalog) {
	names := []string{}
	seen := map[string]bool{}
	for _, h := range s.Wanted() {
		names, seen[h.Name] = append(names, h.Name), true
	}
	if f == nil {
		f = &Found{Hosts: map[string]*HostFound{}}
	}
	var more []string
	for n := range f.Hosts {
		if !seen[n] {
			more = append(more, n)
		}
	}
	slices.Sort(more)
	cloud := f.Inventory != nil
	for _, n := range append(names, more...) {
		h := f.Hosts[n]
		if h == nil {
			h = &HostFound{Host: n}
		}
		st.Hosts = append(st.Hosts, h.status(cloud, cat))
	}
}

func (h *HostFound) status(cloud bool, cat *remote.Catalog) HostStatus {
	out := HostStatus{Host: h.Host, State: "unknown"}
	if h.Record != nil && h.Record.ServerID != 0 {
		out.ServerID = new(h.Record.ServerID)
		out.Address = new(h.Record.Addr)
	}
	switch {
	case h.Server != nil:
		out.ServerID, out.Address, out.Type, out.State = new(h.Server.ID), new(h.Server.IPv4), new(h.Server.Type), h.Server.Status
		if cat != nil {
			if p, ok := cat.ServerTypes[h.Server.Type].Price[h.Server.Location]; ok {
				out.Price = new(p)
			}
		}
	case cloud:
		out.State = "missing"
	}
	switch {
	case h.Rebuilt != "":
		out.State, out.Problem = "rebuilt", new(h.Rebuilt)
	case h.BadKey != "":
		out.Problem = new(h.BadKey)
	case h.Down != "" && (out.State == "running" || out.State == "unknown"):
		out.State, out.Problem = "unreachable", new(h.Down)
	}
	return out
}

// ready is true if every wanted host that runs pods has a Ready Node; nil if
// the API did not say.
func (s *Session) ready(st *Status) *bool {
	if st.Nodes == nil {
		return nil
	}
	up := map[string]bool{}
	for i := range st.Nodes {
		up[st.Nodes[i].Name] = st.Nodes[i].Ready
	}
	ok := true
	for _, h := range s.Wanted() {
		if h.Role != spec.Etcd {
			ok = ok && up[h.Node]
		}
	}
	return &ok
}
