package etcd

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/spec"
)

const healthLimit = 90 * time.Second

type healthIn struct {
	Members    []Member `part:"alloc:etcd-members"`
	CA         string   `part:"out:ca.ca"`
	Generation string   `part:"out:ca.generation"`
}

// healthKind proves etcd as a whole: a key written and read back through a
// quorum, the members the config asks for and no others, one cluster. Then it
// writes down that this etcd has lived.
func healthKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "health", Scope: graph.OnCluster, Recipe: 1,
		Needs: []graph.Need{
			{Kind: CAKind, Via: graph.ToCluster, Why: "its output names the authority and the data generation"},
			{Kind: ServiceKind, Via: graph.ToRole, Role: spec.Etcd, Quorum: graph.Majority, Why: "a quorum of members is what is proven"},
			{Kind: RemoveKind, Via: graph.FromAll, After: true, Why: "the members are to be the declared ones and no others"},
		},
		Title: "etcd quorum and members",
	}, tasks.Def[healthIn]{
		Inputs: func(v *tasks.View) (healthIn, error) {
			o := v.Out(CAKind)
			return healthIn{Members: Members(v), CA: o["ca"], Generation: o["generation"]}, nil
		},
		Run:    runHealth,
		Verify: verifyHealth,
		Watch: func(in healthIn, w *tasks.World) map[string]string {
			return map[string]string{watchBorn: tasks.Labelled(w.Inventory, w.UID, in.hosts(), remote.LabelEtcd)}
		},
	})
}

// watchBorn is the observed key of the born mark's labels.
const watchBorn = "cloud:" + Born

func (in healthIn) hosts() []string {
	var out []string
	for _, m := range in.Members {
		out = append(out, m.Host)
	}
	return out
}

func runHealth(ctx context.Context, in healthIn, e *tasks.Env) error {
	if err := proveHealth(ctx, in, e); err != nil {
		return err
	}
	ca, err := e.Vault.Authority(Authority)
	if err != nil {
		return err
	}
	if err := renewClient(e, ca); err != nil {
		return err
	}
	return tasks.MarkServers(ctx, e, in.hosts(), remote.LabelEtcd, Born)
}

func verifyHealth(ctx context.Context, in healthIn, e *tasks.Env) (fp.Output, error) {
	if err := proveHealth(ctx, in, e); err != nil {
		return nil, err
	}
	if err := expiryOfClient(e); err != nil {
		return nil, err
	}
	e.Note(watchBorn, tasks.MarkedAll)
	return fp.Output{
		"ca": in.CA, "generation": in.Generation, "endpoints": strings.Join(Endpoints(in.Members), ","),
	}, nil
}

func proveHealth(ctx context.Context, in healthIn, e *tasks.Env) error {
	c, err := e.Etcd()
	if err != nil {
		return err
	}
	return tasks.Poll(ctx, healthLimit, "proving etcd's quorum", func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := c.Proof(ctx, ""); err != nil {
			return err
		}
		members, err := c.Members(ctx)
		if err != nil {
			return err
		}
		if err := in.sameMembers(members); err != nil {
			return err
		}
		return in.oneCluster(ctx, c, e)
	})
}

// sameMembers compares what etcd lists with what is declared, by peer URL: a
// member that has not started yet has no name.
func (in healthIn) sameMembers(got []remote.Member) error {
	want := map[string]string{}
	for _, m := range in.Members {
		want[m.PeerURL()] = m.Host
	}
	for i := range got {
		m := &got[i]
		if len(m.PeerURLs) != 1 || want[m.PeerURLs[0]] == "" {
			return fmt.Errorf("etcd lists a member %q (%s) that is not declared", m.Name, strings.Join(m.PeerURLs, " "))
		}
		if m.Learner {
			return fmt.Errorf("%s is still a learner", want[m.PeerURLs[0]])
		}
		delete(want, m.PeerURLs[0])
	}
	if len(want) > 0 {
		return fmt.Errorf("etcd does not list %s", strings.Join(slices.Sorted(maps.Values(want)), ", "))
	}
	return nil
}

// oneCluster asks each member for its cluster's ID. A member that does not
// answer is named and costs nothing: the quorum is proven already.
func (in healthIn) oneCluster(ctx context.Context, c remote.Etcd, e *tasks.Env) error {
	ids := map[uint64]string{}
	for _, m := range in.Members {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		st, err := c.Status(ctx, m.Host)
		cancel()
		if err != nil {
			e.Log("etcd member " + m.Host + " does not answer: " + err.Error())
			continue
		}
		ids[st.ClusterID] = m.Host
	}
	if len(ids) > 1 {
		return tasks.Final{Err: fmt.Errorf("the members are in %d clusters (%s): hk never merges or drops one", len(ids), strings.Join(slices.Sorted(maps.Values(ids)), ", "))}
	}
	return nil
}
