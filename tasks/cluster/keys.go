package cluster

import (
	"bytes"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"hk/remote"
	"hk/tasks/pki"
)

// Authorities of a unit. The Kubernetes one is in ca.crt and ca.key, the others
// in files of their own name.
const (
	KubernetesCA = "kubernetes-ca"
	FrontProxyCA = "front-proxy-ca"
	EtcdCA       = "etcd-ca"
)

// errEstablished refuses new key material for a cluster that lives.
func errEstablished(name string) error {
	return &Refusal{
		Exit: ExitCredentials, World: "state",
		Message: fmt.Sprintf("the cluster is established and its credential unit has no %s: hk never makes new keys for it", name),
		Hints:   []string{"restore the credential unit; every master keeps a copy in " + HostUnitDir},
	}
}

// authorityBase is the file name of an authority without its ending.
func authorityBase(name string) string {
	switch name {
	case KubernetesCA, "kubernetes", "ca":
		return "ca"
	case "etcd":
		return EtcdCA
	case "front-proxy":
		return FrontProxyCA
	}
	return name
}

// keyName is how people know what is in a key file.
func keyName(file string) string {
	switch file {
	case "ca.key", "ca.crt":
		return KubernetesCA
	case EtcdCA + ".key", FrontProxyCA + ".key", EtcdCA + ".crt", FrontProxyCA + ".crt":
		return strings.TrimSuffix(strings.TrimSuffix(file, ".key"), ".crt")
	}
	return file
}

// lock serialises makers of one name: what is made is made once.
func (u *Unit) lock(name string) func() {
	u.nmu.Lock()
	m := u.naming[name]
	if m == nil {
		m = &sync.Mutex{}
		u.naming[name] = m
	}
	u.nmu.Unlock()
	m.Lock()
	return m.Unlock
}

// Authority implements tasks.Vault.
func (u *Unit) Authority(name string) (*pki.Authority, error) {
	base := authorityBase(name)
	files := u.read().files
	crt, key := files[base+".crt"], files[base+".key"]
	if crt == nil || key == nil {
		return nil, fmt.Errorf("authority %s of the credential unit: %w", name, remote.ErrNotFound)
	}
	a, err := pki.Load(name, crt, key)
	if err != nil {
		return nil, fmt.Errorf("authority %s of the credential unit: %w", name, err)
	}
	return a, nil
}

// CreateAuthority implements tasks.Vault: the one that is there, or a new one
// if the cluster is not established.
func (u *Unit) CreateAuthority(name, commonName string) (*pki.Authority, error) {
	base := authorityBase(name)
	defer u.lock(base + ".crt")()
	if a, err := u.Authority(name); err == nil || !errors.Is(err, remote.ErrNotFound) {
		return a, err
	}
	if u.alive(base) {
		return nil, errEstablished(name)
	}
	a, err := pki.New(name, commonName, u.now())
	if err != nil {
		return nil, err
	}
	id := pki.KeyID(a.Cert.PublicKey)
	err = u.change(func(st *state) error {
		st.files[base+".key"], st.files[base+".crt"] = a.KeyPEM, a.CertPEM
		st.pair(base+".key", base+".crt")
		st.make(base+".crt", keyName(base+".crt"), id)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}

// alive reports whether the cluster may already use keys of this name: the
// etcd authority once an etcd has lived, everything once it is established.
func (u *Unit) alive(base string) bool {
	m := u.read().m
	return m.Born != nil || base == EtcdCA && m.EtcdBorn != nil
}

// Secret implements tasks.Vault.
func (u *Unit) Secret(name string) ([]byte, error) { return u.File(name) }

// CreateSecret implements tasks.Vault.
func (u *Unit) CreateSecret(name string, makeIt func() ([]byte, error)) ([]byte, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	defer u.lock(name)()
	if b, err := u.File(name); err == nil {
		return b, nil
	}
	if u.alive(name) {
		return nil, errEstablished(name)
	}
	data, err := makeIt()
	if err != nil {
		return nil, fmt.Errorf("making secret %s: %w", name, err)
	}
	data = slices.Clone(data)
	err = u.change(func(st *state) error {
		st.files[name] = data
		st.make(name, name, st.keyID(name, data))
		return nil
	})
	if err != nil {
		return nil, err
	}
	return slices.Clone(data), nil
}

// KeyID implements tasks.Vault: the hash of a public key, or the HMAC of a
// secret without one. An authority goes by its name or its file's.
func (u *Unit) KeyID(name string) string {
	f := u.read().m.Files
	if base := authorityBase(name); f[base+".crt"].KeyID != "" {
		return f[base+".crt"].KeyID
	}
	return f[name].KeyID
}

// entry describes a file for the manifest.
func (s *state) entry(name string, data []byte) Entry {
	e := Entry{SHA256: sumOf(data)}
	switch name {
	case fileHosts, fileAlloc, fileLock, fileApplied, fileKnownHosts:
		return e
	}
	e.KeyID = s.keyID(name, data)
	if c := certOf(data); c != nil {
		t := c.NotAfter.UTC()
		e.Expires = &t
	}
	return e
}

// keyID names key material without giving any of it away.
func (s *state) keyID(name string, data []byte) string {
	if c := certOf(data); c != nil {
		return pki.KeyID(c.PublicKey)
	}
	if bytes.HasPrefix(data, []byte("-----BEGIN ")) {
		if id, err := pki.KeyIDOf(data); err == nil {
			return id
		}
		if p, _ := pem.Decode(data); p != nil && p.Type == "PUBLIC KEY" {
			if pub, err := x509.ParsePKIXPublicKey(p.Bytes); err == nil {
				return pki.KeyID(pub)
			}
		}
	}
	if name == fileHMAC {
		return sumOf(data)[:32] // 256 random bits of hk's own
	}
	return hex.EncodeToString(s.hmac(append([]byte(name+"\x00"), data...))[:16])
}

var kubeconfigCert = regexp.MustCompile(`(?m)client-certificate-data:\s*"?([A-Za-z0-9+/=]+)"?\s*$`)

// certOf is the certificate in a PEM file or a kubeconfig; nil if there is none.
func certOf(data []byte) *x509.Certificate {
	if m := kubeconfigCert.FindSubmatch(data); m != nil {
		raw, err := base64.StdEncoding.DecodeString(string(m[1]))
		if err != nil {
			return nil
		}
		data = raw
	}
	if !bytes.HasPrefix(data, []byte("-----BEGIN CERT")) {
		return nil
	}
	c, err := pki.ParseCert(data)
	if err != nil {
		return nil
	}
	return c
}
