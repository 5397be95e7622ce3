package etcd

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/pki"
)

// foundation is what is agreed on before the first member starts.
type foundation struct {
	// Generation names the data: it is etcd's initial-cluster-token, so members
	// of two generations never talk to each other.
	Generation string   `json:"generation"`
	Members    []Member `json:"members"`
}

type caIn struct {
	Members []Member `part:"alloc:etcd-members"`
}

// caKind makes etcd's authority, the founding members' agreement and hk's own
// client certificate: once, in the credential unit.
func caKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "ca", Scope: graph.OnCluster, Asset: "ca", Recipe: 1, Once: true,
		Title: "etcd authority",
	}, tasks.Def[caIn]{
		Inputs: func(v *tasks.View) (caIn, error) { return caIn{Members: Members(v)}, nil },
		Run:    runCA,
		Verify: verifyCA,
	})
}

func runCA(_ context.Context, in caIn, e *tasks.Env) error {
	ca, err := e.Vault.Authority(Authority)
	if errors.Is(err, remote.ErrNotFound) && !e.EtcdBorn {
		ca, err = e.Vault.CreateAuthority(Authority, "etcd-ca")
	}
	if err != nil {
		return err
	}
	if _, err := e.Vault.Secret(founding); errors.Is(err, remote.ErrNotFound) && !e.EtcdBorn {
		if _, err := e.Vault.CreateSecret(founding, func() ([]byte, error) { return found(in.Members) }); err != nil {
			return err
		}
	}
	return renewClient(e, ca)
}

func found(members []Member) ([]byte, error) {
	b := make([]byte, 8)
	if _, err := rand.Read(b); err != nil {
		return nil, fmt.Errorf("drawing the data generation: %w", err)
	}
	return json.Marshal(foundation{Generation: hex.EncodeToString(b), Members: members})
}

func foundationOf(v tasks.Vault) (foundation, error) {
	var f foundation
	b, err := v.Secret(founding)
	if err != nil {
		return f, fmt.Errorf("what etcd was founded with: %w", err)
	}
	if err := json.Unmarshal(b, &f); err != nil || f.Generation == "" {
		return f, fmt.Errorf("%s in the credential unit cannot be read", founding)
	}
	return f, nil
}

// ClientLeaf is hk's own client of etcd: no names in it, so that etcd checks
// the signature only, whichever way the connection comes.
func ClientLeaf() pki.Leaf { return pki.Leaf{CN: "hk", Client: true} }

// renewClient keeps a client certificate of hk's in the unit that is good for
// longer than the renewal window.
func renewClient(e *tasks.Env, ca *pki.Authority) error {
	if b, err := e.Vault.Secret(ClientCert); err == nil {
		if _, err := e.Vault.Secret(ClientKey); err == nil && stillGood(ca, b, ClientLeaf(), e) == nil {
			return nil
		}
	}
	p, err := ca.Issue(ClientLeaf(), e.Now())
	if err != nil {
		return err
	}
	if err := e.Vault.Put(ClientKey, p.KeyPEM); err != nil {
		return err
	}
	return e.Vault.Put(ClientCert, p.CertPEM)
}

// stillGood says why a certificate has to be made anew; nil if it has not.
func stillGood(ca *pki.Authority, certPEM []byte, l pki.Leaf, e *tasks.Env) error {
	c, err := pki.ParseCert(certPEM)
	if err != nil {
		return err
	}
	if err := ca.Check(c, l, e.Now()); err != nil {
		return err
	}
	if until := pki.GoodUntil(c.NotBefore, c.NotAfter); !e.Now().Before(until) {
		return fmt.Errorf("certificate %s ends at %s", c.Subject.CommonName, c.NotAfter)
	}
	return nil
}

func verifyCA(_ context.Context, _ caIn, e *tasks.Env) (fp.Output, error) {
	ca, err := e.Vault.Authority(Authority)
	if err != nil {
		return nil, err
	}
	f, err := foundationOf(e.Vault)
	if err != nil {
		return nil, err
	}
	return fp.Output{"ca": ca.Fingerprint(), "generation": f.Generation}, nil
}

// expiryOfClient makes the task that renews hk's client certificate stale in
// time.
func expiryOfClient(e *tasks.Env) error {
	b, err := e.Vault.Secret(ClientCert)
	if err != nil {
		return fmt.Errorf("hk's etcd client certificate: %w", err)
	}
	c, err := pki.ParseCert(b)
	if err != nil {
		return fmt.Errorf("hk's etcd client certificate: %w", err)
	}
	e.Expires(pki.GoodUntil(c.NotBefore, c.NotAfter))
	return nil
}
