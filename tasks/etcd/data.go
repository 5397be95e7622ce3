package etcd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/spec"
)

// Deadlines of the questions before the decision. Before etcd has lived, an
// answer can only come if a quorum of the others runs, and then at once.
const (
	askOther = 3 * time.Second
	askShort = 2 * time.Second
	askBorn  = 10 * time.Second
)

type dataIn struct {
	Host       string `part:"alloc:host"`
	MeshIP     string `part:"alloc:mesh"`
	Generation string `part:"out:ca.generation"`
}

// dataKind makes the place of the data and decides, once, how the member comes
// into the cluster. The flags for that live in a file of their own which the
// fingerprint does not hold: who the other members were at that moment must
// not make this one stale later.
func dataKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "data", Scope: graph.OnHost, Roles: []string{spec.Etcd}, Asset: "data", Recipe: 1, Once: true,
		// A living cluster takes in one member at a time: the host that was added
		// as a learner keeps the slot until its service has promoted it.
		Guard: "etcd-member",
		Needs: onHost(
			graph.Need{Kind: CAKind, Via: graph.ToCluster, Why: "the generation of the data is agreed on there"},
			same(CertsKind),
		),
		Title: "etcd data directory and membership",
	}, tasks.Def[dataIn]{
		Inputs: func(v *tasks.View) (dataIn, error) {
			return dataIn{Host: v.Host.Name, MeshIP: v.Host.MeshIP, Generation: v.Out(CAKind)["generation"]}, nil
		},
		Declared: func(dataIn) remote.HostState {
			return remote.HostState{Files: []remote.File{
				{Path: dataDir, Mode: fs.ModeDir | 0o700, Owner: user + ":" + user},
				{Path: initialFile, Mode: 0o644, Later: true, Keep: true},
			}}
		},
		Run:    runData,
		Verify: verifyData,
	})
}

func runData(ctx context.Context, in dataIn, e *tasks.Env) error {
	f, err := foundationOf(e.Vault)
	if err != nil {
		return err
	}
	if f.Generation != in.Generation {
		return fmt.Errorf("the credential unit's data generation is not the one etcd-setup.ca recorded")
	}
	s, err := look(ctx, in, f, e)
	if err != nil {
		return err
	}
	act, err := Decide(s)
	if err != nil {
		return err
	}
	state, cluster := "existing", ""
	switch act {
	case Keep:
		return place(ctx, e.Host, initialEnv(f.Generation, state, initialCluster(f.Members)), true)
	case Found:
		state, cluster = "new", initialCluster(f.Members)
	default:
		if cluster, err = enter(ctx, e, act, &s); err != nil {
			return err
		}
	}
	return place(ctx, e.Host, initialEnv(f.Generation, state, cluster), false)
}

// enter makes the cluster list this host and returns who is in it.
func enter(ctx context.Context, e *tasks.Env, act Action, s *Situation) (string, error) {
	c, err := e.Etcd()
	if err != nil {
		return "", err
	}
	if act == Replace {
		if err := c.Remove(ctx, s.listed().ID); err != nil {
			return "", err
		}
	}
	if act == Add || act == Replace {
		if _, err := c.AddLearner(ctx, s.Self.PeerURL()); err != nil {
			return "", err
		}
	}
	members, err := c.Members(ctx)
	if err != nil {
		return "", err
	}
	return clusterOf(members, s.Self), nil
}

// clusterOf is --initial-cluster as etcd lists it now; a member that never ran
// has no name yet, and only this host may be one.
func clusterOf(members []remote.Member, self Member) string {
	var parts []string
	for i := range members {
		name := members[i].Name
		if slices.Contains(members[i].PeerURLs, self.PeerURL()) {
			name = self.Host
		}
		for _, u := range members[i].PeerURLs {
			parts = append(parts, name+"="+u)
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, ",")
}

func initialEnv(generation, state, cluster string) []byte {
	return []byte("# Written by hk when this member first joined; etcd does not read it once it has data.\n" +
		"ETCD_INITIAL_CLUSTER=" + cluster + "\n" +
		"ETCD_INITIAL_CLUSTER_STATE=" + state + "\n" +
		"ETCD_INITIAL_CLUSTER_TOKEN=" + token(generation) + "\n")
}

func token(generation string) string { return "hk-" + generation }

func place(ctx context.Context, h remote.Host, env []byte, keep bool) error {
	if err := ensureUser(ctx, h); err != nil {
		return err
	}
	_, err := h.Apply(ctx, remote.HostState{Files: []remote.File{
		{Path: confDir, Mode: fs.ModeDir | 0o755},
		{Path: dataDir, Mode: fs.ModeDir | 0o700, Owner: user + ":" + user},
		{Path: initialFile, Mode: 0o644, Content: env, Keep: keep},
	}})
	return err
}

// holding is what one host holds of etcd.
type holding struct {
	host    string
	data    bool
	foreign bool
	active  bool
}

// heldBy looks at one host: data in its place, and of which generation.
func heldBy(ctx context.Context, h remote.Host, generation string) (holding, error) {
	out := holding{host: h.Name()}
	f, err := h.Facts(ctx, remote.FactsQuery{Paths: []string{memberDir, initialFile}, Units: []string{unitName}})
	if err != nil {
		return out, err
	}
	out.active = f.Units[unitName].Active == "active"
	out.data = strings.HasPrefix(f.Files[memberDir], "dir")
	if !out.data || f.Files[initialFile] == "absent" || f.Files[initialFile] == "" {
		return out, nil
	}
	b, err := h.Get(ctx, initialFile)
	if errors.Is(err, remote.ErrNotFound) {
		return out, nil
	}
	if err != nil {
		return out, err
	}
	out.foreign = !slices.Contains(strings.Split(string(b), "\n"), "ETCD_INITIAL_CLUSTER_TOKEN="+token(generation))
	return out, nil
}

// look gathers the situation. Once etcd has lived only its own answer counts;
// before that, the founding hosts that can be reached are asked what they hold.
// One that cannot be reached cannot hold anything that is worth keeping then.
func look(ctx context.Context, in dataIn, f foundation, e *tasks.Env) (Situation, error) {
	s := Situation{Self: Member{in.Host, in.MeshIP}, Founders: f.Members, Born: e.EtcdBorn}
	own, err := heldBy(ctx, e.Host, in.Generation)
	if err != nil {
		return s, err
	}
	s.OwnData, s.OwnForeign = own.data, own.foreign
	if s.OwnData && !s.Born {
		return s, nil
	}
	limit := askBorn
	if s.OwnData {
		limit = askShort // nothing will be made; only a removed member would matter
	}
	if !s.Born {
		others := askOthers(ctx, in, f, e)
		running := 0
		for _, h := range others {
			if h.foreign {
				s.Foreign = append(s.Foreign, h.host)
			}
			if h.active {
				running++
			}
		}
		if running < len(f.Members)/2+1 {
			return s, nil
		}
		limit = askShort
	}
	s.Members, err = askMembers(ctx, e, limit)
	s.Answered = err == nil
	if err != nil && e.Log != nil {
		e.Log("no answer from etcd's members: " + err.Error())
	}
	return s, ctx.Err()
}

func askMembers(ctx context.Context, e *tasks.Env, limit time.Duration) ([]remote.Member, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := e.Etcd()
	if err != nil {
		return nil, err
	}
	return c.Members(ctx)
}

// askOthers looks at the other founding hosts that were contacted already.
func askOthers(ctx context.Context, in dataIn, f foundation, e *tasks.Env) []holding {
	ctx, cancel := context.WithTimeout(ctx, askOther)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	var out []holding
	for _, m := range f.Members {
		if rec, ok := e.Vault.Host(m.Host); !ok || !rec.Seen || m.Host == in.Host {
			continue
		}
		h, err := e.HostOf(m.Host)
		if err != nil {
			continue
		}
		wg.Go(func() {
			if got, err := heldBy(ctx, h, in.Generation); err == nil {
				mu.Lock()
				out = append(out, got)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	slices.SortFunc(out, func(a, b holding) int { return strings.Compare(a.host, b.host) })
	return out
}

func verifyData(ctx context.Context, in dataIn, e *tasks.Env) (fp.Output, error) {
	got, err := heldBy(ctx, e.Host, in.Generation)
	if err != nil {
		return nil, err
	}
	if got.foreign {
		return nil, fmt.Errorf("%s holds data of another generation", dataDir)
	}
	return fp.Output{"generation": in.Generation}, nil
}
