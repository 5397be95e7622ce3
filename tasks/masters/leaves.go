package masters

import (
	"context"
	"crypto/x509"
	"fmt"

	"hk/remote"
	"hk/tasks/kubenode"
	"hk/tasks/pki"
)

// Places of a master's key material that kubeadm looks for.
const (
	frontProxyCert = kubenode.PKIDir + "/front-proxy-ca"
	etcdCAFile     = kubenode.PKIDir + "/etcd/ca"
	etcdClientFile = kubenode.PKIDir + "/apiserver-etcd-client"
	encryptionFile = kubenode.PKIDir + "/encryption.yaml"
	adminFile      = "/etc/kubernetes/admin.conf"
	superFile      = "/etc/kubernetes/super-admin.conf"
	controllerFile = "/etc/kubernetes/controller-manager.conf"
	schedulerFile  = "/etc/kubernetes/scheduler.conf"
	// kubeletFirst is the client certificate kubelet starts with; it rotates it
	// into files of its own names beside it.
	kubeletFirst = kubenode.KubeletPKI + "/kubelet-client-hk.pem"
)

// wanted is one leaf certificate: who signs it and where it goes. With a server
// it is embedded in a kubeconfig instead of standing in two files.
type wanted struct {
	authority string // name in the credential unit
	base      string // path without .crt and .key
	conf      string // path of the kubeconfig
	server    string // of the kubeconfig
	leaf      pki.Leaf
}

// leaves are all leaf certificates of a master, as kubeadm would make them:
// the names are the same, so it finds them and is content.
func (in certsIn) leaves() []wanted {
	own, local := kubenode.LocalServer(in.MeshIP), "https://"+kubenode.LocalEndpoint
	return []wanted{
		{authority: ClusterCA, base: kubenode.PKIDir + "/apiserver", leaf: in.apiServer()},
		{authority: ClusterCA, base: kubenode.PKIDir + "/apiserver-kubelet-client", leaf: pki.Leaf{
			CN: kubeletAPIUser, Orgs: []string{adminGroup}, Client: true,
		}},
		{authority: FrontProxyCA, base: kubenode.PKIDir + "/front-proxy-client", leaf: pki.Leaf{CN: frontProxyUser, Client: true}},
		{authority: etcdAuthority, base: etcdClientFile, leaf: pki.Leaf{CN: etcdClientUser, Client: true}},
		{authority: ClusterCA, base: kubenode.KubeletPKI + "/serving", leaf: kubenode.ServingLeaf(in.Node, in.MeshIP, in.IPv4, in.Private)},
		{authority: ClusterCA, conf: adminFile, server: local, leaf: AdminLeaf()},
		{authority: ClusterCA, conf: controllerFile, server: own, leaf: pki.Leaf{CN: controllerUser, Client: true}},
		{authority: ClusterCA, conf: schedulerFile, server: own, leaf: pki.Leaf{CN: schedulerUser, Client: true}},
	}
}

// apiServer holds the shared names, the master's own, and kubeadm's defaults.
// Only the shared ones are in the ClusterConfiguration: growing masters issues
// nothing anew elsewhere.
func (in certsIn) apiServer() pki.Leaf {
	l := pki.Leaf{
		CN: apiServerName, Server: true,
		DNS: []string{in.Node, "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc." + clusterDomain, "localhost"},
		IPs: []string{in.ServiceIP, in.MeshIP, "127.0.0.1", in.IPv4, in.Private},
	}
	if isIP(in.External) {
		l.IPs = append(l.IPs, in.External)
	} else {
		l.DNS = append(l.DNS, in.External)
	}
	return l
}

// AdminLeaf is an administrator by group: the group's binding is made by
// kubeadm, so it can be withdrawn.
func AdminLeaf() pki.Leaf { return pki.Leaf{CN: adminUser, Orgs: []string{adminGroup}, Client: true} }

// superLeaf is an administrator whom nothing can shut out.
func superLeaf() pki.Leaf { return pki.Leaf{CN: superUser, Orgs: []string{superGroup}, Client: true} }

func (in certsIn) kubeletClient() pki.Leaf {
	return pki.Leaf{CN: nodeUserPrefix + in.Node, Orgs: []string{nodesGroup}, Client: true}
}

// kubeletConf names kubelet's certificate by file from the start: kubeadm's
// last phase would do the same after the fact, and restart kubelet for it.
func (in certsIn) kubeletConf(ca []byte) []byte {
	return pki.Kubeconfig{
		Cluster: in.Cluster, User: nodeUserPrefix + in.Node, Server: kubenode.LocalServer(in.MeshIP), CA: ca,
		CertFile: kubenode.ClientCurrent, KeyFile: kubenode.ClientCurrent,
	}.Render()
}

// encryptionConfig encrypts Secrets with the first provider and still reads
// what was written before there was one.
func encryptionConfig(key string) []byte {
	return fmt.Appendf(nil, `# Written by hk; changes are undone by the next build.
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources:
  - secrets
  providers:
  - secretbox:
      keys:
      - name: hk-1
        secret: %s
  - identity: {}
`, key)
}

// readLeaf reads back the certificate of a leaf from where it stands.
func readLeaf(ctx context.Context, h remote.Host, w wanted) (*x509.Certificate, error) {
	path := w.conf
	if path == "" {
		path = w.base + ".crt"
	}
	b, err := h.Get(ctx, path)
	if err != nil {
		return nil, err
	}
	if w.conf != "" {
		k, err := pki.ParseKubeconfig(b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		b = k.Cert
	}
	c, err := pki.ParseCert(b)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}
