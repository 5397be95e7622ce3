package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/spec"
)

// removeLimit bounds the wait for a quorum before and after a member goes; a
// leader that goes is followed by another within seconds.
const removeLimit = 30 * time.Second

type removeIn struct {
	Host   string `part:"alloc:host"`
	MeshIP string `part:"alloc:mesh"`
	Server int64  `part:"alloc:server"`
}

// removeKind takes a member out of etcd, before anything else of its host goes:
// a member whose machine is deleted first counts as failed for ever. The members
// that stay are proven to be a quorum of themselves before, and again after.
//
// It shares the place of etcd-setup.service, so that no other member is being
// restarted meanwhile, and the slot of the host's whole removal.
func removeKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "remove", Scope: graph.OnHost, Roles: []string{spec.Etcd}, Leaving: true,
		Pool: "etcd-member", Guard: "drain", Recipe: 1,
		Title: "etcd member taken out",
	}, tasks.Def[removeIn]{
		Inputs: func(v *tasks.View) (removeIn, error) {
			l := v.Leaver()
			return removeIn{Host: l.Name, MeshIP: l.MeshIP, Server: l.ServerID}, nil
		},
		Run:    runRemove,
		Verify: verifyRemove,
	})
}

func runRemove(ctx context.Context, in removeIn, e *tasks.Env) error {
	c, err := in.client(e)
	if err != nil || c == nil {
		return err
	}
	return tasks.Poll(ctx, removeLimit, "taking member "+in.Host+" out of etcd", func(ctx context.Context) error {
		members, err := c.Members(ctx)
		if err != nil {
			return err
		}
		gone := in.among(members)
		if gone == nil {
			return nil
		}
		if err := in.restIsQuorum(ctx, c, members); err != nil {
			return err
		}
		return c.Remove(ctx, gone.ID)
	})
}

// client is nil for an etcd that has never lived: it has no members to take out.
func (in removeIn) client(e *tasks.Env) (remote.Etcd, error) {
	c, err := e.Etcd()
	if errors.Is(err, remote.ErrNotFound) && !e.EtcdBorn {
		return nil, nil
	}
	return c, err
}

// among is the member of the host, by its peer URL: one that never ran has no
// name.
func (in removeIn) among(members []remote.Member) *remote.Member {
	url := Member{in.Host, in.MeshIP}.PeerURL()
	i := slices.IndexFunc(members, func(m remote.Member) bool { return slices.Contains(m.PeerURLs, url) })
	if i < 0 {
		return nil
	}
	return &members[i]
}

// restIsQuorum proves that the members stay a quorum when this one is gone, and
// that a write passes now. A learner has no vote to lose.
func (in removeIn) restIsQuorum(ctx context.Context, c remote.Etcd, members []remote.Member) error {
	gone := in.among(members)
	voters, healthy := 0, 0
	var silent []string
	for i := range members {
		m := &members[i]
		if m.Learner || m.ID == gone.ID {
			continue
		}
		voters++
		if err := memberHealthy(ctx, c, m.Name); err != nil {
			silent = append(silent, m.Name+" ("+err.Error()+")")
			continue
		}
		healthy++
	}
	switch {
	case voters == 0 && !gone.Learner:
		return tasks.Final{Err: in.error("it is the only member, its data would be lost")}
	case healthy < voters/2+1:
		return in.error("%d of the %d members that stay are healthy, %d are needed; not healthy: %s",
			healthy, voters, voters/2+1, strings.Join(silent, ", "))
	}
	return c.Proof(ctx, "")
}

func (in removeIn) error(format string, args ...any) error {
	return &remote.WorldError{World: "etcd", Op: "remove member " + in.Host, Err: fmt.Errorf(format, args...)}
}

func verifyRemove(ctx context.Context, in removeIn, e *tasks.Env) (fp.Output, error) {
	c, err := in.client(e)
	if err != nil || c == nil {
		return nil, err
	}
	return nil, tasks.Poll(ctx, removeLimit, "proving etcd's quorum without "+in.Host, func(ctx context.Context) error {
		if err := c.Proof(ctx, ""); err != nil {
			return err
		}
		members, err := c.Members(ctx)
		if err == nil && in.among(members) != nil {
			err = in.error("etcd still lists it")
		}
		return err
	})
}
