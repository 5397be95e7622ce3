package cluster

import (
	"context"

	"hk/remote"
)

// guardedHosts are hosts whose writes ask the guard.
type guardedHosts struct {
	remote.Hosts
	g *guard
}

// Open implements remote.Hosts.
func (h *guardedHosts) Open(c remote.Contact) remote.Host { return &guardedHost{h.Hosts.Open(c), h.g} }

// Install implements remote.Hosts.
func (h *guardedHosts) Install(ctx context.Context, c remote.Contact, pem []byte, id remote.HostIdentity) (remote.HostIdentity, error) {
	if err := h.g.check(); err != nil {
		return remote.HostIdentity{}, err
	}
	return h.Hosts.Install(ctx, c, pem, id)
}

type guardedHost struct {
	remote.Host
	g *guard
}

func (h *guardedHost) Apply(ctx context.Context, s remote.HostState) (*remote.Applied, error) {
	if err := h.g.check(); err != nil {
		return nil, err
	}
	return h.Host.Apply(ctx, s)
}

func (h *guardedHost) Run(ctx context.Context, j remote.Job) (*remote.JobResult, error) {
	if err := h.g.check(); err != nil {
		return nil, err
	}
	return h.Host.Run(ctx, j)
}

func (h *guardedHost) Exec(ctx context.Context, c remote.Command) (*remote.CommandResult, error) {
	if err := h.g.alive(); err != nil {
		return nil, err
	}
	return h.Host.Exec(ctx, c)
}

func (h *guardedHost) Journal(ctx context.Context, entries map[string][]byte) error {
	if err := h.g.check(); err != nil {
		return err
	}
	return h.Host.Journal(ctx, entries)
}

// unguarded is the host itself: clients dial through it, and ask the guard
// themselves.
func unguarded(h remote.Host) remote.Host {
	if g, ok := h.(*guardedHost); ok {
		return g.Host
	}
	return h
}

// guardedKube asks the guard before each write.
type guardedKube struct {
	remote.Kube
	g *guard
}

func (k *guardedKube) PatchNode(ctx context.Context, name string, p remote.NodePatch) error {
	if err := k.g.check(); err != nil {
		return err
	}
	return k.Kube.PatchNode(ctx, name, p)
}

func (k *guardedKube) DeleteNode(ctx context.Context, name string) error {
	if err := k.g.check(); err != nil {
		return err
	}
	return k.Kube.DeleteNode(ctx, name)
}

func (k *guardedKube) Cordon(ctx context.Context, name string, on bool) error {
	if err := k.g.check(); err != nil {
		return err
	}
	return k.Kube.Cordon(ctx, name, on)
}

func (k *guardedKube) Evict(ctx context.Context, p remote.Pod) error {
	if err := k.g.check(); err != nil {
		return err
	}
	return k.Kube.Evict(ctx, p)
}

func (k *guardedKube) Apply(ctx context.Context, manifest []byte) error {
	if err := k.g.check(); err != nil {
		return err
	}
	return k.Kube.Apply(ctx, manifest)
}

func (k *guardedKube) Delete(ctx context.Context, r remote.ObjectRef) error {
	if err := k.g.check(); err != nil {
		return err
	}
	return k.Kube.Delete(ctx, r)
}

// guardedEtcd asks the guard before each change of members. Proof writes a key
// of hk's own and removes it: a probe.
type guardedEtcd struct {
	remote.Etcd
	g *guard
}

func (e *guardedEtcd) Proof(ctx context.Context, host string) error {
	if err := e.g.alive(); err != nil {
		return err
	}
	return e.Etcd.Proof(ctx, host)
}

func (e *guardedEtcd) AddLearner(ctx context.Context, peerURL string) (uint64, error) {
	if err := e.g.check(); err != nil {
		return 0, err
	}
	return e.Etcd.AddLearner(ctx, peerURL)
}

func (e *guardedEtcd) Promote(ctx context.Context, id uint64) error {
	if err := e.g.check(); err != nil {
		return err
	}
	return e.Etcd.Promote(ctx, id)
}

func (e *guardedEtcd) Remove(ctx context.Context, id uint64) error {
	if err := e.g.check(); err != nil {
		return err
	}
	return e.Etcd.Remove(ctx, id)
}

func (e *guardedEtcd) Defragment(ctx context.Context, host string) error {
	if err := e.g.check(); err != nil {
		return err
	}
	return e.Etcd.Defragment(ctx, host)
}
