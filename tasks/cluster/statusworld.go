package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"hk/remote"
	"hk/tasks/spec"
)

// statusKube asks the API for Nodes and version.
func (s *Session) statusKube(ctx context.Context, st *Status, warn func(string, ...any)) {
	k, err := s.Kube()
	if isNotFound(err) {
		return // not so far yet
	}
	if err != nil {
		warn("the Kubernetes API: %v", err)
		return
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if v, err := k.Version(ctx); err == nil {
			st.Versions.APIServer = &v
		}
	})
	wg.Go(func() {
		policies, err := k.Get(ctx, remote.ObjectRef{Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"})
		if c := s.Spec(); err == nil && c != nil && c.CNI == "mesh" && listed(policies) {
			warn("NetworkPolicy objects exist, and pod network mesh does not enforce them")
		}
	})
	nodes, err := k.Nodes(ctx)
	wg.Wait()
	if err != nil {
		warn("the Kubernetes API does not answer: %v", err)
		return
	}
	st.Nodes = []NodeStatus{}
	versions := map[string]bool{}
	for i := range nodes {
		n := &nodes[i]
		ns := NodeStatus{Name: n.Name, Ready: n.Ready, Version: n.KubeletVersion, Roles: roles(n), Bad: n.Pressure}
		if ns.Bad == nil {
			ns.Bad = []string{}
		}
		if !n.Ready {
			ns.Reason = new(cmp.Or(strings.TrimSpace(n.NotReadyReason+" "+n.NotReadyMessage), "unknown"))
		}
		st.Nodes = append(st.Nodes, ns)
		versions[n.KubeletVersion] = true
	}
	slices.SortFunc(st.Nodes, func(a, b NodeStatus) int { return strings.Compare(a.Name, b.Name) })
	for v := range versions {
		st.Versions.Kubelets = append(st.Versions.Kubelets, v)
	}
	slices.Sort(st.Versions.Kubelets)
}

// listed reports whether a list in JSON has items.
func listed(list []byte) bool {
	return strings.Contains(string(list), `"metadata"`) && !strings.Contains(strings.ReplaceAll(string(list), " ", ""), `"items":[]`)
}

func roles(n *remote.Node) []string {
	out := []string{}
	for k := range n.Labels {
		if r, ok := strings.CutPrefix(k, "node-role.kubernetes.io/"); ok {
			out = append(out, r)
		}
	}
	slices.Sort(out)
	return out
}

// statusEtcd asks for the members, then each member for its own state.
func (s *Session) statusEtcd(ctx context.Context, st *Status, warn func(string, ...any)) {
	if !s.EtcdBorn() && !s.Established() {
		return
	}
	e, err := s.Etcd()
	if err != nil {
		if !isNotFound(err) {
			warn("etcd: %v", err)
		}
		return
	}
	es := &EtcdStatus{Members: []EtcdMember{}, Alarms: []string{}}
	st.Etcd = es
	var wg sync.WaitGroup
	byHost := map[string]*EtcdMember{}
	for _, h := range s.Wanted() {
		if h.Has(spec.Etcd) {
			byHost[h.Name] = &EtcdMember{Name: h.Name}
		}
	}
	for name, m := range byHost {
		wg.Go(func() {
			x, err := e.Status(ctx, name)
			if err != nil {
				m.Problem = new(err.Error())
				return
			}
			m.ID, m.Learner, m.Leader = fmt.Sprintf("%016x", x.Member), x.Learner, x.Leader == x.Member
			m.Version, m.DBSize = new(x.Version), new(x.DBSize)
			if x.Quota > 0 {
				m.Quota = new(x.Quota)
			}
		})
	}
	var alarms []string
	wg.Go(func() { alarms, _ = e.Alarms(ctx) }) // without an answer there is a member's problem to see
	members, err := e.Members(ctx)
	wg.Wait()
	es.Alarms = append(es.Alarms, alarms...)
	es.Healthy = err == nil
	if err != nil {
		warn("etcd has no quorum that answers: %v", err)
	}
	for i := range members {
		if byHost[hostOfMember(&members[i], s.o.Name)] == nil {
			name := cmp.Or(members[i].Name, strings.Join(members[i].PeerURLs, " "))
			es.Members = append(es.Members, EtcdMember{
				Name: name, ID: fmt.Sprintf("%016x", members[i].ID), Learner: members[i].Learner, Problem: new("not in the config"),
			})
		}
	}
	versions := map[string]bool{}
	for _, m := range byHost {
		es.Members = append(es.Members, *m)
		if m.Version != nil {
			versions[*m.Version] = true
		}
	}
	slices.SortFunc(es.Members, func(a, b EtcdMember) int { return strings.Compare(a.Name, b.Name) })
	for v := range versions {
		st.Versions.Etcd = append(st.Versions.Etcd, v)
	}
	slices.Sort(st.Versions.Etcd)
	if len(es.Alarms) > 0 {
		warn("etcd raises alarms: %s", strings.Join(es.Alarms, ", "))
	}
}

// hostOfMember is the host of a member, whether it goes by the host's name or
// the Node's.
func hostOfMember(m *remote.Member, cluster string) string {
	return strings.TrimPrefix(m.Name, cluster+"-")
}
