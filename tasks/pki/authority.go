// Package pki makes hk's certificates with Go's crypto: authorities that live
// in the credential unit and leaf certificates that live on hosts.
package pki

import (
	"crypto"
	"crypto/x509"
)

// Authority is a certificate authority with its key.
type Authority struct {
	Name    string
	Cert    *x509.Certificate
	Key     crypto.Signer
	CertPEM []byte
	KeyPEM  []byte
}
