package etcd

import (
	"context"
	"fmt"
	"io/fs"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/pki"
	"hk/tasks/spec"
)

type certsIn struct {
	Host   string `part:"alloc:host"`
	Node   string `part:"alloc:node"`
	MeshIP string `part:"alloc:mesh"`
	CA     string `part:"out:ca.ca"`
}

// certsKind gives a member its certificates. etcd reads them again at each
// handshake, so nothing is restarted; its authority it reads once, and the
// service's unit lists that file.
func certsKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "certs", Scope: graph.OnHost, Roles: []string{spec.Etcd}, Asset: "certs", Recipe: 1,
		Needs: onHost(graph.Need{Kind: CAKind, Via: graph.ToCluster, Why: "one authority signs all members"}),
		Title: "etcd certificates",
	}, tasks.Def[certsIn]{
		Inputs: func(v *tasks.View) (certsIn, error) {
			return certsIn{Host: v.Host.Name, Node: v.Host.Node, MeshIP: v.Host.MeshIP, CA: v.Out(CAKind)["ca"]}, nil
		},
		Declared: func(certsIn) remote.HostState { return certsState(nil, nil, nil) },
		Run:      runCerts,
		Verify:   verifyCerts,
	})
}

// certsState is what the kind owns; with certificates or, where only the places
// matter, without.
func certsState(ca []byte, server, peer *pki.Pair) remote.HostState {
	file := func(path string, mode fs.FileMode, secret bool, content []byte) remote.File {
		return remote.File{Path: path, Mode: mode, Owner: user + ":" + user, Secret: secret, Content: content, Later: content == nil}
	}
	if server == nil {
		server, peer = &pki.Pair{}, &pki.Pair{}
	}
	return remote.HostState{Files: []remote.File{
		{Path: confDir, Mode: fs.ModeDir | 0o755},
		{Path: pkiDir, Mode: fs.ModeDir | 0o750, Owner: user + ":" + user},
		file(caFile, 0o644, false, ca),
		file(serverCert, 0o644, false, server.CertPEM),
		file(serverKey, 0o600, true, server.KeyPEM),
		file(peerCert, 0o644, false, peer.CertPEM),
		file(peerKey, 0o600, true, peer.KeyPEM),
	}}
}

// leaves are what the member shows to clients and to the other members. etcd
// dials itself with its server certificate, so that is a client's too.
func (in certsIn) leaves() (server, peer pki.Leaf) {
	server = pki.Leaf{
		CN: in.Node, DNS: []string{in.Node, "localhost"}, IPs: []string{in.MeshIP, "127.0.0.1", "::1"},
		Server: true, Client: true,
	}
	// The peer's certificate holds the mesh address only: etcd compares it with
	// where a peer's connection comes from.
	peer = pki.Leaf{CN: in.Node, DNS: []string{in.Node}, IPs: []string{in.MeshIP}, Server: true, Client: true}
	return server, peer
}

func runCerts(ctx context.Context, in certsIn, e *tasks.Env) error {
	ca, err := e.Vault.Authority(Authority)
	if err != nil {
		return err
	}
	sl, pl := in.leaves()
	server, err := ca.Issue(sl, e.Now())
	if err != nil {
		return err
	}
	peer, err := ca.Issue(pl, e.Now())
	if err != nil {
		return err
	}
	if err := ensureUser(ctx, e.Host); err != nil {
		return err
	}
	_, err = e.Host.Apply(ctx, certsState(ca.CertPEM, server, peer))
	return err
}

func verifyCerts(ctx context.Context, in certsIn, e *tasks.Env) (fp.Output, error) {
	ca, err := e.Vault.Authority(Authority)
	if err != nil {
		return nil, err
	}
	if ca.Fingerprint() != in.CA {
		return nil, fmt.Errorf("the credential unit's etcd authority is not the one etcd-setup.ca recorded")
	}
	sl, pl := in.leaves()
	for _, c := range []struct {
		path string
		leaf pki.Leaf
	}{{serverCert, sl}, {peerCert, pl}} {
		b, err := e.Host.Get(ctx, c.path)
		if err != nil {
			return nil, err
		}
		cert, err := pki.ParseCert(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.path, err)
		}
		if err := ca.Check(cert, c.leaf, e.Now()); err != nil {
			return nil, fmt.Errorf("%s: %w", c.path, err)
		}
		e.Expires(pki.GoodUntil(cert.NotBefore, cert.NotAfter))
	}
	return nil, nil
}

// ensureUser makes the system user etcd; quiet if there is one.
func ensureUser(ctx context.Context, h remote.Host) error {
	r, err := h.Exec(ctx, remote.Command{Argv: []string{
		"systemd-sysusers", "--inline", `u etcd - "etcd" /var/lib/etcd /usr/sbin/nologin`,
	}})
	if err != nil {
		return err
	}
	if r.Code != 0 {
		return fmt.Errorf("making user etcd: exit code %d: %s", r.Code, r.Stderr)
	}
	return nil
}
