package pki

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// Kubeconfig is one way into one cluster. The client's certificate is either
// embedded (Cert and Key) or named by file (CertFile and KeyFile).
type Kubeconfig struct {
	Cluster string // name of the cluster entry
	User    string // name of the user entry
	Context string // "" means USER@CLUSTER, kubeadm's way
	Server  string // https://…
	CA      []byte // PEM
	// Cert and Key are PEM.
	Cert, Key         []byte
	CertFile, KeyFile string
}

// Render writes it in the form and order client-go writes, so that a program
// that loads and saves it changes no byte.
func (k Kubeconfig) Render() []byte {
	ctx := k.Context
	if ctx == "" {
		ctx = k.User + "@" + k.Cluster
	}
	var b strings.Builder
	b.WriteString("apiVersion: v1\nclusters:\n- cluster:\n")
	fmt.Fprintf(&b, "    certificate-authority-data: %s\n", b64(k.CA))
	fmt.Fprintf(&b, "    server: %s\n", k.Server)
	fmt.Fprintf(&b, "  name: %s\ncontexts:\n- context:\n    cluster: %s\n    user: %s\n  name: %s\n",
		k.Cluster, k.Cluster, k.User, ctx)
	fmt.Fprintf(&b, "current-context: %s\nkind: Config\nusers:\n- name: %s\n  user:\n", ctx, k.User)
	if k.CertFile != "" {
		fmt.Fprintf(&b, "    client-certificate: %s\n    client-key: %s\n", k.CertFile, k.KeyFile)
	} else {
		fmt.Fprintf(&b, "    client-certificate-data: %s\n    client-key-data: %s\n", b64(k.Cert), b64(k.Key))
	}
	return []byte(b.String())
}

func b64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// ParseKubeconfig reads back what Render wrote: server, CA and the embedded
// client certificate. It is not a parser for other people's files.
func ParseKubeconfig(text []byte) (Kubeconfig, error) {
	var k Kubeconfig
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		var err error
		switch key {
		case "certificate-authority-data":
			k.CA, err = base64.StdEncoding.DecodeString(value)
		case "client-certificate-data":
			k.Cert, err = base64.StdEncoding.DecodeString(value)
		case "client-key-data":
			k.Key, err = base64.StdEncoding.DecodeString(value)
		case "client-certificate":
			k.CertFile = value
		case "client-key":
			k.KeyFile = value
		case "server":
			k.Server = value
		case "cluster":
			if value != "" {
				k.Cluster = value
			}
		case "user":
			if value != "" {
				k.User = value
			}
		case "current-context":
			k.Context = value
		}
		if err != nil {
			return Kubeconfig{}, fmt.Errorf("reading %s of a kubeconfig: %w", key, err)
		}
	}
	if k.Server == "" || len(k.CA) == 0 {
		return Kubeconfig{}, fmt.Errorf("not a kubeconfig of hk: no server or no certificate authority in it")
	}
	return k, nil
}
