package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"
)

var now = time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)

func authority(t *testing.T) *Authority {
	t.Helper()
	a, err := New("ca", "kubernetes", now)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestAuthorityIsWhatKubeadmExpects(t *testing.T) {
	a := authority(t)
	c := a.Cert
	if !c.IsCA || !c.BasicConstraintsValid || c.KeyUsage&x509.KeyUsageCertSign == 0 {
		t.Errorf("not an authority: IsCA %t, usage %b", c.IsCA, c.KeyUsage)
	}
	if c.Subject.CommonName != "kubernetes" {
		t.Errorf("common name %q", c.Subject.CommonName)
	}
	if got := now.Sub(c.NotBefore); got != time.Hour {
		t.Errorf("begins %s before it was made, want an hour", got)
	}
	if got := c.NotAfter.Sub(now); got != AuthorityLife {
		t.Errorf("lives %s", got)
	}
	if b, _ := pem.Decode(a.KeyPEM); b == nil || b.Type != "EC PRIVATE KEY" {
		t.Error("the key is not in the form client-go's keyutil reads first")
	}
	if _, ok := a.Key.(*ecdsa.PrivateKey); !ok {
		t.Errorf("key is a %T", a.Key)
	}
}

func TestLoadRoundTripAndForeignKey(t *testing.T) {
	a, other := authority(t), authority(t)
	back, err := Load("ca", a.CertPEM, a.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	if back.Fingerprint() != a.Fingerprint() {
		t.Error("fingerprint changed on the way")
	}
	if _, err := Load("ca", a.CertPEM, other.KeyPEM); err == nil {
		t.Error("a key of another authority was accepted")
	}
	leaf, err := a.Issue(Leaf{CN: "x", Client: true}, now)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Load("ca", leaf.CertPEM, leaf.KeyPEM); err == nil {
		t.Error("a leaf was accepted as an authority")
	}
}

func TestLeafVerifiesAsServerAndClient(t *testing.T) {
	a := authority(t)
	l := Leaf{
		CN: "kube-apiserver", Orgs: []string{"o"}, DNS: []string{"demo-master-1", "kubernetes.default.svc", ""},
		IPs: []string{"10.200.0.1", "10.100.0.1", "", "10.100.0.1"}, Server: true, Client: true,
	}
	p, err := a.Issue(l, now)
	if err != nil {
		t.Fatal(err)
	}
	c, err := ParseCert(p.CertPEM)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(a.Cert)
	for _, u := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		for _, name := range []string{"demo-master-1", "kubernetes.default.svc", "10.200.0.1", "10.100.0.1"} {
			opts := x509.VerifyOptions{Roots: pool, CurrentTime: now, DNSName: name, KeyUsages: []x509.ExtKeyUsage{u}}
			if _, err := c.Verify(opts); err != nil {
				t.Errorf("%s for usage %v: %v", name, u, err)
			}
		}
	}
	if len(c.IPAddresses) != 2 || len(c.DNSNames) != 2 {
		t.Errorf("empty and repeated names are in it: %v %v", c.DNSNames, c.IPAddresses)
	}
	if !c.NotAfter.Equal(now.Add(LeafLife)) || !c.NotBefore.Equal(now.Add(-time.Hour)) {
		t.Errorf("lives from %s to %s", c.NotBefore, c.NotAfter)
	}
	if err := a.Check(c, l, now); err != nil {
		t.Error(err)
	}
	l.DNS = append(l.DNS, "api.example.org")
	if err := a.Check(c, l, now); err == nil {
		t.Error("a name that is not in the certificate was not missed")
	}
	if err := authority(t).Check(c, Leaf{}, now); err == nil {
		t.Error("another authority vouches for it")
	}
	if err := a.Check(c, Leaf{}, now.Add(LeafLife+time.Second)); err == nil {
		t.Error("still good after its end")
	}
}

func TestLeafNeverOutlivesItsAuthority(t *testing.T) {
	a := authority(t)
	late := a.Cert.NotAfter.Add(-24 * time.Hour)
	p, err := a.Issue(Leaf{CN: "x"}, late)
	if err != nil {
		t.Fatal(err)
	}
	if p.NotAfter.After(a.Cert.NotAfter) {
		t.Errorf("leaf ends %s, authority %s", p.NotAfter, a.Cert.NotAfter)
	}
	if _, err := a.Issue(Leaf{CN: "x"}, a.Cert.NotAfter.Add(time.Second)); err == nil {
		t.Error("an authority signed after its end")
	}
}

func TestIssueRefusesWhatIsNoAddress(t *testing.T) {
	if _, err := authority(t).Issue(Leaf{CN: "x", IPs: []string{"master-1"}}, now); err == nil {
		t.Error("a name was taken for an address")
	}
}

func TestGoodUntil(t *testing.T) {
	for _, c := range []struct{ life, before time.Duration }{
		{LeafLife, RenewBefore}, {AuthorityLife, RenewBefore}, {time.Hour, 6 * time.Minute}, {40 * 24 * time.Hour, 4 * 24 * time.Hour},
	} {
		if got := GoodUntil(now, now.Add(c.life)); !got.Equal(now.Add(c.life - c.before)) {
			t.Errorf("life %s: good until %s before its end", c.life, now.Add(c.life).Sub(got))
		}
	}
}

func TestServiceAccountKey(t *testing.T) {
	key, err := NewServiceAccountKey()
	if err != nil {
		t.Fatal(err)
	}
	pub, err := PublicPEM(key)
	if err != nil {
		t.Fatal(err)
	}
	b, _ := pem.Decode(pub)
	if b == nil || b.Type != "PUBLIC KEY" {
		t.Fatalf("sa.pub is %q", pub)
	}
	k, err := x509.ParsePKIXPublicKey(b.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	id, err := KeyIDOf(key)
	if err != nil || id != KeyID(k) {
		t.Errorf("key ID %q of the private half, %q of the public one (%v)", id, KeyID(k), err)
	}
}

func TestKubeconfigRoundTrip(t *testing.T) {
	a := authority(t)
	p, err := a.Issue(Leaf{CN: "kubernetes-admin", Client: true}, now)
	if err != nil {
		t.Fatal(err)
	}
	k := Kubeconfig{Cluster: "demo", User: "kubernetes-admin", Server: "https://127.0.0.1:16443", CA: a.CertPEM, Cert: p.CertPEM, Key: p.KeyPEM}
	text := k.Render()
	back, err := ParseKubeconfig(text)
	if err != nil {
		t.Fatal(err)
	}
	if back.Server != k.Server || back.Cluster != "demo" || back.User != k.User || back.Context != "kubernetes-admin@demo" ||
		!bytes.Equal(back.CA, k.CA) || !bytes.Equal(back.Cert, k.Cert) || !bytes.Equal(back.Key, k.Key) {
		t.Errorf("read back as %+v", back)
	}
	if _, err := ParseKubeconfig([]byte("kind: Config\n")); err == nil {
		t.Error("a file without a server was accepted")
	}
	file := Kubeconfig{Cluster: "demo", User: "u", Server: "https://x", CA: a.CertPEM, CertFile: "/c", KeyFile: "/k"}.Render()
	if !strings.Contains(string(file), "    client-certificate: /c\n    client-key: /k\n") {
		t.Errorf("files are not named: %s", file)
	}
}
