package masters

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"

	"hk/cache/fp"
	"hk/graph"
	"hk/remote"
	"hk/tasks"
	"hk/tasks/pki"
)

type caIn struct{}

// caKind makes what all of the cluster's trust hangs on, once, in the
// credential unit: the cluster's authority, the front proxy's, the key of
// service-account tokens and the one that encrypts Secrets at rest.
func caKind() tasks.Kind {
	return tasks.Define(graph.Kind{
		Phase: Phase, Part: "ca", Scope: graph.OnCluster, Asset: "ca", Recipe: 1, Once: true,
		Title: "cluster authorities and keys",
	}, tasks.Def[caIn]{
		Inputs: func(*tasks.View) (caIn, error) { return caIn{}, nil },
		Run:    runCA,
		Verify: verifyCA,
	})
}

func runCA(_ context.Context, _ caIn, e *tasks.Env) error {
	for _, a := range []struct{ name, cn string }{{ClusterCA, "kubernetes"}, {FrontProxyCA, "front-proxy-ca"}} {
		_, err := e.Vault.Authority(a.name)
		if errors.Is(err, remote.ErrNotFound) && !e.Established {
			_, err = e.Vault.CreateAuthority(a.name, a.cn)
		}
		if err != nil {
			return err
		}
	}
	for _, s := range []struct {
		name string
		draw func() ([]byte, error)
	}{{ServiceKey, pki.NewServiceAccountKey}, {EncryptionKey, drawEncryptionKey}} {
		_, err := e.Vault.Secret(s.name)
		if errors.Is(err, remote.ErrNotFound) && !e.Established {
			_, err = e.Vault.CreateSecret(s.name, s.draw)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// drawEncryptionKey is a key for secretbox in the form its config wants.
func drawEncryptionKey() ([]byte, error) {
	b := make([]byte, 32)
	if _, err := rand.Read(b); err != nil {
		return nil, fmt.Errorf("drawing the key for Secrets: %w", err)
	}
	return []byte(base64.StdEncoding.EncodeToString(b) + "\n"), nil
}

// verifyCA hands over what may be known of the keys: fingerprints and IDs.
func verifyCA(_ context.Context, _ caIn, e *tasks.Env) (fp.Output, error) {
	ca, err := e.Vault.Authority(ClusterCA)
	if err != nil {
		return nil, err
	}
	front, err := e.Vault.Authority(FrontProxyCA)
	if err != nil {
		return nil, err
	}
	sa, err := e.Vault.Secret(ServiceKey)
	if err != nil {
		return nil, err
	}
	saID, err := pki.KeyIDOf(sa)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ServiceKey, err)
	}
	enc, err := e.Vault.Secret(EncryptionKey)
	if err != nil {
		return nil, err
	}
	return fp.Output{
		"ca": ca.Fingerprint(), "front-proxy": front.Fingerprint(), "sa": saID,
		"encryption": hex.EncodeToString(e.Vault.HMAC(enc))[:32],
	}, nil
}
