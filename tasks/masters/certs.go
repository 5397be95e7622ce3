package masters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"strings"
	"time"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/etcd"
	"hk/tasks/kubenode"
	"hk/tasks/pki"
	"hk/tasks/spec"
)

const etcdAuthority = etcd.Authority

type certsIn struct {
	Cluster    string `part:"config:name"`
	Host       string `part:"alloc:host"`
	Node       string `part:"alloc:node"`
	MeshIP     string `part:"alloc:mesh"`
	IPv4       string `part:"out:server.ipv4"`
	Private    string `part:"out:server.private"`
	ServiceIP  string `part:"config:network.services"`
	External   string `part:"config:endpoint.external"`
	CA         string `part:"out:ca.ca"`
	FrontProxy string `part:"out:ca.front-proxy"`
	ServiceKey string `part:"secret:sa.key"`
	Encryption string `part:"secret:encryption.key"`
	EtcdCA     string `part:"out:etcd-ca.ca"`
}

// certsKind writes everything a master's programs identify themselves and trust
// by. What reads its files again is left alone; the two that read them once are
// restarted by whoever changed the files, and that is here.
func certsKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "certs", Scope: graph.OnHost, Roles: []string{spec.Master}, Asset: "certs", Recipe: 1,
		Needs: kubenode.OnHost(
			graph.Need{Kind: CAKind, Via: graph.ToCluster, Why: "one authority signs all masters"},
			graph.Need{Kind: kubenode.EtcdCAKind, Via: graph.ToCluster, Why: "etcd's authority signs the API servers' client certificates"},
			needLoadBalancer(),
		),
		Title: "master certificates and kubeconfigs",
	}, tasks.Def[certsIn]{
		Inputs:   certsInputs,
		Declared: func(certsIn) remote.HostState { return certsDeclared() },
		Run:      runCerts,
		Verify:   verifyCerts,
	})
}

func certsInputs(v *tasks.View) (certsIn, error) {
	server, ca := v.Out(kubenode.ServerKind), v.Out(CAKind)
	return certsIn{
		Cluster: v.Spec.Name, Host: v.Host.Name, Node: v.Host.Node, MeshIP: v.Host.MeshIP,
		IPv4: server["ipv4"], Private: server["private"],
		ServiceIP: firstOf(v.Spec.Network.Services), External: external(v),
		CA: ca["ca"], FrontProxy: ca["front-proxy"], ServiceKey: ca["sa"], Encryption: ca["encryption"],
		EtcdCA: v.Out(kubenode.EtcdCAKind)["ca"],
	}, nil
}

func isIP(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// certsDeclared is where everything is; the bytes come while running. The
// certificate that kubelet rotates is not among it: it is judged by its date
// and its signer.
func certsDeclared() remote.HostState {
	st := remote.HostState{Files: []remote.File{
		{Path: kubenode.PKIDir, Mode: fs.ModeDir | 0o755},
		{Path: kubenode.PKIDir + "/etcd", Mode: fs.ModeDir | 0o755},
	}}
	for _, f := range authorityFiles() {
		st.Files = append(st.Files, later(f.path, f.secret))
	}
	for _, w := range (certsIn{}).leaves() {
		if w.conf != "" {
			st.Files = append(st.Files, later(w.conf, true))
			continue
		}
		st.Files = append(st.Files, later(w.base+".crt", false), later(w.base+".key", true))
	}
	st.Files = append(st.Files, later(kubenode.KubeletConf, true), later(encryptionFile, true))
	return st
}

func later(path string, secret bool) remote.File {
	f := remote.File{Path: path, Mode: 0o644, Secret: secret, Later: true}
	if secret {
		f.Mode = 0o600
	}
	return f
}

type authorityFile struct {
	path   string
	secret bool
	of     func(*material) []byte
}

// authorityFiles are what every master has the same: the controller manager
// signs with the cluster's key, and a lost computer must not be the only place
// of any of them.
func authorityFiles() []authorityFile {
	return []authorityFile{
		{kubenode.PKIDir + "/ca.crt", false, func(m *material) []byte { return m.by[ClusterCA].CertPEM }},
		{kubenode.PKIDir + "/ca.key", true, func(m *material) []byte { return m.by[ClusterCA].KeyPEM }},
		{frontProxyCert + ".crt", false, func(m *material) []byte { return m.by[FrontProxyCA].CertPEM }},
		{frontProxyCert + ".key", true, func(m *material) []byte { return m.by[FrontProxyCA].KeyPEM }},
		{etcdCAFile + ".crt", false, func(m *material) []byte { return m.by[etcdAuthority].CertPEM }},
		{etcdCAFile + ".key", true, func(m *material) []byte { return m.by[etcdAuthority].KeyPEM }},
		{kubenode.PKIDir + "/sa.key", true, func(m *material) []byte { return m.sa }},
		{kubenode.PKIDir + "/sa.pub", false, func(m *material) []byte { return m.saPub }},
	}
}

// material is what the credential unit holds.
type material struct {
	by         map[string]*pki.Authority
	sa, saPub  []byte
	encryption string
}

func materialOf(v tasks.Vault) (*material, error) {
	m := &material{by: map[string]*pki.Authority{}}
	for _, name := range []string{ClusterCA, FrontProxyCA, etcdAuthority} {
		a, err := v.Authority(name)
		if err != nil {
			return nil, err
		}
		m.by[name] = a
	}
	var err error
	if m.sa, err = v.Secret(ServiceKey); err != nil {
		return nil, err
	}
	if m.saPub, err = pki.PublicPEM(m.sa); err != nil {
		return nil, fmt.Errorf("%s: %w", ServiceKey, err)
	}
	key, err := v.Secret(EncryptionKey)
	m.encryption = strings.TrimSpace(string(key))
	return m, err
}

func runCerts(ctx context.Context, in certsIn, e *tasks.Env) error {
	m, err := materialOf(e.Vault)
	if err != nil {
		return err
	}
	if m.by[ClusterCA].Fingerprint() != in.CA || m.by[etcdAuthority].Fingerprint() != in.EtcdCA {
		return errors.New("the credential unit's authorities are not the ones that were recorded")
	}
	st, err := in.render(m, e.Now())
	if err != nil {
		return err
	}
	applied, err := e.Host.Apply(ctx, st)
	if err != nil {
		return err
	}
	if err := in.firstKubeletClient(ctx, m, e); err != nil {
		return err
	}
	return restartReaders(ctx, e, applied.Changed)
}

// render issues every leaf and fills in every file.
func (in certsIn) render(m *material, now time.Time) (remote.HostState, error) {
	content := map[string][]byte{}
	for _, f := range authorityFiles() {
		content[f.path] = f.of(m)
	}
	for _, w := range in.leaves() {
		p, err := m.by[w.authority].Issue(w.leaf, now)
		if err != nil {
			return remote.HostState{}, err
		}
		if w.conf == "" {
			content[w.base+".crt"], content[w.base+".key"] = p.CertPEM, p.KeyPEM
			continue
		}
		content[w.conf] = pki.Kubeconfig{
			Cluster: in.Cluster, User: w.leaf.CN, Server: w.server, CA: m.by[ClusterCA].CertPEM, Cert: p.CertPEM, Key: p.KeyPEM,
		}.Render()
	}
	content[kubenode.KubeletConf] = in.kubeletConf(m.by[ClusterCA].CertPEM)
	content[encryptionFile] = encryptionConfig(m.encryption)
	st := certsDeclared()
	for i := range st.Files {
		if f := &st.Files[i]; f.Later {
			f.Content, f.Later = content[f.Path], false
		}
	}
	return st, nil
}

// firstKubeletClient gives kubelet a client certificate to start with, unless
// it has one that is good: from then on it renews it itself.
func (in certsIn) firstKubeletClient(ctx context.Context, m *material, e *tasks.Env) error {
	ca := m.by[ClusterCA]
	if in.kubeletClientGood(ctx, ca, e) == nil {
		return nil
	}
	p, err := ca.Issue(in.kubeletClient(), e.Now())
	if err != nil {
		return err
	}
	_, err = e.Host.Apply(ctx, remote.HostState{Files: []remote.File{
		{Path: kubeletFirst, Mode: 0o600, Secret: true, Content: slices.Concat(p.CertPEM, p.KeyPEM)},
		{Path: kubenode.ClientCurrent, Link: kubeletFirst},
	}})
	return err
}

// kubeletClientGood judges the rotating certificate by signer and date.
func (in certsIn) kubeletClientGood(ctx context.Context, ca *pki.Authority, e *tasks.Env) error {
	b, err := e.Host.Get(ctx, kubenode.ClientCurrent)
	if err != nil {
		return err
	}
	c, err := pki.ParseCert(b)
	if err != nil {
		return err
	}
	return ca.Check(c, in.kubeletClient(), e.Now())
}

// restartReaders restarts the controller manager and the scheduler if their
// kubeconfigs changed under them: they read them once. kubelet starts a stopped
// container of a static pod again at once.
func restartReaders(ctx context.Context, e *tasks.Env, changed []string) error {
	for _, r := range []struct{ file, name string }{
		{controllerFile, "kube-controller-manager"}, {schedulerFile, "kube-scheduler"},
	} {
		if !slices.Contains(changed, r.file) {
			continue
		}
		ids, err := containers(ctx, e.Host, r.name)
		if err != nil {
			return err
		}
		for _, id := range ids {
			if err := must(ctx, e.Host, 30*time.Second, "crictl", "stop", "--timeout", "10", id); err != nil {
				return err
			}
		}
	}
	return nil
}

// containers are the running containers of a static pod; none where there is
// no container runtime yet.
func containers(ctx context.Context, h remote.Host, name string) ([]string, error) {
	r, err := h.Exec(ctx, remote.Command{Argv: []string{
		"crictl", "ps", "--quiet", "--state", "running", "--label", "io.kubernetes.container.name=" + name,
	}})
	if err != nil {
		return nil, err
	}
	if r.Code != 0 {
		return nil, nil
	}
	return strings.Fields(string(r.Stdout)), nil
}

func must(ctx context.Context, h remote.Host, limit time.Duration, argv ...string) error {
	r, err := h.Exec(ctx, remote.Command{Argv: argv, Timeout: limit})
	if err != nil {
		return err
	}
	if r.Code != 0 {
		return fmt.Errorf("%s: exit code %d: %s", strings.Join(argv[:2], " "), r.Code, strings.TrimSpace(string(r.Stderr)))
	}
	return nil
}

func verifyCerts(ctx context.Context, in certsIn, e *tasks.Env) (fp.Output, error) {
	m, err := materialOf(e.Vault)
	if err != nil {
		return nil, err
	}
	for _, f := range authorityFiles() {
		b, err := e.Host.Get(ctx, f.path)
		if err != nil {
			return nil, err
		}
		if !bytes.Equal(b, f.of(m)) {
			return nil, fmt.Errorf("%s on %s is not the credential unit's", f.path, in.Host)
		}
	}
	for _, w := range in.leaves() {
		cert, err := readLeaf(ctx, e.Host, w)
		if err != nil {
			return nil, err
		}
		if err := m.by[w.authority].Check(cert, w.leaf, e.Now()); err != nil {
			return nil, err
		}
		e.Expires(pki.GoodUntil(cert.NotBefore, cert.NotAfter))
	}
	if err := in.kubeletClientGood(ctx, m.by[ClusterCA], e); err != nil {
		return nil, fmt.Errorf("kubelet's client certificate: %w", err)
	}
	return nil, nil
}
