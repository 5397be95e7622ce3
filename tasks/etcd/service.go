package etcd

import (
	"context"
	_ "embed"
	"fmt"
	"slices"
	"strings"
	"time"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/host"
	"hk/tasks/spec"
)

//go:embed files/etcd.service
var unitText string

// Deadlines of a member's start: until its process serves its peers, until it
// has caught up with the others, until the others are seen as a quorum before
// it is touched.
const (
	startLimit  = 30 * time.Second
	caughtLimit = 90 * time.Second
	othersLimit = 20 * time.Second
	aloneAfter  = 15 * time.Second
)

// lagAllowed is how many entries a member may be behind the leader and still
// count as healthy: a busy cluster writes a few between two questions.
const lagAllowed = 1000

type serviceIn struct {
	Host   string `part:"alloc:host"`
	MeshIP string `part:"alloc:mesh"`
	Etcd   string `part:"out:binary.etcd"`
}

// serviceKind runs the member. Before etcd has lived it starts it without
// waiting for others. After that a member is stopped only while the others are
// proven to be a quorum, and counts as done only when it has caught up.
func serviceKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "service", Scope: graph.OnHost, Roles: []string{spec.Etcd},
		Pool: "etcd-member", Guard: "etcd-member", Recipe: 1,
		Needs: onHost(same(meshKind), same(CertsKind), same(BinaryKind), same(DataKind)),
		Title: "etcd member",
	}, tasks.Def[serviceIn]{
		Inputs: func(v *tasks.View) (serviceIn, error) {
			return serviceIn{Host: v.Host.Name, MeshIP: v.Host.MeshIP, Etcd: v.Out(BinaryKind)["etcd"]}, nil
		},
		Declared: serviceState,
		Run:      runService,
		Verify:   verifyService,
	})
}

// startedFiles are what a running member has read once: its program, its unit
// and its authority. Leaf certificates it reads at each handshake.
func startedFiles() []string { return []string{etcdProgram, unitFile, caFile} }

func serviceState(in serviceIn) remote.HostState {
	text := host.Fill(unitText, "NAME", in.Host, "MESH", in.MeshIP, "STARTED", host.StartedLine(unitName, startedFiles()))
	return remote.HostState{
		Files: []remote.File{{Path: unitFile, Mode: 0o644, Content: []byte(text)}},
		Units: []remote.Unit{{Name: unitName, Enabled: true, Active: true, NoBlock: true, Files: startedFiles()}},
	}
}

func runService(ctx context.Context, in serviceIn, e *tasks.Env) error {
	f, err := e.Host.Facts(ctx, remote.FactsQuery{Units: []string{unitName}})
	if err != nil {
		return err
	}
	was := f.Units[unitName]
	touching := e.EtcdBorn && was.Active == "active"
	if touching {
		if err := othersAreQuorum(ctx, in, e); err != nil {
			return err
		}
	}
	applied, err := e.Host.Apply(ctx, serviceState(in))
	if err != nil {
		return err
	}
	if !touching || slices.Contains(applied.Restarted, unitName) {
		return nil
	}
	// Nothing differed and yet the task runs: it was forced, or an earlier run
	// was cut off. The member is restarted once, as asked.
	return restart(ctx, e.Host)
}

func restart(ctx context.Context, h remote.Host) error {
	r, err := h.Exec(ctx, remote.Command{Argv: []string{"systemctl", "restart", unitName}, Timeout: time.Minute})
	if err != nil {
		return err
	}
	if r.Code != 0 {
		return fmt.Errorf("restarting %s: exit code %d: %s", unitName, r.Code, strings.TrimSpace(string(r.Stderr)))
	}
	return nil
}

// othersAreQuorum proves that the cluster stays up while this member is down.
// An etcd of one member has no others: it is down for as long as the restart
// takes, which is what was asked for.
func othersAreQuorum(ctx context.Context, in serviceIn, e *tasks.Env) error {
	c, err := e.Etcd()
	if err != nil {
		return err
	}
	return tasks.Poll(ctx, othersLimit, "proving the other members' quorum before "+in.Host+" is touched", func(ctx context.Context) error {
		members, err := c.Members(ctx)
		if err != nil {
			return err
		}
		voters, healthy := 0, 0
		var silent []string
		for i := range members {
			m := &members[i]
			if m.Learner {
				continue
			}
			voters++
			if slices.Contains(m.PeerURLs, in.member().PeerURL()) {
				continue
			}
			if err := memberHealthy(ctx, c, m.Name); err != nil {
				silent = append(silent, m.Name+" ("+err.Error()+")")
				continue
			}
			healthy++
		}
		if voters > 1 && healthy < voters/2+1 {
			return fmt.Errorf("%d of %d members would be left, %d are needed; not healthy: %s", healthy, voters, voters/2+1, strings.Join(silent, ", "))
		}
		return nil
	})
}

func (in serviceIn) member() Member { return Member{in.Host, in.MeshIP} }

// memberHealthy asks one member: it knows a leader and is no learner.
func memberHealthy(ctx context.Context, c remote.Etcd, name string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	st, err := c.Status(ctx, name)
	switch {
	case err != nil:
		return err
	case st.Leader == 0:
		return fmt.Errorf("knows no leader")
	case st.Learner:
		return fmt.Errorf("is a learner")
	}
	return nil
}

func verifyService(ctx context.Context, in serviceIn, e *tasks.Env) (fp.Output, error) {
	if err := serving(ctx, in, e.Host); err != nil {
		return nil, err
	}
	if !e.EtcdBorn {
		return nil, nil
	}
	return nil, caughtUp(ctx, in, e)
}

// serving waits until the member's process listens to its peers: all that can
// be asked of a member before there is a quorum.
func serving(ctx context.Context, in serviceIn, h remote.Host) error {
	addr := fmt.Sprintf("%s:%d", in.MeshIP, PeerPort)
	return tasks.Poll(ctx, startLimit, "starting etcd on "+in.Host, func(ctx context.Context) error {
		conn, err := h.Dial(ctx, addr)
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// caughtUp waits until the member serves linearizable reads of its own and is
// no further behind the leader than a few entries; a learner that is that far
// is promoted. Where no quorum answers for a while, the others are down as well:
// then the process is all that can be had of this one, and etcd-setup.health
// says what is missing. That gives nothing away: the next member is touched
// only after its own proof.
func caughtUp(ctx context.Context, in serviceIn, e *tasks.Env) error {
	c, err := e.Etcd()
	if err != nil {
		return err
	}
	began, quorumSeen := e.Now(), false
	return tasks.Poll(ctx, caughtLimit, "waiting for member "+in.Host, func(ctx context.Context) error {
		err := in.upToDate(ctx, c)
		if err == nil {
			return nil
		}
		if !quorumSeen {
			quorumSeen = quorum(ctx, c)
		}
		if !quorumSeen && e.Now().Sub(began) > aloneAfter {
			e.Log("no quorum of the other members answers; " + in.Host + " waits for them")
			return nil
		}
		return err
	})
}

// quorum reports whether the cluster answers at all.
func quorum(ctx context.Context, c remote.Etcd) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_, err := c.Members(ctx)
	return err == nil
}

func (in serviceIn) upToDate(ctx context.Context, c remote.Etcd) error {
	st, err := c.Status(ctx, in.Host)
	if err != nil {
		return err
	}
	if st.Leader == 0 {
		return fmt.Errorf("it knows no leader")
	}
	if st.Learner {
		// etcd refuses until the learner has nine tenths of the leader's log.
		if err := c.Promote(ctx, st.Member); err != nil {
			return fmt.Errorf("promoting the learner: %w", err)
		}
		return fmt.Errorf("promoted just now")
	}
	if err := c.Proof(ctx, in.Host); err != nil {
		return err
	}
	if st, err = c.Status(ctx, in.Host); err != nil {
		return err
	}
	if st.Applied+lagAllowed < st.RaftIndex {
		return fmt.Errorf("it has applied %d of %d entries", st.Applied, st.RaftIndex)
	}
	return nil
}
