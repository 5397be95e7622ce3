package pki

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"math/big"
	"net"
	"time"
)

// Lifetimes. An authority lives long because everything hangs on it; a leaf
// lives as long as kubeadm's own.
const (
	AuthorityLife = 10 * 365 * 24 * time.Hour
	LeafLife      = 365 * 24 * time.Hour
	// RenewBefore is how long before its end a leaf is renewed.
	RenewBefore = 30 * 24 * time.Hour
	// backdate lets a host whose clock is a little behind accept a certificate
	// made just now.
	backdate = time.Hour
)

// Authority is a certificate authority with its key.
type Authority struct {
	Name    string
	Cert    *x509.Certificate
	Key     crypto.Signer
	CertPEM []byte
	KeyPEM  []byte
}

// New makes an authority. Its PEM forms are what kubeadm expects of ca.crt and
// ca.key.
func New(name, commonName string, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key of authority %s: %w", name, err)
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: commonName},
		DNSNames:              []string{commonName},
		NotBefore:             now.Add(-backdate).UTC().Truncate(time.Second),
		NotAfter:              now.Add(AuthorityLife).UTC().Truncate(time.Second),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment | x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing authority %s: %w", name, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return Load(name, encodeCert(der), keyPEM)
}

// Load reads an authority back and refuses one whose key is not its own.
func Load(name string, certPEM, keyPEM []byte) (*Authority, error) {
	cert, err := ParseCert(certPEM)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	key, err := ParseKey(keyPEM)
	if err != nil {
		return nil, fmt.Errorf("authority %s: %w", name, err)
	}
	if !cert.IsCA {
		return nil, fmt.Errorf("authority %s: its certificate is not one of an authority", name)
	}
	if KeyID(cert.PublicKey) != KeyID(key.Public()) {
		return nil, fmt.Errorf("authority %s: its key and its certificate do not belong together", name)
	}
	return &Authority{Name: name, Cert: cert, Key: key, CertPEM: bytes.Clone(certPEM), KeyPEM: bytes.Clone(keyPEM)}, nil
}

// Fingerprint is SHA-256 of the certificate, hex: what is compared between
// store, hosts and what an API server presents.
func (a *Authority) Fingerprint() string { return Fingerprint(a.Cert) }

// Fingerprint is SHA-256 of a certificate, hex.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

// KeyID names a key by its public half: SHA-256 of the SubjectPublicKeyInfo,
// hex. It may appear where the key may not.
func KeyID(pub crypto.PublicKey) string {
	der, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(der)
	return hex.EncodeToString(sum[:])
}

// Leaf is what a certificate is wanted for.
type Leaf struct {
	CN             string
	Orgs           []string
	DNS            []string
	IPs            []string // empty ones are left out
	Server, Client bool
	Life           time.Duration // 0 means LeafLife
}

// Pair is a leaf certificate with its key, as PEM.
type Pair struct {
	CertPEM, KeyPEM []byte
	NotAfter        time.Time
}

// Issue makes a key and a certificate for it. The certificate never outlives
// its authority.
func (a *Authority) Issue(l Leaf, now time.Time) (*Pair, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key for %s: %w", l.CN, err)
	}
	tmpl, err := a.template(l, now)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.Cert, key.Public(), a.Key)
	if err != nil {
		return nil, fmt.Errorf("signing %s by %s: %w", l.CN, a.Name, err)
	}
	keyPEM, err := encodeKey(key)
	if err != nil {
		return nil, err
	}
	return &Pair{CertPEM: encodeCert(der), KeyPEM: keyPEM, NotAfter: tmpl.NotAfter}, nil
}

func (a *Authority) template(l Leaf, now time.Time) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	life := l.Life
	if life == 0 {
		life = LeafLife
	}
	t := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: l.CN, Organization: l.Orgs},
		NotBefore:             later(now.Add(-backdate), a.Cert.NotBefore).UTC().Truncate(time.Second),
		NotAfter:              earlier(now.Add(life), a.Cert.NotAfter).UTC().Truncate(time.Second),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
		BasicConstraintsValid: true,
	}
	if !t.NotAfter.After(now) {
		return nil, fmt.Errorf("authority %s ended at %s: it can sign nothing any more", a.Name, a.Cert.NotAfter.Format(time.RFC3339))
	}
	if l.Server {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	}
	if l.Client {
		t.ExtKeyUsage = append(t.ExtKeyUsage, x509.ExtKeyUsageClientAuth)
	}
	t.DNSNames = unique(l.DNS)
	for _, s := range unique(l.IPs) {
		ip := net.ParseIP(s)
		if ip == nil {
			return nil, fmt.Errorf("certificate %s: %q is not an IP address", l.CN, s)
		}
		t.IPAddresses = append(t.IPAddresses, ip)
	}
	return t, nil
}

// Check says why a certificate is not what is wanted of this authority now:
// signed by another one, over, or without a wanted name; nil if it is.
func (a *Authority) Check(c *x509.Certificate, l Leaf, now time.Time) error {
	pool := x509.NewCertPool()
	pool.AddCert(a.Cert)
	opts := x509.VerifyOptions{Roots: pool, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	if _, err := c.Verify(opts); err != nil {
		return fmt.Errorf("certificate %s by authority %s: %w", c.Subject.CommonName, a.Name, err)
	}
	if l.CN != "" && c.Subject.CommonName != l.CN {
		return fmt.Errorf("certificate is of %s, not of %s", c.Subject.CommonName, l.CN)
	}
	for _, name := range append(unique(l.DNS), unique(l.IPs)...) {
		if err := c.VerifyHostname(name); err != nil {
			return fmt.Errorf("certificate %s: %w", c.Subject.CommonName, err)
		}
	}
	return nil
}

func newSerial() (*big.Int, error) {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("drawing a serial number: %w", err)
	}
	return n.Add(n, big.NewInt(1)), nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// unique drops empty and repeated strings and keeps the order.
func unique(in []string) []string {
	var out []string
	seen := map[string]bool{"": true}
	for _, s := range in {
		if !seen[s] {
			seen[s] = true
			out = append(out, s)
		}
	}
	return out
}
