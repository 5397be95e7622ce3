package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

func encodeCert(der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func encodeKey(key *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// ParseCert reads the first certificate of a PEM text.
func ParseCert(text []byte) (*x509.Certificate, error) {
	for {
		var b *pem.Block
		b, text = pem.Decode(text)
		if b == nil {
			return nil, errors.New("no certificate in PEM form")
		}
		if b.Type == "CERTIFICATE" {
			c, err := x509.ParseCertificate(b.Bytes)
			if err != nil {
				return nil, fmt.Errorf("reading a certificate: %w", err)
			}
			return c, nil
		}
	}
}

// ParseKey reads the first private key of a PEM text.
func ParseKey(text []byte) (crypto.Signer, error) {
	for {
		var b *pem.Block
		b, text = pem.Decode(text)
		if b == nil {
			return nil, errors.New("no private key in PEM form")
		}
		switch b.Type {
		case "EC PRIVATE KEY":
			k, err := x509.ParseECPrivateKey(b.Bytes)
			if err != nil {
				return nil, fmt.Errorf("reading a key: %w", err)
			}
			return k, nil
		case "RSA PRIVATE KEY":
			k, err := x509.ParsePKCS1PrivateKey(b.Bytes)
			if err != nil {
				return nil, fmt.Errorf("reading a key: %w", err)
			}
			return k, nil
		case "PRIVATE KEY":
			k, err := x509.ParsePKCS8PrivateKey(b.Bytes)
			if err != nil {
				return nil, fmt.Errorf("reading a key: %w", err)
			}
			if s, ok := k.(crypto.Signer); ok {
				return s, nil
			}
			return nil, fmt.Errorf("a key of type %T cannot sign", k)
		}
	}
}

// Expiry is the end of the first certificate of a PEM text.
func Expiry(text []byte) (time.Time, error) {
	c, err := ParseCert(text)
	if err != nil {
		return time.Time{}, err
	}
	return c.NotAfter, nil
}

// GoodUntil is when a certificate that ends then has to be made anew. One that
// lives shorter than the renewal window is renewed in the last tenth of its
// life, so that it is not stale from its first moment.
func GoodUntil(notBefore, notAfter time.Time) time.Time {
	if life := notAfter.Sub(notBefore); life < 2*RenewBefore {
		return notAfter.Add(-life / 10)
	}
	return notAfter.Add(-RenewBefore)
}

// RenewAt is when a pair has to be made anew.
func (p *Pair) RenewAt() time.Time {
	c, err := ParseCert(p.CertPEM)
	if err != nil {
		return p.NotAfter
	}
	return GoodUntil(c.NotBefore, c.NotAfter)
}

// NewServiceAccountKey makes the key that signs service-account tokens, in
// kubeadm's form of sa.key.
func NewServiceAccountKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the service-account key: %w", err)
	}
	return encodeKey(key)
}

// PublicPEM is the public half of a private key, in kubeadm's form of sa.pub.
func PublicPEM(keyPEM []byte) ([]byte, error) {
	key, err := ParseKey(keyPEM)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("encoding a public key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}), nil
}

// KeyIDOf is the KeyID of a private key in PEM form.
func KeyIDOf(keyPEM []byte) (string, error) {
	key, err := ParseKey(keyPEM)
	if err != nil {
		return "", err
	}
	return KeyID(key.Public()), nil
}
