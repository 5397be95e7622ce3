package provision

import (
	"context"
	"errors"
	"fmt"
	"time"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
)

// removeLimit bounds the wait until a deleted server is gone.
const removeLimit = 2 * time.Minute

type removeIn struct {
	Host   string `part:"alloc:host"`
	Server int64  `part:"alloc:server"` // 0: there is none
}

// removeKind deletes the server of a host that leaves, as the last step of its
// removal, and then forgets the host: its entry in the credential unit with its
// pinned key. Its index stays with its name. A server that is gone already is
// what is wanted.
func removeKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "remove", Scope: graph.OnHost, Leaving: true, Pool: cloudPool, Recipe: 1,
		Needs: []graph.Need{
			{Kind: "etcd-setup.remove", Via: graph.Same},
			{Kind: "install-masters.remove", Via: graph.Same},
			{Kind: "install-workers.remove", Via: graph.Same},
			{Kind: "network-setup.peers", Via: graph.ToCluster, After: true, Why: "the others forget it first"},
			{Kind: "setup-high-availability.external", Via: graph.ToCluster, After: true, Why: "nothing is to be sent to it any more"},
		},
		Title: "server deleted and its host forgotten",
	}, tasks.Def[removeIn]{
		Inputs: func(v *tasks.View) (removeIn, error) {
			l := v.Leaver()
			return removeIn{Host: l.Name, Server: l.ServerID}, nil
		},
		Run:    runRemove,
		Verify: verifyRemove,
	})
}

func runRemove(ctx context.Context, in removeIn, e *tasks.Env) error {
	if in.Server != 0 {
		if err := in.delete(ctx, e); err != nil {
			return err
		}
	}
	return e.Vault.DropHost(in.Host)
}

// delete deletes the server if it is one of the cluster's, by its own labels as
// they are now, and waits until it is gone.
func (in removeIn) delete(ctx context.Context, e *tasks.Env) error {
	s, err := e.Cloud.Server(ctx, in.Server)
	if errors.Is(err, remote.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	if !ours(s.Labels, e.UID) || s.Labels[remote.LabelHost] != in.Host {
		return in.refused(s, "it does not carry this cluster's UID and the name of "+in.Host+", and is not deleted")
	}
	if s.Protected {
		return in.refused(s, "it is protected from deletion; take the protection away in the cloud console first")
	}
	if err := e.Cloud.DeleteServer(ctx, in.Server); err != nil {
		return err
	}
	return tasks.Poll(ctx, removeLimit, "deleting server "+s.Name, func(ctx context.Context) error { return in.isGone(ctx, e) })
}

func (in removeIn) refused(s *remote.Server, why string) error {
	return &remote.CloudError{Op: fmt.Sprintf("delete server %s (%d)", s.Name, s.ID), Message: why}
}

func (in removeIn) isGone(ctx context.Context, e *tasks.Env) error {
	if in.Server == 0 {
		return nil
	}
	switch _, err := e.Cloud.Server(ctx, in.Server); {
	case errors.Is(err, remote.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return tasks.Again("server %d of %s is still there", in.Server, in.Host)
}

func verifyRemove(ctx context.Context, in removeIn, e *tasks.Env) (fp.Output, error) {
	if err := in.isGone(ctx, e); err != nil {
		return nil, err
	}
	if _, ok := e.Vault.Host(in.Host); ok {
		return nil, fmt.Errorf("the credential unit still has an entry of %s", in.Host)
	}
	return nil, nil
}
